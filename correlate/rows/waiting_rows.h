// SPDX-License-Identifier: Apache-2.0
// Rows of waiting for the last rank to call, and of transfer from then on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "correlate/rows/column.h"

namespace collwire::rows {

struct WaitingRow {
    std::uint64_t waiting = 0;
    std::uint64_t comm = 0;
    std::string op;
    std::optional<std::uint64_t> size_bytes;
    std::optional<std::string> algorithm;
    std::optional<std::string> protocol;
    std::uint64_t waited = 0;
    std::uint64_t transferred = 0;
    std::uint64_t unclear = 0;
    std::uint64_t spreads = 0;
    std::optional<std::uint64_t> least_p50_spread_ns;
    std::optional<std::uint64_t> most_p50_spread_ns;
    std::optional<std::uint64_t> least_p95_spread_ns;
    std::optional<std::uint64_t> most_p95_spread_ns;
    std::uint64_t transfers = 0;
    std::optional<std::uint64_t> least_p50_transfer_ns;
    std::optional<std::uint64_t> most_p50_transfer_ns;
    std::optional<std::uint64_t> least_p95_transfer_ns;
    std::optional<std::uint64_t> most_p95_transfer_ns;
    std::uint64_t sum_waited_ns = 0;
};
template <> struct Declaration<WaitingRow> {
    static constexpr std::string_view TABLE = "waiting";
    static constexpr std::string_view MEANING =
        "How long ranks waited for the last one to call, and how long the operation took from then "
        "on: one row for each kind of collective of a communicator.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(WaitingRow, waiting, Number, "Number of the kind in this file."),
        COLUMN(WaitingRow, comm, Number, "The communicator: communicators.comm."),
        COLUMN(WaitingRow, op, Word, "NCCL's name of the operation."),
        COLUMN(WaitingRow, size_bytes, Bytes, "The size of the operation; null: not known."),
        COLUMN(WaitingRow, algorithm, Word, "NCCL's name of the algorithm; null: not known."),
        COLUMN(WaitingRow, protocol, Word, "NCCL's name of the protocol; null: not known."),
        COLUMN(WaitingRow, waited, Count,
               "Operations of which half of the time or more passed before the last rank called."),
        COLUMN(WaitingRow, transferred, Count,
               "Operations of which more than half of the time passed after that."),
        COLUMN(WaitingRow, unclear, Count,
               "Operations whose bounds allow both, or whose end is not known."),
        COLUMN(WaitingRow, spreads, Count, "Operations that the times of a spread are of."),
        COLUMN(WaitingRow, least_p50_spread_ns, Nanoseconds,
               "From the first call to the last one, median: lower bound; null: of no operation."),
        COLUMN(WaitingRow, most_p50_spread_ns, Nanoseconds, "Its upper bound; null: likewise."),
        COLUMN(WaitingRow, least_p95_spread_ns, Nanoseconds,
               "The same, not above it 95 percent: lower bound; null: likewise."),
        COLUMN(WaitingRow, most_p95_spread_ns, Nanoseconds, "Its upper bound; null: likewise."),
        COLUMN(WaitingRow, transfers, Count, "Operations that the times of a transfer are of."),
        COLUMN(WaitingRow, least_p50_transfer_ns, Nanoseconds,
               "From the last call to the end, median: lower bound; null: of no operation."),
        COLUMN(WaitingRow, most_p50_transfer_ns, Nanoseconds, "Its upper bound; null: likewise."),
        COLUMN(WaitingRow, least_p95_transfer_ns, Nanoseconds,
               "The same, not above it 95 percent: lower bound; null: likewise."),
        COLUMN(WaitingRow, most_p95_transfer_ns, Nanoseconds, "Its upper bound; null: likewise."),
        COLUMN(WaitingRow, sum_waited_ns, Nanoseconds,
               "The lower bounds of the spreads of those that waited, in all."),
    };
};

struct WaitingRankRow {
    std::uint64_t waiting = 0;
    std::int64_t rank = 0;
    std::uint64_t operations = 0;
};
template <> struct Declaration<WaitingRankRow> {
    static constexpr std::string_view TABLE = "waiting_ranks";
    static constexpr std::string_view MEANING =
        "Ranks that others waited for: how often each was certainly the last one to call.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(WaitingRankRow, waiting, Number, "The kind of collective: waiting.waiting."),
        COLUMN(WaitingRankRow, rank, Number, "The rank, in the communicator."),
        COLUMN(WaitingRankRow, operations, Count, "Operations that waited for it."),
    };
};

} // namespace collwire::rows
