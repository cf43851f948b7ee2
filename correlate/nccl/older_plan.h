// SPDX-License-Identifier: Apache-2.0
// Which operations of a launch are of which of its calls, and how many bytes they carry, in
// NCCL 2.20 to 2.23. An operation says neither there. But NCCL deals the elements of its calls out
// to channels by rules that are the same in all of a version: what it does with the calls of a
// launch can be done again, and must come to the operations that are there, with the steps that
// each has.
//
// What the rules depend on and nobody tells, the number of channels that NCCL allows itself, is
// tried. What all numbers agree on that come to the operations is certain.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/op_bytes.h"

namespace collwire::nccl {

inline constexpr std::uint32_t OLDEST_PLANNED_VERSION = 22000;
inline constexpr std::uint32_t FIRST_VERSION_WITH_TASKS = 22400;

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
    // Each rank is a node of its own: what a rank does on any channel goes through its proxies.
    bool is_one_rank_a_node = false;
    std::uint32_t channels_seen = 0;   // with a collective: NCCL has as many of them at least
    std::uint32_t most_channels = 64;  // and at most
    std::uint64_t ll_threads = 512;    // of each block at most
    std::uint64_t ll128_threads = 640; // the same
};

// What NCCL makes of its parameters Nthreads and Ll128Nthreads (NCCL_NTHREADS,
// NCCL_LL128_NTHREADS); 0 or less: its default.
void set_threads(OlderRules &rules, std::int64_t n_threads, std::int64_t n_ll128_threads);

// What an operation was found to be.
struct OlderOp {
    std::uint32_t call = 0; // index
    std::optional<OpBytes> bytes;
    friend bool operator==(const OlderOp &, const OlderOp &) = default;
};

// `calls`: all collectives of the launch in the order in which they were made, none of them empty.
// `ops`: its operations of collectives, in NCCL's order. Nothing: they are not those of such calls,
// or it is not certain of which each is.
[[nodiscard]] std::optional<std::vector<OlderOp>>
place_collectives(const OlderRules &rules, std::span<const OlderCall> calls,
                  std::span<const OpFacts> ops);

// The same for sends to one peer, or receives from it.
[[nodiscard]] std::optional<std::vector<OlderOp>> place_transfers(const OlderRules &rules,
                                                                  bool is_one_node,
                                                                  std::span<const OlderCall> calls,
                                                                  std::span<const OpFacts> ops);

// ---- the rules

// What one channel does of a call.
struct OlderShare {
    std::uint32_t channel = 0;
    std::uint64_t bytes = 0;
    friend bool operator==(const OlderShare &, const OlderShare &) = default;
};

// The order in which NCCL deals them out: indices of `calls`.
[[nodiscard]] std::vector<std::uint32_t> order_of_calls(const OlderRules &rules,
                                                        std::span<const OlderCall> calls);
// 2.20 and 2.21: in these units a channel is given its share.
[[nodiscard]] std::uint64_t share_unit_bytes(const OlderRules &rules, cw_nccl_protocol protocol,
                                             bool is_ring, std::uint64_t all_bytes);
// 2.20 and 2.21, of a call of `bytes`. `used_bytes`: of each channel, at the call.
[[nodiscard]] std::vector<OlderShare> fill_channels(std::uint64_t bytes, std::uint64_t unit_bytes,
                                                    std::uint64_t channel_bytes,
                                                    std::vector<std::uint64_t> &used_bytes);
// 2.22 and 2.23, of each call in the order of order_of_calls(). `channels`: that the communicator
// has; `wanted`: that its calls want together, at most as many.
[[nodiscard]] std::vector<std::vector<OlderShare>> deal_out_cells(const OlderRules &rules,
                                                                  std::span<const OlderCall> calls,
                                                                  std::uint32_t channels,
                                                                  std::uint32_t wanted);
// 2.20 and 2.21: of how many bytes each operation is, but for the last, that a send or receive of
// `bytes` is cut into.
[[nodiscard]] std::uint64_t piece_bytes(std::uint64_t bytes, std::uint64_t step_bytes,
                                        std::uint32_t least_channels, std::uint32_t most_channels,
                                        bool is_one_node);

} // namespace collwire::nccl
