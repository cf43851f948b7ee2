// SPDX-License-Identifier: Apache-2.0
// Maps proxy operations to API calls and bytes by replaying the scheduler of NCCL 2.20 to 2.23,
// where an operation names neither. NCCL distributes its calls' elements to channels by fixed rules
// of each version: replaying them for a launch's calls must give the recorded operations and their
// steps. The rules depend on an unrecorded number, the channels that NCCL allows itself: all values
// are tried, and only what the matching ones agree on is certain.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/cells.h"
#include "correlate/nccl/op_bytes.h"

namespace collwire::nccl {

inline constexpr std::uint32_t OLDEST_PLANNED_VERSION = 22000;
inline constexpr std::uint32_t FIRST_VERSION_WITH_TASKS = 22400;

// enum cw_nccl_algorithm, by the operation's pattern: before 2.24 an operation does not contain it.
[[nodiscard]] std::uint8_t algorithm_of_pattern(std::uint8_t pattern);

struct OlderCall {
    std::uint8_t func = CW_NCCL_FUNC_UNKNOWN;
    std::uint8_t datatype = 0;
    std::int32_t root = 0; // or peer
    std::int32_t reduction = 0;
    std::uint64_t count = 0;
    friend auto operator<=>(const OlderCall &, const OlderCall &) = default;
};

struct OlderRules {
    std::uint32_t version = 0;
    std::int32_t n_ranks = 0;
    // Each rank is a node of its own: every channel of a rank uses its proxies.
    bool is_one_rank_a_node = false;
    std::uint32_t channels_seen = 0;   // with a collective: NCCL has at least as many
    std::uint32_t most_channels = 64;  // and at most
    std::uint64_t ll_threads = 512;    // of each block at most
    std::uint64_t ll128_threads = 640; // likewise
};

// NCCL's use of its parameters Nthreads and Ll128Nthreads (NCCL_NTHREADS, NCCL_LL128_NTHREADS); 0
// or less: its default.
void set_threads(OlderRules &rules, std::int64_t n_threads, std::int64_t n_ll128_threads);

// The call and bytes of an operation.
struct OlderOp {
    std::uint32_t call = 0; // index
    std::optional<OpBytes> bytes;
    friend bool operator==(const OlderOp &, const OlderOp &) = default;
};

// `calls`: all collectives of the launch in call order, none of them empty. `ops`: its operations
// of collectives, in NCCL's order. Absent: they do not match such calls, or the assignment is
// ambiguous.
[[nodiscard]] std::optional<std::vector<OlderOp>>
place_collectives(const OlderRules &rules, std::span<const OlderCall> calls,
                  std::span<const OpFacts> ops);

// The same for sends to one peer, or receives from it.
[[nodiscard]] std::optional<std::vector<OlderOp>> place_transfers(const OlderRules &rules,
                                                                  bool is_one_node,
                                                                  std::span<const OlderCall> calls,
                                                                  std::span<const OpFacts> ops);

// ---- the rules

// NCCL's scheduling order: indices of `calls`.
[[nodiscard]] std::vector<std::uint32_t> order_of_calls(const OlderRules &rules,
                                                        std::span<const OlderCall> calls);
// 2.20 and 2.21: the unit of a channel's share.
[[nodiscard]] std::uint64_t share_unit_bytes(const OlderRules &rules, cw_nccl_protocol protocol,
                                             bool is_ring, std::uint64_t all_bytes);
// 2.20 and 2.21, for a call of `bytes`. `used_bytes`: of each channel, at the call.
[[nodiscard]] std::vector<ChannelShare> fill_channels(std::uint64_t bytes, std::uint64_t unit_bytes,
                                                      std::uint64_t channel_bytes,
                                                      std::vector<std::uint64_t> &used_bytes);
// 2.22 and 2.23, for each call in the order of order_of_calls(). `channels`: of the communicator;
// `wanted`: of its calls together, at most as many.
[[nodiscard]] std::vector<std::vector<ChannelShare>> share_out(const OlderRules &rules,
                                                               std::span<const OlderCall> calls,
                                                               std::uint32_t channels,
                                                               std::uint32_t wanted);
// 2.20 and 2.21: bytes of each operation, except the last, that a send or receive of `bytes` is cut
// into.
[[nodiscard]] std::uint64_t piece_bytes(std::uint64_t bytes, std::uint64_t step_bytes,
                                        std::uint32_t least_channels, std::uint32_t most_channels,
                                        bool is_one_node);

} // namespace collwire::nccl
