// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/plugin_links.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/qp_records.h"

namespace collwire::nccl {

using model::Model;
using model::Qp;

namespace {

using Process = std::pair<Index, std::uint32_t>; // session, tgid

bool is_wanting(const Link &link) {
    return link.transport == CW_NCCL_TRANSPORT_PLUGIN && link.qps.empty() && !link.is_mirrored;
}

Process process_of(const Link &link) {
    return {link.session, link.tgid};
}

// Queue pairs that already have a flow.
std::set<Index> taken_of(const NcclFacts &nccl) {
    std::set<Index> taken;
    for (const Link &link : nccl.links)
        taken.insert(link.qps.begin(), link.qps.end());
    return taken;
}

// Plugin flows without queue pairs, by the common properties of a connection's two ends.
class OtherEnds {
public:
    explicit OtherEnds(const NcclFacts &nccl) : nccl_(nccl) {
        for (Index index = 0; index < nccl.links.size(); ++index)
            if (const Link &link = nccl.links[index]; is_wanting(link)) {
                const auto [found, is_new] = ends_.try_emplace(
                    Key{process_of(link), place_of(link, link.rank, link.peer, link.is_send())},
                    index);
                if (!is_new)
                    found->second = NONE; // ambiguous
            }
    }

    // The other end of `link`, given that `qp` is the other end of its queue pair. NONE: ambiguous.
    [[nodiscard]] Index find(const Link &link, const Qp &qp) const {
        const auto found = ends_.find(
            Key{{qp.session, qp.tgid}, place_of(link, link.peer, link.rank, !link.is_send())});
        return found == ends_.end() ? NONE : found->second;
    }

private:
    // Hash of its first communicator, rank, peer, whether it sends, channels, which of the two
    // between these ranks.
    using Place = std::tuple<std::uint64_t, std::int32_t, std::int32_t, bool,
                             std::vector<std::int32_t>, std::int32_t>;
    using Key = std::pair<Process, Place>;

    [[nodiscard]] Place place_of(const Link &link, std::int32_t rank, std::int32_t peer,
                                 bool is_send) const {
        return {link.instances.empty() ? 0
                                       : nccl_.instances[link.instances.front()].record.comm_hash,
                rank,
                peer,
                is_send,
                link.channels,
                nccl_.gathered.connections[link.connections.front()].head.conn_index};
    }

    const NcclFacts &nccl_;
    std::map<Key, Index> ends_;
};

class Giver {
public:
    explicit Giver(Model &model) : model_(model), nccl_(model.nccl) {
        for (const Instance &instance : nccl_.instances) {
            std::vector<Process> &of_rank = processes_[rank_of(instance, instance.record.rank)];
            const Process process{instance.session, instance.record.tgid};
            if (std::ranges::find(of_rank, process) == of_rank.end() && of_rank.size() < 2)
                of_rank.push_back(process);
        }
    }

    void run() {
        find_links();
        if (wanting_.empty())
            return;
        add_operations();
        find_queue_pairs();
        for (auto &[ends, links] : wanting_)
            give(links, queue_pairs_[ends]);
    }

private:
    using Ends = std::pair<Process, Process>; // sender, receiver

    void find_links() {
        for (Index index = 0; index < nccl_.links.size(); ++index) {
            const Link &link = nccl_.links[index];
            if (!is_wanting(link))
                continue;
            if (!link.is_send())
                continue;
            if (const auto peer = peer_of(link))
                wanting_[{process_of(link), *peer}].push_back(index);
        }
    }

    // A rank of a communicator, from the record of one of its ranks.
    using Rank = std::tuple<std::uint64_t, std::int32_t, std::int32_t>; // hash, ranks, rank

    static Rank rank_of(const Instance &instance, std::int32_t rank) {
        return {instance.record.comm_hash, instance.record.n_ranks, rank};
    }

    // The process of the rank at the other end. Absent: not recorded, or ambiguous. A communicator
    // with shared connections numbers its ranks differently.
    [[nodiscard]] std::optional<Process> peer_of(const Link &link) const {
        std::optional<Process> only;
        for (const Index index : link.instances) {
            const Instance &own = nccl_.instances[index];
            if (own.is_shared())
                continue;
            const auto found = processes_.find(rank_of(own, link.peer));
            if (found == processes_.end())
                continue;
            if (found->second.size() != 1 || (only && *only != found->second.front()))
                return std::nullopt;
            only = found->second.front();
        }
        return only;
    }

    // Bytes of the operations on each flow; absent if unknown for one of them.
    void add_operations() {
        bytes_.resize(nccl_.links.size(), 0);
        for (const Instance &instance : nccl_.instances) {
            const auto &launches = nccl_.gathered.streams[instance.stream].launches;
            for (std::uint32_t i = 0; i < instance.n_launches; ++i) {
                const Index shape = launches[instance.first_launch + i].shape_index;
                if (shape == NONE)
                    continue;
                for (const ShapeOp &op : nccl_.shapes[shape].ops) {
                    if (op.link == NONE)
                        continue;
                    model::Known &bytes = bytes_[op.link];
                    if (bytes && op.is_known && !op.is_bound)
                        *bytes = model::add_saturating(*bytes, op.payload_bytes);
                    else
                        bytes.reset();
                }
            }
        }
    }

    void find_queue_pairs() {
        const std::set<Index> taken = taken_of(nccl_);
        for (Index index = 0; index < model_.qps.size(); ++index) {
            const Qp &qp = model_.qps[index];
            if (!qp.is_connected_type() || qp.peer == NONE || qp.peer == index ||
                taken.contains(index) || taken.contains(qp.peer))
                continue;
            const Qp &peer = model_.qps[qp.peer];
            const auto found = wanting_.find({{qp.session, qp.tgid}, {peer.session, peer.tgid}});
            if (found != wanting_.end())
                queue_pairs_[found->first].push_back(index);
        }
    }

    void give(const std::vector<Index> &links, const std::vector<Index> &qps) {
        std::map<std::uint64_t, std::vector<Index>> links_by_bytes, qps_by_bytes;
        for (const Index link : links)
            if (bytes_[link].value_or(0) != 0)
                links_by_bytes[*bytes_[link]].push_back(link);
        for (const Index qp : qps)
            qps_by_bytes[model_.qps[qp].bytes.tx_payload_bytes.value_or(0)].push_back(qp);
        for (auto &[bytes, wanting] : links_by_bytes) {
            std::vector<Index> &having = qps_by_bytes[bytes];
            // The creation order of pre-existing ones is not known.
            if (having.size() != wanting.size() ||
                (having.size() > 1 && std::ranges::any_of(having, [&](Index qp) {
                     return model_.qps[qp].has(CW_QP_PREEXISTING);
                 })))
                continue;
            std::ranges::sort(wanting, {}, [&](Index link) { return order_of(link); });
            std::ranges::sort(having, {}, [&](Index qp) {
                return std::pair{model_.qps[qp].key.generation_ns, qp};
            });
            for (std::size_t i = 0; i < wanting.size(); ++i) {
                const Index other_end = model_.qps[having[i]].peer;
                give(wanting[i], having[i]);
                if (const Index link = others_.find(nccl_.links[wanting[i]], model_.qps[other_end]);
                    link != NONE && nccl_.links[link].qps.empty())
                    give(link, other_end);
            }
        }
    }

    void give(Index index, Index qp) {
        Link &link = nccl_.links[index];
        link.qps.push_back(qp);
        link.is_by_bytes = true;
        nccl_.qps[qp] = {
            link.is_send() ? Role::Data : Role::ClearToSend, Rung::Inferred, index, true, {}, {}};
    }

    [[nodiscard]] std::tuple<std::uint64_t, std::int32_t, std::int32_t, Index>
    order_of(Index index) const {
        const Link &link = nccl_.links[index];
        const cw_nccl_connection &first = nccl_.gathered.connections[link.connections.front()].head;
        return {link.instances.empty() ? 0 : nccl_.instances[link.instances.front()].begin_ns,
                first.channel, first.conn_index, index};
    }

    Model &model_;
    NcclFacts &nccl_;
    std::map<Rank, std::vector<Process>> processes_; // no more than two of each
    std::map<Ends, std::vector<Index>> wanting_, queue_pairs_;
    OtherEnds others_{nccl_};
    std::vector<model::Known> bytes_; // by link
};

} // namespace

void give_plugins_other_ends(Model &model) {
    NcclFacts &nccl = model.nccl;
    const OtherEnds others(nccl);
    std::set<Index> taken = taken_of(nccl);
    for (Index index = 0; index < nccl.links.size(); ++index) {
        if (nccl.links[index].transport != CW_NCCL_TRANSPORT_PLUGIN)
            continue;
        const std::vector<Index> qps = nccl.links[index].qps;
        for (const Index qp : qps) {
            const Index peer = model.qps[qp].peer;
            const Index other =
                peer == NONE ? NONE : others.find(nccl.links[index], model.qps[peer]);
            if (other == NONE || other == index || !taken.insert(peer).second)
                continue;
            nccl.links[other].qps.push_back(peer);
        }
    }
}

void give_plugins_queue_pairs(Model &model) {
    Giver(model).run();
}

} // namespace collwire::nccl
