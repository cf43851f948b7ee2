// SPDX-License-Identifier: Apache-2.0
// Rows of a recording over time: of each interval what went over the network, and what stands out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "correlate/rows/column.h"
#include "correlate/rows/words.h"

namespace collwire::rows {

struct IntervalRow {
    std::uint64_t interval = 0;
    std::uint64_t begin_realtime_ns = 0;
    std::uint64_t end_realtime_ns = 0;
    std::uint64_t hosts = 0;
    std::uint64_t records = 0;
    std::uint64_t collectives = 0;
    std::uint64_t sends = 0;
    std::optional<std::uint64_t> tx_wire_bytes;
    std::optional<std::uint64_t> derived_tx_wire_bytes;
    std::optional<std::uint64_t> tcp_tx_payload_bytes;
    std::optional<std::uint64_t> tcp_derived_tx_payload_bytes;
    std::uint64_t qps_without_bytes = 0;
    std::uint64_t waited_for_rank = 0;
    std::uint64_t transferred = 0;
    std::uint64_t unclear = 0;
    std::uint64_t waited_ns = 0;
    std::uint64_t late_ranks = 0;
    std::optional<std::string> late_comm_hash;
    std::optional<std::int64_t> late_rank;
    std::optional<std::string> late_host;
    std::optional<std::uint64_t> late_pid;
    std::optional<std::uint64_t> late_calls;
    std::optional<std::uint64_t> late_median_ns;
    std::uint64_t port_incidents = 0;
    std::optional<std::string> worst_incident;
    std::uint64_t errors = 0;
};
template <> struct Declaration<IntervalRow> {
    static constexpr std::string_view TABLE = "intervals";
    static constexpr std::string_view MEANING = "Intervals of a recording, all of equal length but "
                                                "the first and the last one.";
    static constexpr Scope SCOPE = Scope::Intervals;
    static constexpr std::tuple COLUMNS{
        COLUMN(IntervalRow, interval, Number, "Number of the interval in this file."),
        COLUMN(IntervalRow, begin_realtime_ns, Realtime, "Its begin, by each node's clock."),
        COLUMN(IntervalRow, end_realtime_ns, Realtime, "Its end, by each node's clock."),
        COLUMN(IntervalRow, hosts, Count, "Hosts with a recording in it."),
        COLUMN(IntervalRow, records, Count, "Events and samples of it."),
        COLUMN(IntervalRow, collectives, Count,
               "Collectives that were called in it first; each replay of a CUDA graph counts."),
        COLUMN(IntervalRow, sends, Count,
               "Sends with their receives, by the call of the sender where that is recorded."),
        COLUMN(IntervalRow, tx_wire_bytes, Bytes,
               "Whole frames of queue pairs; null: not measured."),
        COLUMN(IntervalRow, derived_tx_wire_bytes, Bytes,
               "Computed frames of queue pairs that were not measured, in no other column; null: "
               "none, or not known for one of them."),
        COLUMN(IntervalRow, tcp_tx_payload_bytes, Bytes,
               "What NCCL's sockets sent, in no other column; null: not measured."),
        COLUMN(IntervalRow, tcp_derived_tx_payload_bytes, Bytes,
               "Computed bytes of connections without recorded sockets; null: none."),
        COLUMN(IntervalRow, qps_without_bytes, Count,
               "Queue pairs with unknown bytes: where any, bytes are lower bounds."),
        COLUMN(IntervalRow, waited_for_rank, Count,
               "Collectives of which half of the time or more passed before the last rank called."),
        COLUMN(IntervalRow, transferred, Count,
               "Collectives of which more than half of the time passed after that."),
        COLUMN(IntervalRow, unclear, Count,
               "Collectives of which the bounds of clocks and ends allow both."),
        COLUMN(IntervalRow, waited_ns, Nanoseconds,
               "The sum of the times between the first and the last call, of those that waited for "
               "a rank: lower bounds."),
        COLUMN(IntervalRow, late_ranks, Count,
               "Ranks that called a tenth of their collectives late, and three or more."),
        COLUMN(IntervalRow, late_comm_hash, Text,
               "Of the rank that was late for the longest time: the hash of its communicator; "
               "null: none was late."),
        COLUMN(IntervalRow, late_rank, Number, "Its rank there; null: none was late."),
        COLUMN(IntervalRow, late_host, Text, "Its host; null: none was late."),
        COLUMN(IntervalRow, late_pid, Number, "Its process on the host; null: none was late."),
        COLUMN(IntervalRow, late_calls, Count, "Its late calls; null: none was late."),
        COLUMN(IntervalRow, late_median_ns, Nanoseconds,
               "The median of how late they were, after the median rank; null: none was late."),
        COLUMN(IntervalRow, port_incidents, Count, "Ports with which something was wrong."),
        COLUMN(IntervalRow, worst_incident, Text,
               "The one that most operations met, as a sentence; null: none."),
        COLUMN(IntervalRow, errors, Count, "Errors of NCCL."),
    };
};

struct IntervalTierRow {
    std::uint64_t interval = 0;
    Tier tier = Tier::Unknown;
    std::optional<std::uint64_t> tx_wire_bytes;
    std::optional<std::uint64_t> derived_tx_wire_bytes;
    std::optional<std::uint64_t> tcp_tx_payload_bytes;
};
template <> struct Declaration<IntervalTierRow> {
    static constexpr std::string_view TABLE = "interval_tiers";
    static constexpr std::string_view MEANING =
        "What captured hosts sent in an interval, by the highest switch level crossed. No row: not "
        "measured, or nothing.";
    static constexpr Scope SCOPE = Scope::Intervals;
    static constexpr std::tuple COLUMNS{
        COLUMN(IntervalTierRow, interval, Number, "The interval: intervals.interval."),
        COLUMN(IntervalTierRow, tier, Word, "The highest switch level that the bytes cross."),
        COLUMN(IntervalTierRow, tx_wire_bytes, Bytes,
               "Whole frames of queue pairs; null: not measured, or nothing."),
        COLUMN(IntervalTierRow, derived_tx_wire_bytes, Bytes,
               "Computed frames of queue pairs that were not measured, in no other column; null: "
               "none, or not known for one of them."),
        COLUMN(IntervalTierRow, tcp_tx_payload_bytes, Bytes,
               "What NCCL's sockets sent, measured or computed; null: neither, or nothing."),
    };
};

struct IntervalPortRow {
    std::uint64_t interval = 0;
    std::string host;
    std::string device;
    std::uint64_t port = 0;
    std::uint64_t rate_mbps = 0;
    std::uint64_t tx_wire_bytes = 0;
    std::uint64_t rx_wire_bytes = 0;
};
template <> struct Declaration<IntervalPortRow> {
    static constexpr std::string_view TABLE = "interval_ports";
    static constexpr std::string_view MEANING = "Bytes of each port in an interval, by the port's "
                                                "own counters, from the last sample before "
                                                "it to the last one in it. No row: not counted.";
    static constexpr Scope SCOPE = Scope::Intervals;
    static constexpr std::tuple COLUMNS{
        COLUMN(IntervalPortRow, interval, Number, "The interval: intervals.interval."),
        COLUMN(IntervalPortRow, host, Text, "The host."),
        COLUMN(IntervalPortRow, device, Text, "The RDMA device."),
        COLUMN(IntervalPortRow, port, Number, "Its port."),
        COLUMN(IntervalPortRow, rate_mbps, MegabitsPerSecond,
               "The rate of the link; 0: not reported."),
        COLUMN(IntervalPortRow, tx_wire_bytes, Bytes, "Sent."),
        COLUMN(IntervalPortRow, rx_wire_bytes, Bytes, "Received."),
    };
};

struct IntervalCommRow {
    std::uint64_t interval = 0;
    std::string comm_hash;
    std::uint64_t n_ranks = 0;
    std::uint64_t ranks_captured = 0;
    std::optional<std::string> name;
    std::optional<std::string> role;
    std::uint64_t collectives = 0;
    std::uint64_t sends = 0;
    std::uint64_t waited_for_rank = 0;
    std::uint64_t transferred = 0;
    std::uint64_t unclear = 0;
    std::uint64_t waited_ns = 0;
    std::optional<std::int64_t> last_rank;
    std::optional<std::uint64_t> times_last;
};
template <> struct Declaration<IntervalCommRow> {
    static constexpr std::string_view TABLE = "interval_communicators";
    static constexpr std::string_view MEANING =
        "Operations of each communicator in an interval. No row: none was called.";
    static constexpr Scope SCOPE = Scope::Intervals;
    static constexpr std::tuple COLUMNS{
        COLUMN(IntervalCommRow, interval, Number, "The interval: intervals.interval."),
        COLUMN(IntervalCommRow, comm_hash, Text, "NCCL's hash of the communicator."),
        COLUMN(IntervalCommRow, n_ranks, Count, "Its ranks."),
        COLUMN(IntervalCommRow, ranks_captured, Count, "Its ranks with a record in the interval."),
        COLUMN(IntervalCommRow, name, Text, "Its name; null: it has none."),
        COLUMN(IntervalCommRow, role, Text,
               "What it is probably for, guessed from its calls in the interval; null: no guess."),
        COLUMN(IntervalCommRow, collectives, Count, "As in intervals."),
        COLUMN(IntervalCommRow, sends, Count, "As in intervals."),
        COLUMN(IntervalCommRow, waited_for_rank, Count, "As in intervals."),
        COLUMN(IntervalCommRow, transferred, Count, "As in intervals."),
        COLUMN(IntervalCommRow, unclear, Count, "As in intervals."),
        COLUMN(IntervalCommRow, waited_ns, Nanoseconds, "As in intervals."),
        COLUMN(IntervalCommRow, last_rank, Number,
               "The rank that was certainly the last one most often, where others waited; null: "
               "none was."),
        COLUMN(IntervalCommRow, times_last, Count, "How often; null: none was."),
    };
};

} // namespace collwire::rows
