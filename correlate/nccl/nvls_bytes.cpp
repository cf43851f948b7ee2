// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/nvls_bytes.h"

#include <algorithm>
#include <array>
#include <span>

#include "correlate/nccl/protocol_bytes.h"

namespace collwire::nccl {
namespace {

constexpr std::uint64_t STEPS = 8; // NCCL_STEPS
constexpr std::uint64_t USUAL_BUFFER_BYTES = 4194304;
constexpr std::uint64_t GRAIN_BYTES = 512;
constexpr std::int32_t FEW_NODES = 3;
constexpr std::uint64_t CHUNK_OF_MANY_NODES_BYTES = 65536;

// Chunks are reduced to `bytes` where the channel has fewer than `loops` of them for each head.
struct Reduction {
    std::uint64_t loops = 0;
    std::uint64_t bytes = 0;
};
constexpr std::array IN_TREES{Reduction{32, 262144}, Reduction{16, 131072}, Reduction{4, 65536},
                              Reduction{1, 32768}};
constexpr std::array ON_ONE_NODE{Reduction{64, 65536}, Reduction{8, 32768}, Reduction{2, 16384}};

std::uint64_t chunk_bytes_of(const NvlsRank &rank, bool is_tree, std::uint64_t channel_bytes) {
    auto chunk_bytes = static_cast<std::uint64_t>(rank.place.chunk_bytes);
    const auto heads = static_cast<std::uint64_t>(rank.place.n_heads);
    const auto reduce = [&](std::span<const Reduction> reductions) {
        for (const Reduction &to : reductions)
            if (chunk_bytes > to.bytes && channel_bytes < to.loops * heads * chunk_bytes)
                chunk_bytes = to.bytes;
    };
    if (is_tree) {
        if (rank.place.tree_chunk_bytes > 0)
            chunk_bytes =
                std::min(chunk_bytes, static_cast<std::uint64_t>(rank.place.tree_chunk_bytes));
        else if (rank.tree_chunk_bytes > 0)
            chunk_bytes = std::min(chunk_bytes, static_cast<std::uint64_t>(rank.tree_chunk_bytes));
        else if (rank.n_nodes > FEW_NODES)
            chunk_bytes = std::min(chunk_bytes, CHUNK_OF_MANY_NODES_BYTES);
        reduce(IN_TREES);
    } else {
        const std::uint64_t buffer_bytes = rank.buffer_bytes > 0
                                               ? static_cast<std::uint64_t>(rank.buffer_bytes)
                                               : USUAL_BUFFER_BYTES;
        chunk_bytes = std::min(chunk_bytes, buffer_bytes / STEPS);
        reduce(ON_ONE_NODE);
    }
    return std::max(chunk_bytes / GRAIN_BYTES * GRAIN_BYTES, GRAIN_BYTES);
}

} // namespace

std::uint64_t bytes_of_head(std::uint64_t channel_bytes, std::uint64_t chunk_bytes,
                            std::uint64_t heads, std::uint64_t head, std::uint64_t align_bytes) {
    const std::uint64_t loop_bytes = heads * chunk_bytes;
    const std::uint64_t rest_bytes = channel_bytes % loop_bytes;
    const std::uint64_t part_bytes = align_up(divide_up(rest_bytes, heads), align_bytes);
    const std::uint64_t begin = std::min(head * part_bytes, rest_bytes);
    return channel_bytes / loop_bytes * chunk_bytes + std::min(part_bytes, rest_bytes - begin);
}

bool is_nvls_known(const NvlsRank &rank, const cw_nccl_shape_task &task) {
    const cw_nccl_nvls &place = rank.place;
    if (place.n_heads <= 0 || place.head_rank >= place.n_heads || place.chunk_bytes <= 0 ||
        task.protocol != CW_NCCL_SIMPLE)
        return false;
    if (task.algorithm == CW_NCCL_NVLS_TREE)
        return task.func == CW_NCCL_ALL_REDUCE;
    // Every rank is a head where it writes or reads its own share alone.
    return task.algorithm == CW_NCCL_NVLS && rank.n_nodes == 1 &&
           (task.func == CW_NCCL_ALL_REDUCE ||
            ((task.func == CW_NCCL_ALL_GATHER || task.func == CW_NCCL_REDUCE_SCATTER) &&
             place.n_heads == rank.n_ranks));
}

SwitchBytes nvls_bytes(const NvlsRank &rank, const cw_nccl_shape_task &task,
                       std::uint64_t channel_bytes) {
    const std::uint64_t all_bytes = static_cast<std::uint64_t>(rank.n_ranks) * channel_bytes;
    if (task.func == CW_NCCL_ALL_GATHER)
        return {.to_bytes = channel_bytes, .from_bytes = all_bytes};
    if (task.func == CW_NCCL_REDUCE_SCATTER)
        return {.to_bytes = all_bytes, .from_bytes = channel_bytes};
    const bool is_tree = task.algorithm == CW_NCCL_NVLS_TREE;
    const std::uint64_t own_bytes =
        rank.place.head_rank < 0
            ? 0
            : bytes_of_head(channel_bytes, chunk_bytes_of(rank, is_tree, channel_bytes),
                            static_cast<std::uint64_t>(rank.place.n_heads),
                            static_cast<std::uint64_t>(rank.place.head_rank),
                            is_tree ? TREE_HEAD_ALIGN_BYTES : NODE_HEAD_ALIGN_BYTES);
    return {.to_bytes = channel_bytes + own_bytes, .from_bytes = channel_bytes + own_bytes};
}

} // namespace collwire::nccl
