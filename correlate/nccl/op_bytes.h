// SPDX-License-Identifier: Apache-2.0
// Computes the bytes and messages of one proxy operation from the operation's own fields; nothing
// is measured. NCCL 2.24 and later; 2.20 to 2.23 with the channel's part of its call filled in,
// which older_plan.h finds.
//
// The bytes are those that the transport gets: the sizes that NCCL's kernel writes into the FIFO of
// the connection, one per message. They include LL's and LL128's flags, but not net_socket's
// headers of 4 bytes. Both ends of a connection have the same numbers.
//
// Fields of ncclProxyOp (enqueue.cc calcCollChunking, scheduleCollTasksToPlan and
// addP2pToPlan; unchanged from 2.24.3 to 2.30.7 unless another version is named):
//   collectives
//     channelSize  the channel's part of the task's count, in bytes. AllGather and ReduceScatter:
//                  of one rank's share
//     chunkSize    data bytes of one chunk, flags not included, in every protocol
//     loopSize     chunkSize times the chunks of a loop: the ranks on a ring, the heads of
//                  NVLS_TREE, else 1
//     nsteps       steps of this connection; a message is sliceSteps of them
//     nbytes       PAT: of all ranks; registered: of the task; else the FIFO's bytes of a message
//     loopOffset   where the channel's part begins
//   broadcasts of a group (AllGatherV, 2.29 and later): no task, and no size but chunkSize
//   sends and receives: channelSize, loopSize, sliceSize and loopOffset are not set
//     chunkSize    bytes of a message at most, LL's flags included
//     nbytes       registered: of the channel's part; else of its first message, LL's flags
//                  included
//     nsteps       messages
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collwire/nccl_launch_records.h"

namespace collwire::nccl {

struct OpFacts {
    cw_nccl_op op{};
    cw_nccl_shape_task task{}; // all 0: not known
    std::int32_t n_ranks = 0;
    std::int32_t rank = -1;
    bool is_send = false;      // of its connection
    std::int32_t peer = -1;    // the other end's rank in the communicator
    std::uint32_t version = 0; // 22809
    // For a send or receive that is spread over channels: this operation's part. find_part_bytes()
    // fills it if the fields alone do not determine it.
    std::optional<std::uint64_t> part_bytes;
    // Of NVLS_TREE: this rank's number among the heads of its node; less than 0: not known.
    std::int32_t head_rank = -1;
    // Rounding unit of an AllReduce's chunks in its last loop on a ring (all_reduce.h runRing).
    std::uint64_t ring_align_bytes = 16;
};

struct OpBytes {
    std::uint64_t payload_bytes = 0;
    std::uint64_t messages = 0;   // always exact; includes empty ones
    std::uint64_t data_bytes = 0; // without flags and padding
    bool is_bound = false;        // the bytes are upper bounds

    bool operator==(const OpBytes &) const = default;
};

// Absent if unknown: CollNet, NVLS with CollNet, a version before 2.20, before 2.24 an operation
// without channel_bytes, or contradicting fields. A bound: broadcasts that NCCL 2.29 and later
// merges into one operation (CW_NCCL_ALL_GATHER_V, see derive_broadcast_bytes), ambiguous parts of
// a send or receive, and NVLS_TREE without head_rank where the heads differ.
std::optional<OpBytes> derive_op_bytes(const OpFacts &facts);

// A broadcast of a group, seen from a rank on the ring of one channel.
struct GroupedBroadcast {
    std::uint64_t bytes = 0;     // of all channels
    std::int32_t ring_depth = 0; // distance of the rank from the root, down the ring
};

// `op`: of grouped broadcasts (CW_NCCL_ALL_GATHER_V), on one of `channels`. Bytes of each on its
// connection, in order; 0 messages: nothing. Absent if their total differs from the operation's.
std::optional<std::vector<OpBytes>>
derive_broadcast_bytes(const OpFacts &op, std::span<const GroupedBroadcast> broadcasts,
                       std::uint32_t channels);

// `ops`: all operations of one task of send or receive. Fills part_bytes if it is certain. The
// assignment of parts to channels depends on two numbers that operations do not contain; with both
// it is certain: `p2p_channels`: ncclComm::p2pnChannels; 0: not known. `first_channel`: that of the
// first part. It is the same for all sends of a communicator to one peer, and for all receives from
// it, so one with a single part shows it.
void find_part_bytes(std::span<OpFacts> ops, std::uint32_t p2p_channels,
                     std::optional<std::uint32_t> first_channel = std::nullopt);

} // namespace collwire::nccl
