// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/by_lineage.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "collwire/nccl_connection_records.h"
#include "collwire/post_records.h"
#include "collwire/wire_records.h"
#include "correlate/model/counters.h"

namespace collwire::nccl {

using model::Model;
using model::Qp;

namespace {

using Process = std::pair<Index, std::uint32_t>; // session, tgid
// A communicator, as each of its ranks reports it.
using CommKey = std::pair<std::uint64_t, std::int32_t>; // hash, ranks

// Queue pairs of one communicator: those created by one thread, or a single one of unknown thread.
struct Group {
    Process process;
    bool is_of_thread = false;
    std::uint64_t first_ns = 0;
    std::vector<Index> qps;
    std::set<CommKey> candidates;
    std::set<CommKey> first_candidates;
};

// The limit of a recorded flow.
constexpr std::size_t MAX_ENDPOINTS = 512;
// A receiver's largest write to its sender: an ncclIbSendFifo of 64 bytes for each of up to eight
// messages. LL's smallest messages are shorter, so the sending end is ambiguous then.
constexpr std::uint64_t CLEAR_TO_SEND_BYTES = 512;
constexpr int MAX_PARENTS = 16;

class LineageAssumer {
public:
    explicit LineageAssumer(Model &model) : model_(model), nccl_(model.nccl) {}

    void run() {
        if (!find_ranks())
            return;
        find_callers();
        find_groups();
        for (Group &group : groups_) {
            find_candidates(group);
            group.first_candidates = group.candidates;
        }
        narrow_down();
        decide_by_order();
        narrow_down();
        leave_out_rivals();
        for (const Group &group : groups_)
            if (group.candidates.size() == 1)
                add_links(group, *group.candidates.begin());
        note_undecided();
        share_links();
    }

private:
    struct Rank {
        Index instance = NONE;
        bool is_several = false; // several ranks in one process
    };

    // False: no communicator needs this.
    bool find_ranks() {
        for (Index index = 0; index < nccl_.instances.size(); ++index) {
            const Instance &instance = nccl_.instances[index];
            const Process process{instance.session, instance.record.tgid};
            Rank &rank = ranks_[key_of(instance)][process];
            if (rank.instance == NONE)
                rank.instance = index;
            else if (is_another(nccl_.instances[rank.instance], instance))
                rank.is_several = true;
            if (instance.is_calls_only)
                processes_[process].insert(key_of(instance));
        }
        return !processes_.empty();
    }

    // Two communicators with one hash in one process, not the same rank discovered twice.
    static bool is_another(const Instance &a, const Instance &b) {
        const auto ends_before = [](const Instance &one, const Instance &other) {
            return one.end_ns != 0 && one.end_ns <= other.begin_ns;
        };
        return a.record.rank != b.record.rank ||
               (a.record.comm != b.record.comm && !ends_before(a, b) && !ends_before(b, a));
    }

    static CommKey key_of(const Instance &instance) {
        return {instance.record.comm_hash, instance.record.n_ranks};
    }

    // NCCL's proxy has a thread of its own: threads that call the API create the process's other
    // RDMA queue pairs.
    void find_callers() {
        for (const Instance &instance : nccl_.instances)
            if (instance.is_calls_only) {
                const CommStream &stream = nccl_.gathered.streams[instance.stream];
                for (std::uint32_t i = 0; i < instance.n_calls; ++i)
                    callers_.emplace(Process{instance.session, instance.record.tgid},
                                     stream.calls[instance.first_call + i].tid);
            }
    }

    void find_groups() {
        std::set<Index> taken;
        for (const Link &link : nccl_.links)
            taken.insert(link.qps.begin(), link.qps.end());
        std::map<std::pair<Process, std::uint32_t>, std::size_t> of_thread;
        group_of_.assign(model_.qps.size(), NONE);
        for (Index index = 0; index < model_.qps.size(); ++index) {
            const Qp &qp = model_.qps[index];
            const Process process{qp.session, qp.tgid};
            if (!qp.is_connected_type() || qp.peer == NONE || qp.peer == index ||
                !processes_.contains(process) || taken.contains(index) || qp.maker_tid == qp.tgid ||
                callers_.contains({process, qp.maker_tid}))
                continue;
            std::size_t group = groups_.size();
            if (qp.maker_tid != 0)
                group = of_thread.try_emplace({process, qp.maker_tid}, group).first->second;
            if (group == groups_.size())
                groups_.push_back({process, qp.maker_tid != 0, qp.key.generation_ns, {}, {}, {}});
            groups_[group].qps.push_back(index);
            groups_[group].first_ns =
                std::min<std::uint64_t>(groups_[group].first_ns, qp.key.generation_ns);
            group_of_[index] = static_cast<Index>(group);
        }
    }

    // Communicators that have ranks in all processes at the other ends.
    void find_candidates(Group &group) const {
        for (const CommKey &key : processes_.at(group.process)) {
            const auto &ranks = ranks_.at(key);
            const auto is_rank = [&](const Process &process) {
                const auto rank = ranks.find(process);
                return rank != ranks.end() && !rank->second.is_several;
            };
            if (key.first != 0 && is_rank(group.process) &&
                std::ranges::all_of(group.qps, [&](Index qp) {
                    const Qp &peer = model_.qps[model_.qps[qp].peer];
                    return is_rank({peer.session, peer.tgid});
                }))
                group.candidates.insert(key);
        }
    }

    void narrow_down() {
        while (agree_with_other_ends() || take_apart()) {
        }
    }

    // Both ends of a queue pair belong to one communicator. True if that added knowledge.
    bool agree_with_other_ends() {
        bool is_changed = false;
        for (Group &group : groups_)
            for (const Index qp : group.qps) {
                const Index other = group_of_[model_.qps[qp].peer];
                if (other != NONE && std::erase_if(group.candidates, [&](const CommKey &key) {
                                         return !groups_[other].candidates.contains(key);
                                     }) != 0)
                    is_changed = true;
            }
        return is_changed;
    }

    // Each proxy serves one communicator: a thread assigned to it serves no other. True if that
    // added knowledge.
    bool take_apart() {
        std::set<std::pair<Process, CommKey>> taken;
        for (const Group &group : groups_)
            if (group.is_of_thread && group.candidates.size() == 1)
                taken.emplace(group.process, *group.candidates.begin());
        bool is_changed = false;
        for (Group &group : groups_)
            if (group.is_of_thread && group.candidates.size() > 1 &&
                std::erase_if(group.candidates, [&](const CommKey &key) {
                    return taken.contains({group.process, key});
                }) != 0)
                is_changed = true;
        return is_changed;
    }

    // NCCL connects a communicator during its creation or (2.22 and later, with cuMem) in its first
    // call.
    void decide_by_order() {
        for (Group &group : groups_) {
            if (!group.is_of_thread || group.candidates.size() < 2)
                continue;
            std::set<CommKey> in_turn;
            for (const CommKey &key : group.candidates)
                if (is_in_turn(group, key))
                    in_turn.insert(key);
            if (in_turn.size() == 1)
                group.candidates = in_turn;
        }
    }

    // Created before the communicator was ready and after the previous one was; or, if its creation
    // was not recorded, after its first call and before another one's.
    [[nodiscard]] bool is_in_turn(const Group &group, const CommKey &key) const {
        const Instance &own = nccl_.instances[ranks_.at(key).at(group.process).instance];
        const bool is_before = group.first_ns <= own.begin_ns;
        if (is_before && !own.created)
            return false;
        for (const CommKey &other_key : processes_.at(group.process)) {
            const Instance &other =
                nccl_.instances[ranks_.at(other_key).at(group.process).instance];
            if (&other == &own)
                continue;
            const std::uint64_t other_ns = is_before ? other.begin_ns : first_call_ns(other);
            const std::uint64_t own_ns = is_before ? own.begin_ns : first_call_ns(own);
            if (is_before ? other_ns < own_ns && other_ns >= group.first_ns
                          : other_ns > own_ns && other_ns <= group.first_ns)
                return false;
        }
        return is_before || group.first_ns >= first_call_ns(own);
    }

    [[nodiscard]] std::uint64_t first_call_ns(const Instance &instance) const {
        return instance.n_calls == 0
                   ? UINT64_MAX
                   : nccl_.gathered.streams[instance.stream].calls[instance.first_call].time_ns;
    }

    // If two threads may serve one communicator, one of them serves something else.
    void leave_out_rivals() {
        std::map<std::pair<Process, CommKey>, std::size_t> threads;
        for (const Group &group : groups_)
            if (group.is_of_thread && group.candidates.size() == 1)
                ++threads[{group.process, *group.candidates.begin()}];
        for (Group &group : groups_)
            if (group.candidates.size() == 1)
                if (const CommKey key = *group.candidates.begin();
                    threads[{group.process, key}] > 1) {
                    rivals_[group.process].insert(key);
                    group.candidates.clear();
                }
    }

    // Marks communicators that may have queue pairs outside every flow.
    void note_undecided() {
        for (const Group &group : groups_)
            if (group.candidates.size() != 1)
                rivals_[group.process].insert(group.first_candidates.begin(),
                                              group.first_candidates.end());
        for (const auto &[process, keys] : processes_)
            for (const CommKey &key : keys)
                if (key.first == 0 || ranks_.at(key).at(process).is_several)
                    rivals_[process].insert(key);
        for (const auto &[process, keys] : rivals_)
            for (const CommKey &key : keys)
                note_lack(ranks_.at(key).at(process).instance);
    }

    void note_lack(Index instance) { nccl_.instances[instance].lacks_links = true; }

    [[nodiscard]] bool is_undecided(const Process &process, const CommKey &key) const {
        const auto found = rivals_.find(process);
        return found != rivals_.end() && found->second.contains(key);
    }

    // Mean bytes per frame or work request. 0: not known
    static std::uint64_t request_bytes(const Qp &qp) {
        std::uint64_t requests = 0;
        if (qp.bytes.rung == model::BytesRung::Wire && qp.wire)
            requests = qp.wire->last.tx.frames[CW_WIRE_REQUEST];
        else if (qp.posts)
            for (const cw_post_class_counters &of_class : qp.posts->classes)
                requests = model::add_saturating(
                    requests, model::subtract_or_zero(of_class.wrs, of_class.zero_length_wrs));
        return requests == 0 ? 0 : qp.bytes.tx_payload_bytes.value_or(0) / requests;
    }

    void add_links(const Group &group, const CommKey &key) {
        const auto &ranks = ranks_.at(key);
        std::map<Process, Index> &links =
            links_[{group.process, key}]; // by process at the other end
        for (const Index index : group.qps) {
            const Qp &qp = model_.qps[index];
            const Qp &peer = model_.qps[qp.peer];
            const std::uint64_t sent = qp.bytes.tx_payload_bytes.value_or(0);
            const std::uint64_t received = peer.bytes.tx_payload_bytes.value_or(0);
            if (sent < received || sent == 0)
                continue;
            if (sent == received || request_bytes(qp) <= CLEAR_TO_SEND_BYTES) {
                note_lack(ranks.at(group.process).instance);
                note_lack(ranks.at({peer.session, peer.tgid}).instance);
                continue;
            }
            const Process other{peer.session, peer.tgid};
            const auto [found, is_new] =
                links.try_emplace(other, static_cast<Index>(nccl_.links.size()));
            if (is_new)
                nccl_.links.push_back(
                    link_of(ranks.at(group.process).instance, ranks.at(other).instance));
            Link &link = nccl_.links[found->second];
            if (link.qps.size() == MAX_ENDPOINTS) {
                link.is_cut_short = link.is_unsolvable = true;
                continue;
            }
            link.qps.push_back(index);
            link.begin_ns = std::min<std::uint64_t>(link.begin_ns, qp.key.generation_ns);
        }
    }

    // A communicator without queue pairs of its own sends over those of its parent, or an ancestor,
    // to the same processes. Without any of these its path is unknown.
    void share_links() {
        for (const auto &[process, keys] : processes_)
            for (const CommKey &key : keys) {
                const auto &ranks = ranks_.at(key);
                const Index own = ranks.at(process).instance;
                if (nccl_.instances[own].n_calls == 0 || links_.contains({process, key}) ||
                    is_undecided(process, key))
                    continue;
                if (const auto *links = links_of_parents(process, own))
                    for (const auto &[other, link] : *links)
                        if (ranks.contains(other))
                            nccl_.links[link].instances.push_back(own);
            }
    }

    // nullptr: no parent is known, or it has no flows.
    const std::map<Process, Index> *links_of_parents(const Process &process, Index instance) const {
        Index parent = nccl_.instances[instance].parent;
        for (int i = 0; parent != NONE && i < MAX_PARENTS; ++i) {
            const auto of = links_.find({process, key_of(nccl_.instances[parent])});
            if (of != links_.end())
                return &of->second;
            parent = nccl_.instances[parent].parent;
        }
        return nullptr;
    }

    [[nodiscard]] Link link_of(Index own, Index peer) const {
        const Instance &instance = nccl_.instances[own];
        Link link;
        link.session = instance.session;
        link.tgid = instance.record.tgid;
        link.flags = CW_NCCL_CONNECTION_SEND;
        link.instances = {own};
        link.rank = instance.record.rank;
        link.peer = nccl_.instances[peer].record.rank;
        link.rung = Rung::Inferred;
        link.is_assumed = true;
        link.begin_ns = UINT64_MAX;
        return link;
    }

    Model &model_;
    NcclFacts &nccl_;
    std::map<CommKey, std::map<Process, Rank>> ranks_;
    std::map<Process, std::set<CommKey>> processes_; // API-only communicators
    std::vector<Group> groups_;
    std::vector<Index> group_of_;                         // by queue pair
    std::set<std::pair<Process, std::uint32_t>> callers_; // threads
    std::map<Process, std::set<CommKey>> rivals_;         // of undecided groups
    std::map<std::pair<Process, CommKey>, std::map<Process, Index>> links_;
};

} // namespace

void assume_links(Model &model) {
    LineageAssumer(model).run();
}

} // namespace collwire::nccl
