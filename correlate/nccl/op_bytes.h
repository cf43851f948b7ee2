// SPDX-License-Identifier: Apache-2.0
// How many bytes and messages one operation of NCCL's proxy carries, computed from the operation's
// own fields: nothing is counted. NCCL 2.24 and later; 2.20 to 2.23 with the channel's part of its
// call filled in, which older_plan.h finds.
//
// The bytes are those that the transport is given: the sizes that NCCL's kernel writes into the
// FIFO of the connection, a message each. LL's and LL128's flags are in them, net_socket's headers
// of 4 bytes are not. Both ends of a connection have the same numbers.
//
// What the fields of ncclProxyOp mean (enqueue.cc calcCollChunking, scheduleCollTasksToPlan and
// addP2pToPlan; unchanged from 2.24.3 to 2.30.7 where no other version is named):
//   collectives
//     channelSize  the channel's part of the task's count, in bytes. AllGather and ReduceScatter:
//                  of one rank's share
//     chunkSize    data bytes of one chunk, flags not included, in every protocol
//     loopSize     chunkSize times the chunks of a loop: the ranks on a ring, else 1
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
    // Of a send or a receive whose bytes are spread over channels: this operation's part of them.
    // find_part_bytes() tells it where the fields alone do not.
    std::optional<std::uint64_t> part_bytes;
    // What an AllReduce on a ring rounds the chunks of its last loop up to (all_reduce.h runRing).
    std::uint64_t ring_align_bytes = 16;
};

struct OpBytes {
    std::uint64_t payload_bytes = 0;
    std::uint64_t messages = 0;   // always exact; those without a byte included
    std::uint64_t data_bytes = 0; // without flags and padding
    bool is_bound = false;        // the bytes are upper bounds

    bool operator==(const OpBytes &) const = default;
};

// Nothing if it is not known: CollNet, NVLS, a version before 2.20, before 2.24 an operation whose
// channel_bytes were not filled in, or fields that contradict one another. A bound: broadcasts that
// NCCL 2.29 and later makes one operation of (CW_NCCL_ALL_GATHER_V, see derive_broadcast_bytes),
// and parts of a send or receive that cannot be told apart.
std::optional<OpBytes> derive_op_bytes(const OpFacts &facts);

// A broadcast of a group, as a rank meets it on the ring of one channel.
struct GroupedBroadcast {
    std::uint64_t bytes = 0;     // of all channels
    std::int32_t ring_depth = 0; // how far down the ring from its root the rank is
};

// `op`: of grouped broadcasts (CW_NCCL_ALL_GATHER_V), on one of `channels`. What each of them puts
// on its connection, in their order; 0 messages: nothing. Nothing if that is not what the operation
// says of all of them together.
std::optional<std::vector<OpBytes>>
derive_broadcast_bytes(const OpFacts &op, std::span<const GroupedBroadcast> broadcasts,
                       std::uint32_t channels);

// `ops`: all operations of one task of send or receive. Fills part_bytes where it is certain.
// Parts go to channels in an order that depends on two numbers that no operation has; with both,
// all is certain:
// `p2p_channels`: ncclComm::p2pnChannels; 0: not known.
// `first_channel`: that of the first part. It is the same for all sends of a communicator to one
// peer, and for all receives from it, so one that has a single part shows it.
void find_part_bytes(std::span<OpFacts> ops, std::uint32_t p2p_channels,
                     std::optional<std::uint32_t> first_channel = std::nullopt);

} // namespace collwire::nccl
