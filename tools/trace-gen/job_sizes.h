// SPDX-License-Identifier: Apache-2.0
// What NCCL 2.28.9 sends for an operation: the parts of its channels, chunks, messages. Written
// from NCCL's source (src/enqueue.cc, src/device/all_reduce.h, all_gather.h, reduce_scatter.h,
// primitives), by walking each loop of the kernel as the kernel does. It shares no code with the
// correlator, which has closed formulas: each is a check of the other.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "collwire/post_records.h"

namespace collwire::trace_gen {

inline constexpr std::uint32_t STEPS_OF_FIFO = 8; // NCCL_STEPS

struct CollectiveSize {
    cw_nccl_func func = CW_NCCL_ALL_REDUCE;
    cw_nccl_algorithm algorithm = CW_NCCL_RING;
    cw_nccl_protocol protocol = CW_NCCL_SIMPLE;
    std::uint64_t count = 0; // elements of the call
    std::uint32_t element_bytes = 2;

    bool operator==(const CollectiveSize &) const = default;
};

// A channel's part of a collective and the fields of its ncclProxyOp.
struct ChannelPart {
    std::uint32_t channel = 0;
    std::uint64_t offset_bytes = 0;
    std::uint64_t channel_bytes = 0;
    std::uint64_t chunk_bytes = 0;
    std::uint64_t slice_bytes = 0;
    std::uint64_t fifo_bytes = 0; // stepSize x sliceSteps
    std::uint64_t loop_bytes = 0;
    std::uint32_t steps = 0;
    std::uint32_t chunk_steps = 0;
    std::uint32_t slice_steps = 0;
};

// What one connection carries for one operation.
struct Carried {
    std::uint64_t payload_bytes = 0; // flags of LL included
    std::uint64_t data_bytes = 0;
    std::uint64_t messages = 0; // empty ones included
    std::uint64_t empty_messages = 0;
    std::uint64_t steps = 0;
    std::uint32_t chunk_steps = 1; // the first step's number is a multiple of it
    std::array<std::uint64_t, CW_MTU_CLASSES> packets{};

    Carried &operator+=(const Carried &other);
    void add(const Carried &other, std::uint64_t times);
    void add_message(std::uint64_t bytes);
};

// scheduleCollTasksToPlan and calcCollChunking for a launch of this one collective.
[[nodiscard]] std::vector<ChannelPart>
channel_parts(const CollectiveSize &size, std::uint32_t n_ranks, std::uint32_t max_channels);

// The sender at `place` of a ring of `n_ranks`, to the next one.
[[nodiscard]] Carried sent_on_ring(const CollectiveSize &size, const ChannelPart &part,
                                   std::uint32_t n_ranks, std::uint32_t place);
// One direction of one edge of a tree.
[[nodiscard]] Carried sent_on_tree(const CollectiveSize &size, const ChannelPart &part);

// A part of a send or receive (addP2pToPlan).
struct TransferPart {
    std::uint32_t channel = 0;
    std::uint64_t bytes = 0; // of the part
    std::uint64_t chunk_bytes = 0;
    std::uint64_t first_bytes = 0; // ncclProxyOp.nbytes
    std::uint32_t steps = 0;
};

struct TransferPlan {
    std::uint32_t n_channels = 0;
    std::vector<TransferPart> parts;
};

struct TransferSetting {
    std::uint32_t n_ranks = 2;
    std::uint32_t p2p_channels = 16; // p2pnChannels, a power of two
    std::uint32_t channels_a_peer = 2;
    std::uint32_t base_channel = 0; // ncclP2pChannelBaseForRound
};

// Over the network, of a communicator on several nodes. The protocol is Simple: connections of
// transfers over the network have no buffers for LL by default (NCCL_ALLOC_P2P_NET_LL_BUFFERS).
[[nodiscard]] TransferPlan transfer_plan(std::uint64_t bytes, const TransferSetting &setting);
[[nodiscard]] Carried sent_of_transfer(const TransferPart &part);

} // namespace collwire::trace_gen
