// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/late_ranks.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <tuple>

#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {
namespace {

using model::Index;
using model::NONE;

constexpr std::uint64_t FEWEST_LATE = 3, ONE_IN = 10;

struct TimedCall {
    Index operation = NONE;
    Index instance = NONE;
    Index host = NONE;
    std::uint32_t group = clocks::NO_GROUP; // of hosts whose clocks can be compared
    CommonTime time;
};

// How much later the one call was, at least. Absent: clocks do not show it.
std::optional<std::uint64_t> after_ns(const TimedCall &call, const TimedCall &earlier) {
    if (call.host == earlier.host)
        return model::subtract_or_zero(call.time.time_ns, earlier.time.time_ns);
    if (call.group == clocks::NO_GROUP || call.group != earlier.group || !call.time.error_ns() ||
        !earlier.time.error_ns())
        return std::nullopt;
    return model::subtract_or_zero(call.time.earliest_ns, earlier.time.latest_ns);
}

// Calls of collectives of one communicator, by operation.
std::vector<TimedCall> calls_of(const model::Model &model, const Communicator &comm,
                                const CommonClock &clock) {
    const NcclFacts &nccl = model.nccl;
    std::vector<TimedCall> all;
    for (const Index index : comm.instances) {
        const Instance &instance = nccl.instances[index];
        const std::uint32_t group = instance.host < model.clocks.nodes.size()
                                        ? model.clocks.nodes[instance.host].group
                                        : clocks::NO_GROUP;
        const auto &calls = nccl.gathered.streams[instance.stream].calls;
        const auto &joins = nccl.call_joins[instance.stream];
        for (std::uint32_t i = 0; i < instance.n_calls; ++i) {
            const std::uint32_t call = instance.first_call + i;
            const Index operation = joins.operation(call);
            if (operation == NONE || is_p2p(calls[call].func) ||
                nccl.collectives[operation].has(OPERATION_CAPTURED))
                continue;
            all.push_back({operation, index, instance.host, group,
                           clock.time(instance.host, calls[call].time_ns)});
        }
    }
    std::ranges::sort(all, {}, [](const TimedCall &call) {
        return std::tuple(call.operation, call.time.time_ns, call.instance);
    });
    return all;
}

// `calls`: of one operation that all ranks called, by time.
void compare(std::span<const TimedCall> calls, std::vector<Lateness> &all,
             std::vector<std::vector<std::uint64_t>> &late_ns) {
    const TimedCall &median = calls[(calls.size() - 1) / 2];
    for (const TimedCall &call : calls) {
        const std::optional<std::uint64_t> later_ns = after_ns(call, median);
        if (!later_ns)
            continue;
        Lateness &of = all[call.instance];
        ++of.compared;
        if (*later_ns < LATE_NS)
            continue;
        ++of.late;
        late_ns[call.instance].push_back(*later_ns);
        of.sum_late_ns = model::add_saturating(of.sum_late_ns, *later_ns);
    }
    const std::optional<std::uint64_t> last_ns = after_ns(calls.back(), calls[calls.size() - 2]);
    all[calls.back().instance].last += last_ns && *last_ns != 0 ? 1 : 0;
}

} // namespace

void find_lateness(model::Model &model) {
    const NcclFacts &nccl = model.nccl;
    const CommonClock clock(model);
    std::vector<Lateness> &all = model.nccl.lateness;
    all.assign(nccl.instances.size(), {});
    std::vector<std::vector<std::uint64_t>> late_ns(nccl.instances.size());
    for (const Communicator &comm : nccl.communicators) {
        if (comm.n_ranks < 2)
            continue;
        const std::vector<TimedCall> calls = calls_of(model, comm, clock);
        const auto n_ranks = static_cast<std::size_t>(comm.n_ranks);
        for (std::size_t begin = 0, end = 0; begin < calls.size(); begin = end) {
            end = begin;
            while (end < calls.size() && calls[end].operation == calls[begin].operation)
                ++end;
            if (end - begin == n_ranks && calls[begin].time.time_ns != 0)
                compare(std::span(calls).subspan(begin, n_ranks), all, late_ns);
        }
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (late_ns[i].empty())
            continue;
        const auto middle =
            late_ns[i].begin() + static_cast<std::ptrdiff_t>((late_ns[i].size() - 1) / 2);
        std::ranges::nth_element(late_ns[i], middle);
        all[i].median_late_ns = *middle;
    }
}

std::vector<Index> late_ranks(const NcclFacts &nccl) {
    const std::vector<Lateness> &all = nccl.lateness;
    std::vector<Index> late;
    for (Index i = 0; i < all.size(); ++i)
        if (all[i].late >= FEWEST_LATE && all[i].late * ONE_IN >= all[i].compared)
            late.push_back(i);
    std::ranges::stable_sort(late, std::ranges::greater{},
                             [&](Index i) { return all[i].sum_late_ns; });
    return late;
}

} // namespace collwire::nccl
