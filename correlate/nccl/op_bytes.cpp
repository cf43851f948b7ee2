// SPDX-License-Identifier: Apache-2.0
// Bytes of collectives. Each formula sums up what NCCL's kernel sends on one connection; its number
// of chunks is always checked against the proxy's own nsteps.
#include "correlate/nccl/op_bytes.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "correlate/nccl/nvls_bytes.h"
#include "correlate/nccl/op_bytes_p2p.h"
#include "correlate/nccl/protocol_bytes.h"

namespace collwire::nccl {
namespace {

// The oldest version whose kernels follow these formulas, given the channel's bytes. Operations
// contain those (channelSize) from 2.24 on.
constexpr std::uint32_t OLDEST_VERSION = 22000;
// From this version on a message of a PAT ReduceScatter has room for ranks that do not exist
// (collectives.h PatRSAlgorithm, 2.25.1 against 2.26.2).
constexpr std::uint32_t PAT_WITH_GAPS_VERSION = 22600;
constexpr std::int32_t MOST_RANKS = 1 << 20;

bool is_sane(const OpFacts &facts) {
    const cw_nccl_op &op = facts.op;
    const auto is_rank = [&](std::int32_t rank) { return rank >= 0 && rank < facts.n_ranks; };
    return facts.version >= OLDEST_VERSION && facts.n_ranks >= 2 && facts.n_ranks <= MOST_RANKS &&
           is_rank(facts.rank) && is_rank(facts.peer) && facts.rank != facts.peer &&
           op.protocol <= CW_NCCL_SIMPLE && op.chunk_bytes > 0 && op.chunk_bytes <= MOST_BYTES &&
           op.nsteps > 0 && op.slice_steps > 0 && op.chunk_steps > 0;
}

// `chunks`: including those without data.
std::optional<OpBytes> checked(const cw_nccl_op &op, const CutBytes &bytes, std::uint64_t chunks) {
    if (op.nsteps % op.chunk_steps != 0 || op.nsteps / op.chunk_steps != chunks ||
        op.nsteps % op.slice_steps != 0)
        return std::nullopt;
    return OpBytes{.payload_bytes = bytes.payload_bytes,
                   .messages = op.nsteps / op.slice_steps,
                   .data_bytes = bytes.data_bytes};
}

CutBytes cut_channel(const cw_nccl_op &op) {
    return cut(protocol_of(op), op.channel_bytes, op.chunk_bytes);
}

// all_gather.h and reduce_scatter.h: each chunk goes around, except back to its start.
std::optional<OpBytes> once_around(const OpFacts &facts) {
    CutBytes bytes = cut_channel(facts.op);
    bytes *= static_cast<std::uint64_t>(facts.n_ranks - 1);
    return checked(facts.op, bytes, bytes.chunks);
}

// broadcast.h, reduce.h and both directions of a tree (all_reduce.h): all of the channel's bytes.
std::optional<OpBytes> whole_channel(const OpFacts &facts) {
    const CutBytes bytes = cut_channel(facts.op);
    return checked(facts.op, bytes, bytes.chunks);
}

// proxy.cc NeedProxy: the end of a pipeline at the root has no operation.
bool is_pipeline_end(const OpFacts &facts) {
    const bool is_from = facts.op.pattern == CW_NCCL_PATTERN_PIPELINE_FROM;
    return facts.op.root == (is_from == facts.is_send ? facts.peer : facts.rank);
}

// all_reduce.h runRing. A loop has a chunk of each rank; it sends all of them twice, except the two
// chunks with which the sum and the copying start and end: those of the sender and of the next
// rank, once. A remainder smaller than a loop is shared evenly.
std::optional<OpBytes> twice_around(const OpFacts &facts) {
    const cw_nccl_op &op = facts.op;
    const cw_nccl_protocol protocol = protocol_of(op);
    const auto n_ranks = static_cast<std::uint64_t>(facts.n_ranks);
    if (op.ring_index < 0 || op.ring_index >= facts.n_ranks || facts.ring_align_bytes == 0)
        return std::nullopt;
    const std::uint64_t index = static_cast<std::uint64_t>(op.ring_index);
    const std::uint64_t sender = facts.is_send ? index : (index + n_ranks - 1) % n_ranks;

    const std::uint64_t loop_bytes = n_ranks * op.chunk_bytes;
    const std::uint64_t loops = op.channel_bytes / loop_bytes;
    const std::uint64_t rest_bytes = op.channel_bytes % loop_bytes;
    const std::uint64_t chunks_per_loop = 2 * (n_ranks - 1);
    CutBytes bytes = cut(protocol, op.chunk_bytes, op.chunk_bytes);
    bytes *= loops * chunks_per_loop;

    if (rest_bytes != 0) {
        const std::uint64_t chunk_bytes =
            align_up(divide_up(rest_bytes, n_ranks), facts.ring_align_bytes);
        CutBytes rest = cut(protocol, rest_bytes, chunk_bytes);
        rest *= 2;
        for (const std::uint64_t place : {sender, (sender + 1) % n_ranks}) {
            const std::uint64_t begin = std::min(place * chunk_bytes, rest_bytes);
            const std::uint64_t once_bytes = std::min(chunk_bytes, rest_bytes - begin);
            rest.payload_bytes -= wire_bytes(protocol, once_bytes);
            rest.data_bytes -= once_bytes;
        }
        bytes += rest;
    }
    return checked(op, bytes, (loops + (rest_bytes != 0 ? 1 : 0)) * chunks_per_loop);
}

// PAT: every rank is the root of a binomial tree over the distances to the other ranks, and trees
// are alike. Two ranks 2^d apart exchange the data of those ranks whose distance has d as its
// lowest bit: the odd multiples of 2^d. An AllGather goes down the ranks, a ReduceScatter up.
//
//  Small blocks share a message: as many as fit, a power of two, at most half of the ranks. Then a
// ReduceScatter places blocks as if the ranks were a power of two; it sends the gaps in the middle
// of a message as well.
std::optional<OpBytes> parallel_trees(const OpFacts &facts, bool is_gather) {
    const cw_nccl_op &op = facts.op;
    const auto n_ranks = static_cast<std::uint64_t>(facts.n_ranks);
    const std::int32_t apart =
        facts.is_send == is_gather ? facts.rank - facts.peer : facts.peer - facts.rank;
    const auto distance = static_cast<std::uint64_t>(apart < 0 ? apart + facts.n_ranks : apart);
    const std::uint64_t chunks = divide_up(op.channel_bytes, op.chunk_bytes);
    if (!std::has_single_bit(distance) || op.protocol != CW_NCCL_SIMPLE || op.registered != 0 ||
        op.chunk_steps != 1 || op.slice_steps != 1 || op.nsteps % chunks != 0)
        return std::nullopt;

    const std::uint64_t blocks = ((n_ranks - 1) / distance + 1) / 2;
    const std::uint64_t messages = op.nsteps / chunks; // of each chunk
    const std::uint64_t fitting =
        std::bit_floor(std::max<std::uint64_t>(op.chunk_bytes / op.channel_bytes, 1));
    const std::uint64_t blocks_per_message =
        std::min({fitting, std::bit_ceil(n_ranks / 2), std::bit_ceil(n_ranks) / (2 * distance)});
    if (messages > blocks || messages * blocks_per_message < blocks)
        return std::nullopt;

    const bool has_gaps = !is_gather && facts.version >= PAT_WITH_GAPS_VERSION;
    return OpBytes{.payload_bytes =
                       (has_gaps ? messages * blocks_per_message : blocks) * op.channel_bytes,
                   .messages = op.nsteps,
                   .data_bytes = blocks * op.channel_bytes};
}

// all_reduce.h NVLS_TREE: each head sends its part up and down the tree between the nodes.
std::optional<OpBytes> chunks_of_head(const OpFacts &facts) {
    const cw_nccl_op &op = facts.op;
    if (op.protocol != CW_NCCL_SIMPLE || op.loop_bytes == 0 || op.loop_bytes > MOST_BYTES ||
        op.loop_bytes % op.chunk_bytes != 0)
        return std::nullopt;
    const std::uint64_t heads = op.loop_bytes / op.chunk_bytes;
    const std::uint64_t loops = op.channel_bytes / op.loop_bytes;
    const std::uint64_t rest_bytes = op.channel_bytes % op.loop_bytes;
    const auto part_of = [&](std::uint64_t head) {
        return bytes_of_head(op.channel_bytes, op.chunk_bytes, heads, head, TREE_HEAD_ALIGN_BYTES);
    };
    const auto head = static_cast<std::uint64_t>(std::max(facts.head_rank, 0));
    if (head >= heads)
        return std::nullopt;
    const std::uint64_t bytes = part_of(head);
    auto all = checked(op, {.payload_bytes = bytes, .data_bytes = bytes},
                       loops + (rest_bytes != 0 ? 1 : 0));
    // The first head has the largest part.
    if (all && facts.head_rank < 0)
        all->is_bound = part_of(0) != part_of(heads - 1);
    return all;
}

// scheduler/allgatherv_sched.cc (2.29 and later): an operation has no task; of the broadcasts it
// contains only their total number of messages.
std::optional<OpBytes> grouped_broadcasts(const OpFacts &facts) {
    if (facts.op.nsteps > MOST_BYTES / facts.op.chunk_bytes)
        return std::nullopt;
    CutBytes bytes = cut(protocol_of(facts.op), facts.op.chunk_bytes, facts.op.chunk_bytes);
    bytes *= facts.op.nsteps;
    std::optional<OpBytes> most = checked(facts.op, bytes, bytes.chunks);
    if (most)
        most->is_bound = true;
    return most;
}

// Parts of a broadcast begin at multiples of this.
constexpr std::uint64_t BROADCAST_ALIGN_BYTES = 256;

std::uint64_t part_of_broadcast(std::uint64_t bytes, std::uint64_t part, std::uint64_t parts) {
    const auto begin_of = [&](std::uint64_t index) {
        return std::min(align_up(index * divide_up(bytes, parts), BROADCAST_ALIGN_BYTES), bytes);
    };
    return begin_of(part + 1) - begin_of(part);
}

} // namespace

std::optional<std::vector<OpBytes>>
derive_broadcast_bytes(const OpFacts &facts, std::span<const GroupedBroadcast> broadcasts,
                       std::uint32_t channels) {
    const cw_nccl_op &op = facts.op;
    if (!is_sane(facts) || channels == 0 || op.channel >= channels)
        return std::nullopt;
    std::vector<OpBytes> all;
    std::uint64_t chunks = 0;
    for (const GroupedBroadcast &broadcast : broadcasts) {
        if (broadcast.bytes > MOST_BYTES || broadcast.ring_depth < 0 ||
            broadcast.ring_depth >= facts.n_ranks)
            return std::nullopt;
        // The root receives nothing, and the last one on its ring sends nothing.
        const bool passes = broadcast.ring_depth != (facts.is_send ? facts.n_ranks - 1 : 0);
        const CutBytes bytes = cut(
            protocol_of(op), passes ? part_of_broadcast(broadcast.bytes, op.channel, channels) : 0,
            op.chunk_bytes);
        chunks += bytes.chunks;
        all.push_back({.payload_bytes = bytes.payload_bytes,
                       .messages = bytes.chunks,
                       .data_bytes = bytes.data_bytes});
    }
    return chunks == op.nsteps ? std::optional(std::move(all)) : std::nullopt;
}

std::optional<OpBytes> derive_op_bytes(const OpFacts &facts) {
    const cw_nccl_op &op = facts.op;
    if (!is_sane(facts))
        return std::nullopt;
    if (op.pattern == CW_NCCL_PATTERN_SEND || op.pattern == CW_NCCL_PATTERN_RECV)
        return derive_p2p_bytes(facts);
    if (op.func == CW_NCCL_ALL_GATHER_V)
        return op.pattern == CW_NCCL_PATTERN_RING ? grouped_broadcasts(facts) : std::nullopt;
    if (op.channel_bytes == 0 || op.channel_bytes > MOST_BYTES)
        return std::nullopt;
    switch (op.pattern) {
    case CW_NCCL_PATTERN_RING:
        return once_around(facts);
    case CW_NCCL_PATTERN_RING_TWICE:
        return twice_around(facts);
    case CW_NCCL_PATTERN_PIPELINE_FROM:
    case CW_NCCL_PATTERN_PIPELINE_TO:
        return is_pipeline_end(facts) ? std::nullopt : whole_channel(facts);
    case CW_NCCL_PATTERN_TREE_UP_DOWN:
        return whole_channel(facts);
    case CW_NCCL_PATTERN_NVLS_TREE:
        return chunks_of_head(facts);
    case CW_NCCL_PATTERN_PAT_UP:
        return parallel_trees(facts, false);
    case CW_NCCL_PATTERN_PAT_DOWN:
        return parallel_trees(facts, true);
    default:
        return std::nullopt;
    }
}

} // namespace collwire::nccl
