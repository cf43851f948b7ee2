// SPDX-License-Identifier: Apache-2.0
// Computes the bytes that the ranks of a node send to one another in a launch, from the launch's
// tasks; nothing is measured. NCCL 2.24 and later.
//
// NCCL's proxies have no operation for a connection inside a node (P2P, SHM), so there is no
// ncclProxyOp to read. What such a connection carries follows from the task (function, count,
// algorithm, protocol, channels), from the ring or tree of each channel, and from the part of the
// count that NCCL's scheduler gives to each channel (channel_shares.h). The kernel sends on it what
// it would send over a network: the formulas are those of op_bytes.h, and for NVLS those of
// nvls_bytes.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/nvls_bytes.h"

namespace collwire::nccl {

inline constexpr std::uint32_t OLDEST_LOCAL_VERSION = 22400;
// In place of a rank: the switch of NVLS, which adds up what ranks send and multiplies what they
// get.
inline constexpr std::int32_t NVLINK_SWITCH = -2;
inline constexpr std::uint8_t ALL_CHANNELS = UINT8_MAX; // the sum of all, not one of them

// Why the bytes of a task are not known.
enum class NotModelled : std::uint8_t {
    No,               // they are known
    Version,          // before 2.24
    Nvls,             // with CollNet between nodes, or its heads were not recorded
    NvlsTree,         // its heads were not recorded
    CollNet,          // ranks of a node gather at those with a NIC
    OtherKernel,      // symmetric kernels and copy engines: no channels, no ring, no tree
    GroupedBroadcast, // broadcasts of a group (2.29 and later): the launch lacks their protocol
    Protocol,         // of a send or receive before 2.27: LL or Simple
    Channels,         // several divisions among channels are possible and differ in bytes
    Topology,         // the ring or tree of a channel was not recorded
    Task,             // contradicting or missing fields
};
inline constexpr std::size_t NOT_MODELLED_REASONS = 11;

// As in the report: `nvls`, `symmetric or copy engine`. Empty for No.
[[nodiscard]] std::string_view name_of(NotModelled reason);

// A rank's communicator, as far as bytes depend on it.
struct LocalComm {
    std::uint32_t version = 0; // 22809
    std::int32_t n_ranks = 0;
    std::int32_t rank = -1;
    // By channel, all of ncclComm::nChannels; cw_nccl_channel's fields.
    std::span<const cw_nccl_channel> channels;
    // ncclComm::p2pnChannels, p2pnChannelsPerPeer; 0: not known.
    std::uint32_t p2p_channels = 0;
    std::uint32_t p2p_channels_per_peer = 0;
    // NCCL's parameters BuffSize, LlBuffSize, Ll128BuffSize by enum cw_nccl_protocol: bytes; 0 or
    // less: NCCL's default.
    std::array<std::int64_t, 3> buffer_bytes{};
    // P2pLLThreshold; less than 0: NCCL's default.
    std::int64_t p2p_ll_threshold_bytes = -1;
    // Nthreads, Ll128Nthreads; 0 or less: NCCL's default.
    std::int64_t n_threads = 0;
    std::int64_t n_ll128_threads = 0;
    NvlsRank nvls;
};

// A channel's part of a collective that is known from a proxy operation of the same launch.
struct KnownShare {
    std::uint32_t task = 0; // index
    std::uint8_t channel = 0;
    std::uint64_t bytes = 0; // cw_nccl_op.channel_bytes
};

struct LocalEdge {
    std::int32_t sender = -1; // ranks of the communicator
    std::int32_t receiver = -1;
    std::uint8_t channel = ALL_CHANNELS;
    std::uint64_t payload_bytes = 0; // with LL's and LL128's flags
    std::uint64_t data_bytes = 0;    // without flags and padding
    friend bool operator==(const LocalEdge &, const LocalEdge &) = default;
};

struct ModelledTask {
    NotModelled reason = NotModelled::No;
    // To and from this rank, whatever transport connects the two; empty if not modelled. A copy to
    // itself is no edge.
    std::vector<LocalEdge> edges;
};

// `tasks`: all of one launch, in NCCL's order. One result for each. Source: enqueue.cc
// scheduleCollTasksToPlan and addP2pToPlan, 2.24.3 to 2.30.7.
[[nodiscard]] std::vector<ModelledTask> model_launch(const LocalComm &comm,
                                                     std::span<const cw_nccl_shape_task> tasks,
                                                     std::span<const KnownShare> shares = {},
                                                     bool has_grouped_broadcasts = false);

} // namespace collwire::nccl
