// SPDX-License-Identifier: Apache-2.0
#include "correlate/roles/guess_roles.h"

#include <algorithm>
#include <map>
#include <utility>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/resolve.h"
#include "correlate/roles/group_jobs.h"
#include "correlate/roles/label.h"
#include "correlate/roles/rank_work.h"

namespace collwire::roles {
namespace {

using model::Index;
using model::Model;
using model::NONE;
using nccl::Communicator;
using nccl::Instance;
using nccl::Operation;

Device device_of(const Instance &instance) {
    return {.host = instance.host,
            .bus_id = instance.record.bus_id,
            .tgid = instance.record.tgid,
            .cuda_dev = instance.record.cuda_dev};
}

class FactsFinder {
public:
    explicit FactsFinder(const Model &model)
        : nccl_(model.nccl), facts_(nccl_.communicators.size()) {}

    std::vector<RoleGuess> run() {
        members();
        collectives();
        transfers();
        std::vector<RoleGuess> guesses = guess_groups(std::move(facts_), devices_);
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
            const CollectiveKind kind =
                kind_of(operation.func, nccl::size_bytes(operation).value_or(0), group.n_ranks);
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
                if (nccl::is_p2p(calls[i].func)) {
                    if (joins.launch(i) == NONE)
                        return std::nullopt;
                    counter.add(calls[i].func == CW_NCCL_SEND, joins.launch(i));
                }
            all = all.value_or(true) && counter.takes_turns();
        }
        return all;
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
    return mark_of(guessed_role_name(guess.role));
}

std::vector<RoleGuess> guess_roles(const Model &model) {
    return FactsFinder(model).run();
}

} // namespace collwire::roles
