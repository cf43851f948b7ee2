// SPDX-License-Identifier: Apache-2.0
#include "correlate/gpu/nvlink_failure.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace collwire::gpu {
namespace {

constexpr std::uint32_t NVLINK = 74, FIRST_5 = 144, RLW = 145, NETIR = 149, LAST_5 = 150;

// Lower: nearer to the cause.
enum class Rank : std::uint8_t { Link, Unit, Peer, Nonfatal, Consequence };

Rank rank_of(const NvlinkError &error) {
    if (error.caused_by != 0)
        return Rank::Consequence;
    if (error.is_nonfatal)
        return Rank::Nonfatal;
    if (error.xid == NETIR || error.xid == NVLINK)
        return Rank::Link;
    return error.xid == RLW ? Rank::Peer : Rank::Unit;
}

using Gpu = std::pair<std::uint32_t, std::uint64_t>;

Gpu gpu_of(const NvlinkError &error) {
    return {error.host, error.bus_id};
}

class FailureFinder {
public:
    FailureFinder(std::span<const NvlinkError> errors, std::uint64_t apart_ns)
        : errors_(errors), apart_ns_(apart_ns) {}

    std::vector<NvlinkFailure> run() {
        std::vector<std::size_t> order;
        for (std::size_t i = 0; i < errors_.size(); ++i)
            if (is_nvlink_xid(errors_[i].xid, errors_[i].caused_by))
                order.push_back(i);
        std::ranges::sort(order, [this](std::size_t a, std::size_t b) {
            const auto key = [this](std::size_t i) {
                return std::tuple(errors_[i].latest_ns, errors_[i].host, errors_[i].sequence, i);
            };
            return key(a) < key(b);
        });
        std::vector<NvlinkFailure> failures;
        for (std::size_t begin = 0; begin < order.size();) {
            std::size_t end = begin + 1;
            while (end < order.size() &&
                   errors_[order[end]].latest_ns - errors_[order[end - 1]].latest_ns < apart_ns_)
                ++end;
            add(std::span(order).subspan(begin, end - begin), failures);
            begin = end;
        }
        return failures;
    }

private:
    void add(std::span<const std::size_t> members, std::vector<NvlinkFailure> &failures) const {
        const auto rank = [this](std::size_t i) { return rank_of(errors_[i]); };
        const Rank best = rank(*std::ranges::min_element(members, {}, rank));
        if (best == Rank::Nonfatal)
            return;
        NvlinkFailure failure;
        failure.errors.assign(members.begin(), members.end());
        std::set<Gpu> gpus;
        std::map<Gpu, std::size_t> earliest; // of the best rank
        for (const std::size_t i : members) {
            gpus.insert(gpu_of(errors_[i]));
            if (rank(i) == best)
                earliest.try_emplace(gpu_of(errors_[i]), i);
        }
        failure.gpus = gpus.size();
        failure.first =
            *std::ranges::find_if(members, [&](std::size_t i) { return rank(i) == best; });
        for (const auto &[gpu, i] : earliest)
            if (gpu != gpu_of(errors_[failure.first]) && !is_before(failure.first, i))
                failure.others.push_back(i);
        // Peers and followers do not say where it began.
        if (best == Rank::Peer || best == Rank::Consequence)
            failure.cause = NvlinkCause::NotCaptured;
        else if (!failure.others.empty())
            failure.cause = NvlinkCause::Several;
        failures.push_back(std::move(failure));
    }

    // On one host the kernel log has the order; between hosts the times decide, if they can.
    [[nodiscard]] bool is_before(std::size_t a, std::size_t b) const {
        if (errors_[a].host == errors_[b].host)
            return errors_[a].sequence < errors_[b].sequence;
        return errors_[a].latest_ns < errors_[b].earliest_ns;
    }

    std::span<const NvlinkError> errors_;
    std::uint64_t apart_ns_;
};

} // namespace

bool is_nvlink_xid(std::uint32_t xid, std::uint32_t caused_by) {
    const auto is_own = [](std::uint32_t number) {
        return number == NVLINK || (number >= FIRST_5 && number <= LAST_5);
    };
    return is_own(xid) || is_own(caused_by);
}

std::vector<NvlinkFailure> find_nvlink_failures(std::span<const NvlinkError> errors,
                                                std::uint64_t apart_ns) {
    return FailureFinder(errors, apart_ns).run();
}

} // namespace collwire::gpu
