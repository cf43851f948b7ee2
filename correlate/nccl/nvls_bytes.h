// SPDX-License-Identifier: Apache-2.0
// Computes what NVLS (NVLink SHARP) moves: the ranks of a node share their data among heads. A head
// reads its part of all ranks through the NVLink switch, which adds it up, and writes the result
// through the switch to all ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"

namespace collwire::nccl {

// A head's part of a channel. The rest that is smaller than a loop, a chunk of each head, is shared
// evenly, in order of the heads and in units of `align_bytes`. `chunk_bytes`, `heads`: not 0.
[[nodiscard]] std::uint64_t bytes_of_head(std::uint64_t channel_bytes, std::uint64_t chunk_bytes,
                                          std::uint64_t heads, std::uint64_t head,
                                          std::uint64_t align_bytes);

// all_reduce.h: units of NVLS_TREE, and of NVLS on one node.
inline constexpr std::uint64_t TREE_HEAD_ALIGN_BYTES = 16, NODE_HEAD_ALIGN_BYTES = 16384;

// A rank's communicator, as far as NVLS depends on it.
struct NvlsRank {
    std::int32_t n_ranks = 0;
    std::int32_t n_nodes = 0;
    cw_nccl_nvls place{}; // n_heads 0: not known
    // NCCL's parameters BuffSize, NvlsTreeMaxChunkSize: bytes; 0 or less: NCCL's default.
    std::int64_t buffer_bytes = 0;
    std::int64_t tree_chunk_bytes = 0;
};

// Whether bytes are known. Not over several nodes without trees: those use CollNet.
[[nodiscard]] bool is_nvls_known(const NvlsRank &rank, const cw_nccl_shape_task &task);

struct SwitchBytes {
    std::uint64_t to_bytes = 0; // the rank's GPU to the switch
    std::uint64_t from_bytes = 0;
};

// Of one channel. `channel_bytes`: its part of the task's count; of one rank's share for AllGather
// and ReduceScatter. `task`: is_nvls_known(). Source: 2.24.3 to 2.30.7, all_reduce.h, all_gather.h,
// reduce_scatter.h, and enqueue.cc calcCollChunking.
[[nodiscard]] SwitchBytes nvls_bytes(const NvlsRank &rank, const cw_nccl_shape_task &task,
                                     std::uint64_t channel_bytes);

} // namespace collwire::nccl
