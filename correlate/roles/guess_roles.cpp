// SPDX-License-Identifier: Apache-2.0
#include "correlate/roles/guess_roles.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/resolve.h"

namespace collwire::roles {
namespace {

using model::Index;
using model::Model;
using model::NONE;
using nccl::Communicator;
using nccl::Instance;
using nccl::Operation;

// A rank's GPU: host, process, PCI address and CUDA's number.
using Device = std::tuple<Index, std::uint64_t, std::uint64_t, std::int32_t>;

Device device_of(const Instance &instance) {
    return {instance.host, instance.record.tgid, instance.record.bus_id, instance.record.cuda_dev};
}

Movement movement_of(std::uint8_t func) {
    switch (func) {
    case CW_NCCL_ALL_REDUCE:
        return Movement::AllReduce;
    case CW_NCCL_REDUCE_SCATTER:
        return Movement::ReduceScatter;
    case CW_NCCL_ALL_GATHER:
        return Movement::AllGather;
    case CW_NCCL_REDUCE:
        return Movement::Reduce;
    case CW_NCCL_ALL_TO_ALL:
        return Movement::AllToAll;
    default:
        return Movement::Other;
    }
}

// Of two ranks: whether one's sends and receives take turns. Transfers of one launch are
// simultaneous.
class TurnCounter {
public:
    void add(bool is_send, std::uint32_t launch) {
        if (launch == NONE) {
            lacks_launches_ = true;
            return;
        }
        if (launch != launch_)
            finish_launch();
        launch_ = launch;
        (is_send ? sends_ : receives_) += 1;
    }

    [[nodiscard]] std::optional<bool> takes_turns() {
        finish_launch();
        if (lacks_launches_)
            return std::nullopt;
        return std::min(up_, down_) >= LEAST_AHEAD ||
               (n_both_ >= LEAST_AHEAD && n_alone_ >= LEAST_AHEAD);
    }

private:
    static constexpr std::int64_t LEAST_AHEAD = 2;

    void finish_launch() {
        if (sends_ + receives_ == 0)
            return;
        (sends_ != 0 && receives_ != 0 ? n_both_ : n_alone_) += 1;
        ahead_ += sends_ - receives_;
        least_ = std::min(least_, ahead_);
        most_ = std::max(most_, ahead_);
        up_ = std::max(up_, ahead_ - least_);
        down_ = std::max(down_, most_ - ahead_);
        sends_ = receives_ = 0;
    }

    bool lacks_launches_ = false;
    std::uint32_t launch_ = NONE;
    std::int64_t sends_ = 0, receives_ = 0;
    std::int64_t ahead_ = 0, least_ = 0, most_ = 0; // sends less receives
    std::int64_t up_ = 0, down_ = 0;                // the longest way up and down
    std::int64_t n_both_ = 0, n_alone_ = 0;
};

class FactsFinder {
public:
    explicit FactsFinder(const Model &model)
        : nccl_(model.nccl), facts_(nccl_.communicators.size()) {}

    std::vector<RoleGuess> run() {
        members();
        collectives();
        transfers();
        std::vector<RoleGuess> guesses(facts_.size());
        for (const std::vector<Index> &comms : jobs())
            guess(comms, guesses);
        for (std::size_t i = 0; i < guesses.size(); ++i)
            if (!nccl_.communicators[i].name.empty())
                guesses[i] = {};
        return guesses;
    }

private:
    void members() {
        std::map<Device, std::size_t> places;
        for (Index i = 0; i < facts_.size(); ++i) {
            const Communicator &comm = nccl_.communicators[i];
            GroupFacts &group = facts_[i];
            group.n_ranks = comm.n_ranks;
            group.n_nodes = comm.n_nodes;
            for (const Index index : comm.instances) {
                const Instance &instance = nccl_.instances[index];
                const auto [found, is_new] = places.emplace(device_of(instance), places.size());
                if (is_new)
                    devices_.push_back(found->first);
                if (group.members.empty() || group.members.back().rank != instance.record.rank)
                    group.members.push_back({instance.record.rank, found->second});
            }
        }
    }

    void collectives() {
        std::vector<std::vector<std::pair<std::uint64_t, CollectiveKind>>> large(facts_.size());
        std::vector<std::int32_t> counted_rank(facts_.size(), -1);
        for (const Operation &operation : nccl_.collectives) {
            // Not combined with those of other ranks: one rank's are enough.
            if (operation.rank >= 0) {
                std::int32_t &rank = counted_rank[operation.comm];
                rank = rank < 0 ? operation.rank : rank;
                if (operation.rank != rank)
                    continue;
            }
            GroupFacts &group = facts_[operation.comm];
            CollectiveKind kind{.movement = movement_of(operation.func),
                                .bytes = nccl::size_bytes(operation).value_or(0)};
            if (kind.movement == Movement::AllGather || kind.movement == Movement::ReduceScatter)
                kind.bytes = model::multiply_saturating(
                    kind.bytes, static_cast<std::uint64_t>(std::max(group.n_ranks, 1)));
            ++group.collectives[kind];
            if (kind.bytes >= LARGE_BYTES)
                large[operation.comm].emplace_back(operation.begin_realtime_ns != 0
                                                       ? operation.begin_realtime_ns
                                                       : operation.called_realtime_ns,
                                                   kind);
        }
        for (Index i = 0; i < facts_.size(); ++i) {
            std::ranges::stable_sort(large[i], {}, [](const auto &one) { return one.first; });
            const std::size_t n = std::min(large[i].size(), MOST_LATEST);
            for (auto at = large[i].end() - static_cast<std::ptrdiff_t>(n); at != large[i].end();
                 ++at)
                facts_[i].latest.push_back(at->second);
        }
    }

    void transfers() {
        for (const Operation &operation : nccl_.p2p) {
            GroupFacts &group = facts_[operation.comm];
            ++group.transfers[{operation.source, operation.destination}];
            ++group.transfer_sizes[nccl::size_bytes(operation).value_or(0)];
        }
        for (Index i = 0; i < facts_.size(); ++i)
            if (facts_[i].n_ranks == 2 && !facts_[i].transfers.empty())
                facts_[i].takes_turns = takes_turns(nccl_.communicators[i]);
    }

    std::optional<bool> takes_turns(const Communicator &comm) const {
        std::optional<bool> all;
        for (const Index index : comm.instances) {
            const Instance &instance = nccl_.instances[index];
            const auto &calls = nccl_.gathered.streams[instance.stream].calls;
            const auto &joins = nccl_.call_joins[instance.stream];
            TurnCounter counter;
            for (std::uint32_t i = instance.first_call; i < instance.first_call + instance.n_calls;
                 ++i)
                if (nccl::is_p2p(calls[i].func))
                    counter.add(calls[i].func == CW_NCCL_SEND, joins[i].launch);
            const std::optional<bool> of = counter.takes_turns();
            if (!of)
                return std::nullopt;
            all = all.value_or(true) && *of;
        }
        return all;
    }

    // Communicators that are connected by common ranks.
    std::vector<std::vector<Index>> jobs() const {
        std::vector<std::size_t> parent(devices_.size());
        std::iota(parent.begin(), parent.end(), std::size_t{0});
        const auto root_of = [&](std::size_t place) {
            while (parent[place] != place)
                place = parent[place] = parent[parent[place]];
            return place;
        };
        for (const GroupFacts &group : facts_)
            for (const Member &member : group.members)
                parent[root_of(member.place)] = root_of(group.members.front().place);
        std::map<std::size_t, std::vector<Index>> of_root;
        for (Index i = 0; i < facts_.size(); ++i)
            if (!facts_[i].members.empty())
                of_root[root_of(facts_[i].members.front().place)].push_back(i);
        std::vector<std::vector<Index>> all;
        all.reserve(of_root.size());
        for (auto &[root, comms] : of_root)
            all.push_back(std::move(comms));
        return all;
    }

    void guess(const std::vector<Index> &comms, std::vector<RoleGuess> &guesses) {
        JobFacts job;
        std::map<std::size_t, std::size_t> own; // place in all: in the job
        for (const Index comm : comms)
            for (const Member &member : facts_[comm].members)
                own.emplace(member.place, 0);
        // By host and PCI address; processes may call each of their GPUs number 0.
        std::map<std::uint32_t, std::map<Device, std::size_t>> of_node;
        for (const auto &[place, unused] : own) {
            auto [host, tgid, bus_id, cuda_dev] = devices_[place];
            of_node[host].emplace(bus_id != 0 ? Device{host, bus_id, tgid, cuda_dev}
                                              : Device{host, 0, tgid, cuda_dev},
                                  place);
        }
        for (const auto &[node, devices] : of_node) {
            std::uint32_t gpu = 0;
            for (const auto &[device, place] : devices) {
                own[place] = job.places.size();
                job.places.push_back({node, gpu++});
            }
        }
        for (const Index comm : comms) {
            job.groups.push_back(std::move(facts_[comm]));
            for (Member &member : job.groups.back().members)
                member.place = own.at(member.place);
        }
        std::vector<RoleGuess> found = guess_job(job);
        for (std::size_t i = 0; i < comms.size(); ++i)
            guesses[comms[i]] = std::move(found[i]);
    }

    const nccl::NcclFacts &nccl_;
    std::vector<GroupFacts> facts_; // by communicator; places are indices of devices_
    std::vector<Device> devices_;
};

} // namespace

std::string_view name_source(const Communicator &comm, const RoleGuess &guess) {
    return !comm.name.empty() ? "nccl" : guess.role != GuessedRole::None ? "guessed" : "";
}

std::string guess_mark(const RoleGuess &guess) {
    return guess.role == GuessedRole::None ? std::string()
                                           : std::string(guessed_role_name(guess.role)) + '?';
}

std::vector<RoleGuess> guess_roles(const Model &model) {
    return FactsFinder(model).run();
}

} // namespace collwire::roles
