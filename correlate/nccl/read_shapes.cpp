// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/message_rules.h"
#include "correlate/nccl/neighbours.h"
#include "correlate/nccl/older_plan.h"
#include "correlate/nccl/op_bytes.h"
#include "correlate/nccl/owner_ranks.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::Model;

namespace {

// For one address; and for processes of a host that may run another one's operations.
constexpr std::size_t MAX_LOOKED_AT = 64;
constexpr std::ptrdiff_t MAX_CONNECTIONS = 64;
// The recorder searches another process's connections after it received the launch.
constexpr std::uint64_t READ_LATE_NS = 5'000'000'000;
// Broadcasts of one launch: NCCL puts in one of each rank, and has room for no more.
constexpr std::size_t MAX_GROUPED = 4096;
// Broadcasts times the operations that they share: each pair may become an entry.
constexpr std::size_t MAX_DIVIDED = 10'000'000;

class ShapeReader {
public:
    explicit ShapeReader(Model &model)
        : nccl_(model.nccl), packets_(model), owner_ranks_(nccl_.instances) {}

    void run() {
        connection_link_.assign(nccl_.gathered.connections.size(), NONE);
        for (Index index = 0; index < nccl_.links.size(); ++index)
            for (const Index connection : nccl_.links[index].connections)
                connection_link_[connection] = index;
        for (auto &[address, connections] : nccl_.gathered.connections_at)
            std::stable_sort(connections.begin(), connections.end(), [&](Index a, Index b) {
                return nccl_.gathered.connections[a].head.header.time_ns <
                       nccl_.gathered.connections[b].head.header.time_ns;
            });
        for (const Instance &instance : nccl_.instances) {
            std::vector<std::uint32_t> &tgids = processes_[instance.session];
            if (tgids.empty() || tgids.back() != instance.record.tgid)
                tgids.push_back(instance.record.tgid);
        }
        for (auto &[session, tgids] : processes_) {
            std::sort(tgids.begin(), tgids.end());
            tgids.erase(std::unique(tgids.begin(), tgids.end()), tgids.end());
        }
        for (Index index = 0; index < nccl_.instances.size(); ++index) {
            learn_first_channels(index);
            read_launches(index);
        }
        // All shapes are resolved now.
        nccl_.gathered.shapes = {};
        nccl_.gathered.shape_of_hash = {};
    }

private:
    void read_launches(Index instance_index) {
        const Instance &instance = nccl_.instances[instance_index];
        CommStream &stream = nccl_.gathered.streams[instance.stream];
        for (std::uint32_t i = 0; i < instance.n_launches; ++i) {
            Launch launch = stream.launches[instance.first_launch + i];
            if ((launch.flags & CW_NCCL_LAUNCH_TRUNCATED) != 0)
                ++nccl_.ops_truncated;
            if (launch.shape == 0) {
                nccl_.launches_unreadable += launch.n_ops != 0 ? 1 : 0;
                continue;
            }
            const auto found = nccl_.gathered.shape_of_hash.find(
                {launch.shape, instance.session, instance.record.tgid});
            if (found == nccl_.gathered.shape_of_hash.end()) {
                ++nccl_.launches_unreadable;
                continue;
            }
            const auto [known, is_new] =
                shapes_.try_emplace(found->second, static_cast<Index>(nccl_.shapes.size()));
            if (is_new)
                nccl_.shapes.push_back(read(instance_index, found->second, stream, launch));
            launch.shape_index = known->second;
            stream.launches.set(instance.first_launch + i, launch);
        }
    }

    Shape read(Index instance_index, Index gathered_index, const CommStream &stream,
               const Launch &launch) {
        GatheredShape &from = nccl_.gathered.shapes[gathered_index];
        Shape shape;
        shape.tasks = std::move(from.tasks);
        shape.is_complete =
            from.ops.size() == from.n_ops && (from.n_ops != 0 || launch.n_ops == 0) &&
            std::find(from.has_op.begin(), from.has_op.end(), false) == from.has_op.end();
        std::vector<OpFacts> facts(from.ops.size());
        for (std::size_t i = 0; i < from.ops.size(); ++i) {
            ShapeOp op;
            op.task = from.ops[i].task;
            op.channel = from.ops[i].channel;
            op.peer = from.ops[i].peer;
            op.is_grouped_broadcast = from.ops[i].func == CW_NCCL_ALL_GATHER_V;
            if (from.has_op[i])
                gather_facts(instance_index, from.ops[i], shape, op, facts[i]);
            shape.ops.push_back(op);
            if (from.has_op[i])
                note(shape, from.ops[i]);
            if (from.has_op[i] && nccl_.instances[instance_index].record.local_ranks > 1)
                note_share(shape, from.ops[i]);
        }
        if (shape.tasks.empty())
            make_up_tasks(shape, facts);
        else
            find_parts(instance_index, shape, facts, stream, launch);
        for (std::size_t i = 0; i < shape.ops.size(); ++i)
            derive(shape.ops[i], facts[i]);
        if (!shape.tasks.empty())
            divide_among_broadcasts(instance_index, shape, facts);
        if (shape.is_older)
            shape.older_facts = std::move(facts);
        from = {};
        return shape;
    }

    static void note(Shape &shape, const cw_nccl_op &op) {
        // Sends and receives may be launched with grouped broadcasts.
        if (shape.func == CW_NCCL_FUNC_UNKNOWN || op.func == CW_NCCL_ALL_GATHER_V)
            shape.func = op.func;
        if (shape.protocol == CW_NCCL_PROTOCOL_UNKNOWN)
            shape.protocol = op.protocol;
        shape.is_p2p = shape.is_p2p || op.pattern == CW_NCCL_PATTERN_SEND ||
                       op.pattern == CW_NCCL_PATTERN_RECV;
        if (shape.algorithm == CW_NCCL_ALGORITHM_UNKNOWN)
            shape.algorithm = op.algorithm != CW_NCCL_ALGORITHM_UNKNOWN &&
                                      op.func != CW_NCCL_ALL_GATHER_V // which does not set it
                                  ? op.algorithm
                                  : algorithm_of_pattern(op.pattern);
    }

    static void note_share(Shape &shape, const cw_nccl_op &op) {
        const bool is_transfer =
            op.pattern == CW_NCCL_PATTERN_SEND || op.pattern == CW_NCCL_PATTERN_RECV;
        if (!is_transfer && op.task < shape.tasks.size() && op.channel_bytes != 0)
            shape.known_shares.push_back({op.task, op.channel, op.channel_bytes});
    }

    void gather_facts(Index instance_index, const cw_nccl_op &from, const Shape &shape, ShapeOp &op,
                      OpFacts &facts) {
        // The marks of a kernel that NCCL's profiler waits for: no bytes, and no connection of
        // ours.
        if (from.pattern == CW_NCCL_PATTERN_PROFILER) {
            op.is_local = true;
            return;
        }
        const Instance &instance = nccl_.instances[instance_index];
        const Index connection = (from.flags & CW_NCCL_OP_OTHER_PROXY) != 0
                                     ? other_connection(instance, from)
                                     : own_connection(instance, from.connection);
        if (connection == NONE)
            return;
        op.is_local =
            nccl_.gathered.connections[connection].head.transport == CW_NCCL_TRANSPORT_LOCAL;
        op.connection = connection;
        op.nsteps = from.nsteps;
        op.chunk_steps = from.chunk_steps;
        op.link = connection_link_[connection];
        if (op.link == NONE)
            return;
        Link &link = nccl_.links[op.link];
        if (std::find(link.instances.begin(), link.instances.end(), instance_index) ==
                link.instances.end() &&
            link.instances.size() < MAX_LOOKED_AT)
            link.instances.push_back(instance_index);
        link.rung = std::min(link.rung, instance.connections_rung);
        const cw_nccl_connection &head = nccl_.gathered.connections[connection].head;
        if (op.peer < 0)
            op.peer = instance.is_shared() ? peer_of_shared(instance, from, head) : head.peer;
        facts.op = from;
        if (from.task < shape.tasks.size())
            facts.task = shape.tasks[from.task];
        facts.n_ranks = instance.record.n_ranks;
        facts.rank = instance.record.rank;
        facts.is_send = (head.flags & CW_NCCL_CONNECTION_SEND) != 0;
        facts.peer = op.peer;
        facts.version = instance.version;
        if (from.pattern == CW_NCCL_PATTERN_NVLS_TREE)
            if (const cw_nccl_nvls *nvls =
                    nvls_of(nccl_.gathered.streams[instance.stream], instance))
                facts.head_rank = nvls->head_rank;
    }

    // The process may have exited before its rings were read, and a rank can have several
    // neighbours in a tree: then the connection's peer says it.
    std::int32_t peer_of_shared(const Instance &instance, const cw_nccl_op &op,
                                const cw_nccl_connection &head) const {
        const CommStream &stream = nccl_.gathered.streams[instance.stream];
        const std::int32_t neighbour =
            neighbour_of(channel_of(stream, instance, op.channel), nvls_of(stream, instance), op,
                         (head.flags & CW_NCCL_CONNECTION_SEND) != 0);
        return neighbour >= 0 ? neighbour : owner_ranks_.rank_of(instance, head.peer);
    }

    // The newest matching one at that address.
    Index own_connection(const Instance &instance, std::uint64_t address) const {
        const auto found =
            nccl_.gathered.connections_at.find({address, instance.session, instance.record.tgid});
        if (found == nccl_.gathered.connections_at.end())
            return NONE;
        // Sorted by time.
        const std::vector<Index> &all = found->second;
        const std::uint64_t end_ns = instance.end_ns == 0 ? UINT64_MAX : instance.end_ns;
        const auto after = std::upper_bound(
            all.begin(), all.end(), end_ns, [&](std::uint64_t time_ns, Index index) {
                return time_ns < nccl_.gathered.connections[index].head.header.time_ns;
            });
        Index best = NONE;
        for (auto at = after; at != all.begin() && after - at < MAX_CONNECTIONS;) {
            const Index index = *--at;
            const cw_nccl_connection &head = nccl_.gathered.connections[index].head;
            const bool is_own = head.comm == instance.record.comm;
            if (head.header.time_ns >= instance.begin_ns) {
                if (is_own)
                    return index;
                best = best == NONE ? index : best;
                continue;
            }
            // A record of another communicator at this address is another connection's.
            if (!is_own && best == NONE)
                best = index;
            break;
        }
        return best;
    }

    // In another rank's proxy of its process: the connection at this address for this rank. NCCL
    // hands only sends to other ranks' proxies (PXN).
    Index other_connection(const Instance &instance, const cw_nccl_op &op) const {
        const std::optional<std::int32_t> rank = owner_ranks_.own(instance);
        const std::uint64_t end_ns = instance.end_ns == 0
                                         ? UINT64_MAX
                                         : model::add_saturating(instance.end_ns, READ_LATE_NS);
        Index best = NONE;
        bool best_is_of_its_life = false, is_ambiguous = false;
        const std::vector<std::uint32_t> &tgids = processes_.at(instance.session);
        for (std::size_t i = 0; i < std::min(tgids.size(), MAX_LOOKED_AT); ++i) {
            const auto found =
                nccl_.gathered.connections_at.find({op.connection, instance.session, tgids[i]});
            if (found == nccl_.gathered.connections_at.end())
                continue;
            // Sorted by time: the first one in its lifetime, else the last one.
            const std::vector<Index> &all = found->second;
            for (std::size_t n = all.size() - std::min(all.size(), MAX_LOOKED_AT); n < all.size();
                 ++n) {
                const cw_nccl_connection &head = nccl_.gathered.connections[all[n]].head;
                if ((head.flags & CW_NCCL_CONNECTION_SEND) == 0 ||
                    (!instance.is_shared() && op.peer >= 0 && head.peer != op.peer) ||
                    (rank && head.rank != *rank))
                    continue;
                const bool is_of_its_life =
                    head.header.time_ns >= instance.begin_ns && head.header.time_ns <= end_ns;
                const bool is_same_process =
                    best != NONE && nccl_.gathered.connections[best].head.tgid == head.tgid;
                if (best_is_of_its_life && (!is_of_its_life || is_same_process))
                    continue;
                is_ambiguous = best != NONE && best_is_of_its_life == is_of_its_life &&
                               (is_ambiguous || !is_same_process);
                best = all[n];
                best_is_of_its_life = is_of_its_life;
            }
        }
        return is_ambiguous ? NONE : best;
    }

    // Sends and receives are spread over channels: assigning the parts needs all of them.
    void find_parts(Index instance_index, const Shape &shape, std::vector<OpFacts> &facts,
                    const CommStream &stream, const Launch &launch) const {
        const std::uint32_t p2p_channels = nccl_.instances[instance_index].record.p2p_channels;
        std::map<std::pair<std::uint32_t, bool>, std::vector<std::size_t>> ops_of_task;
        for (std::size_t i = 0; i < shape.ops.size(); ++i) {
            const std::uint32_t task = shape.ops[i].task;
            if (shape.ops[i].link == NONE || task >= launch.n_tasks)
                continue;
            const std::uint8_t pattern = facts[i].op.pattern;
            if (pattern == CW_NCCL_PATTERN_SEND || pattern == CW_NCCL_PATTERN_RECV)
                ops_of_task[{stream.tasks[launch.first_task + task].task, facts[i].is_send}]
                    .push_back(i);
        }
        std::vector<OpFacts> together;
        for (const auto &[task, ops] : ops_of_task) {
            together.clear();
            for (const std::size_t i : ops)
                together.push_back(facts[i]);
            find_part_bytes(together, std::has_single_bit(p2p_channels) ? p2p_channels : 0,
                            first_channel(instance_index, together.front()));
            for (std::size_t i = 0; i < ops.size(); ++i)
                facts[ops[i]].part_bytes = together[i].part_bytes;
        }
    }

    using PairKey = std::tuple<Index, bool, std::int32_t>; // instance, sends, peer

    // An undivided send or receive uses the channel at which the parts of the others start.
    void learn_first_channels(Index instance_index) {
        const Instance &instance = nccl_.instances[instance_index];
        const CommStream &stream = nccl_.gathered.streams[instance.stream];
        std::unordered_set<Index> seen;
        std::map<std::pair<std::uint32_t, bool>, std::pair<std::size_t, const cw_nccl_op *>> ops;
        for (std::uint32_t i = 0; i < instance.n_launches; ++i) {
            const Launch &launch = stream.launches[instance.first_launch + i];
            const auto found = nccl_.gathered.shape_of_hash.find(
                {launch.shape, instance.session, instance.record.tgid});
            if (found == nccl_.gathered.shape_of_hash.end() || !seen.insert(found->second).second)
                continue;
            const GatheredShape &shape = nccl_.gathered.shapes[found->second];
            if (std::find(shape.has_op.begin(), shape.has_op.end(), false) != shape.has_op.end())
                continue;
            ops.clear();
            for (const cw_nccl_op &op : shape.ops) {
                const bool is_send = op.pattern == CW_NCCL_PATTERN_SEND;
                if ((!is_send && op.pattern != CW_NCCL_PATTERN_RECV) || op.task >= launch.n_tasks)
                    continue;
                auto &[n, any] = ops[{stream.tasks[launch.first_task + op.task].task, is_send}];
                ++n;
                any = &op;
            }
            for (const auto &[task, of_task] : ops)
                if (const auto &[n, op] = of_task; n == 1)
                    note_first_channel({instance_index, task.second, op->peer}, op->channel);
        }
    }

    void note_first_channel(const PairKey &pair, std::uint8_t channel) {
        const auto [known, is_new] = first_channels_.try_emplace(pair, channel);
        if (!is_new && known->second != channel)
            known->second = std::nullopt;
    }

    [[nodiscard]] std::optional<std::uint32_t> first_channel(Index instance_index,
                                                             const OpFacts &facts) const {
        const auto found = first_channels_.find({instance_index, facts.is_send, facts.op.peer});
        return found == first_channels_.end() ? std::nullopt : found->second;
    }

    // Broadcasts of a group share an operation: each gets its part of it.
    void divide_among_broadcasts(Index instance_index, Shape &shape,
                                 const std::vector<OpFacts> &facts) {
        std::vector<std::uint32_t> tasks;
        for (std::uint32_t i = 0; i < shape.tasks.size(); ++i)
            if (shape.tasks[i].header.length_bytes != 0 && shape.tasks[i].func == CW_NCCL_BROADCAST)
                tasks.push_back(i);
        const auto is_shared = [](const ShapeOp &op) { return op.task == CW_NCCL_NO_TASK; };
        const auto n_shared =
            static_cast<std::size_t>(std::count_if(shape.ops.begin(), shape.ops.end(), is_shared));
        if (tasks.empty() || n_shared == 0 || tasks.size() > MAX_GROUPED ||
            n_shared > divisions_left_ / tasks.size())
            return;
        divisions_left_ -= n_shared * tasks.size();
        std::map<std::uint8_t, std::optional<std::vector<GroupedBroadcast>>> of_channels;
        std::vector<ShapeOp> divided;
        for (std::size_t i = 0; i < shape.ops.size(); ++i) {
            if (!is_shared(shape.ops[i])) {
                divided.push_back(shape.ops[i]);
                continue;
            }
            std::optional<std::vector<OpBytes>> parts;
            if (shape.ops[i].link != NONE) {
                const auto [known, is_new] = of_channels.try_emplace(shape.ops[i].channel);
                if (is_new)
                    known->second =
                        broadcasts_of(instance_index, shape, tasks, shape.ops[i].channel);
                if (known->second)
                    parts = derive_broadcast_bytes(facts[i], *known->second,
                                                   shape.tasks[tasks.front()].n_channels);
            }
            const std::size_t first = divided.size();
            for (std::size_t k = 0; k < tasks.size(); ++k) {
                ShapeOp op = shape.ops[i];
                op.task = tasks[k];
                if (parts) {
                    op.is_known = true;
                    op.is_bound = false;
                    op.payload_bytes = (*parts)[k].payload_bytes;
                    op.data_bytes = (*parts)[k].data_bytes;
                    op.messages = (*parts)[k].messages;
                } else if (k != 0) {
                    op.messages = 0; // the first one has all of them
                }
                op.packets = NONE;
                op.is_continued = divided.size() > first;
                if (!parts || op.messages != 0)
                    divided.push_back(op);
            }
        }
        shape.ops = std::move(divided);
    }

    // As seen from this rank on a channel.
    std::optional<std::vector<GroupedBroadcast>>
    broadcasts_of(Index instance_index, const Shape &shape, const std::vector<std::uint32_t> &tasks,
                  std::uint8_t channel_number) const {
        const Instance &instance = nccl_.instances[instance_index];
        const CommStream &stream = nccl_.gathered.streams[instance.stream];
        const Channel *ring = channel_of(stream, instance, channel_number);
        const std::int32_t n_ranks = instance.record.n_ranks;
        if (ring == nullptr || ring->order.size() != static_cast<std::size_t>(std::max(n_ranks, 0)))
            return std::nullopt;
        // Order down the ring from this rank on.
        std::unordered_map<std::int32_t, std::int32_t> down;
        for (std::int32_t i = 0; i < n_ranks; ++i)
            down.try_emplace(ring->order[static_cast<std::size_t>(i)], i);
        std::vector<GroupedBroadcast> broadcasts;
        for (const std::uint32_t task : tasks) {
            const auto root = down.find(shape.tasks[task].root);
            if (root == down.end())
                return std::nullopt;
            broadcasts.push_back({.bytes = shape.tasks[task].bytes,
                                  .ring_depth = root->second == 0 ? 0 : n_ranks - root->second});
        }
        return broadcasts;
    }

    static void make_up_tasks(Shape &shape, const std::vector<OpFacts> &facts) {
        shape.is_older = true;
        shape.tasks.emplace_back();
        shape.tasks.front().func = shape.is_p2p ? std::uint8_t{CW_NCCL_FUNC_UNKNOWN} : shape.func;
        std::map<std::pair<bool, std::int32_t>, std::uint32_t> made;
        for (std::size_t i = 0; i < shape.ops.size(); ++i) {
            ShapeOp &op = shape.ops[i];
            const std::uint8_t pattern = facts[i].op.pattern;
            op.task = 0;
            if (pattern != CW_NCCL_PATTERN_SEND && pattern != CW_NCCL_PATTERN_RECV)
                continue;
            const bool is_send = pattern == CW_NCCL_PATTERN_SEND;
            const auto [found, is_new] = made.try_emplace(
                {is_send, op.peer}, static_cast<std::uint32_t>(shape.tasks.size()));
            op.task = found->second;
            if (!is_new)
                continue;
            cw_nccl_shape_task task{};
            task.func = is_send ? CW_NCCL_SEND : CW_NCCL_RECV;
            task.root = op.peer;
            shape.tasks.push_back(task);
        }
    }

    void derive(ShapeOp &op, const OpFacts &facts) {
        if (op.link == NONE)
            return;
        if (const auto bytes = derive_op_bytes(facts)) {
            op.is_known = true;
            op.is_bound = bytes->is_bound;
            op.payload_bytes = bytes->payload_bytes;
            op.data_bytes = bytes->data_bytes;
            op.messages = bytes->messages;
            op.packets = packets_.of(op.link, facts);
            return;
        }
        // No step carries more than this.
        op.is_bound = true;
        op.payload_bytes = model::multiply_saturating(facts.op.nsteps, facts.op.nbytes);
        const std::uint32_t slice_steps = std::max<std::uint32_t>(facts.op.slice_steps, 1);
        op.messages = (facts.op.nsteps + std::uint64_t{slice_steps} - 1) / slice_steps;
        op.has_unknown_messages = facts.op.nsteps % slice_steps != 0;
    }

    NcclFacts &nccl_;
    PacketsOfOperations packets_;
    std::vector<Index> connection_link_;
    std::map<PairKey, std::optional<std::uint32_t>> first_channels_; // absent: several
    std::unordered_map<Index, Index> shapes_;                        // gathered: read
    std::map<Index, std::vector<std::uint32_t>> processes_;          // by session
    OwnerRanks owner_ranks_;
    std::size_t divisions_left_ = MAX_DIVIDED;
};

} // namespace

void read_shapes(Model &model) {
    ShapeReader(model).run();
}

} // namespace collwire::nccl
