// SPDX-License-Identifier: Apache-2.0
// Rows of the recordings themselves: what was recorded where, and what was not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "correlate/rows/words.h"

namespace collwire::rows {

struct HostRow {
    std::string host;
    std::string hostname;
    std::string boot_id;
    std::string kernel_release;
    std::uint64_t recordings = 0;
    std::uint64_t recordings_excluded = 0;
    std::optional<std::uint64_t> begin_realtime_ns;
    std::optional<std::uint64_t> end_realtime_ns;
};
template <> struct Declaration<HostRow> {
    static constexpr std::string_view TABLE = "hosts";
    static constexpr std::string_view MEANING = "Captured hosts. A host is one boot of a machine.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(HostRow, host, Text,
               "Its name in all tables: the host name, with the boot where two have one."),
        COLUMN(HostRow, hostname, Text, "Its host name."),
        COLUMN(HostRow, boot_id, Text, "The kernel's id of the boot."),
        COLUMN(HostRow, kernel_release, Text, "Release of its kernel."),
        COLUMN(HostRow, recordings, Count, "Its recordings that are used."),
        COLUMN(HostRow, recordings_excluded, Count,
               "Its recordings in no number, because they overlap with a longer one."),
        COLUMN(HostRow, begin_realtime_ns, Realtime,
               "Start of its first recording; null: all are excluded."),
        COLUMN(HostRow, end_realtime_ns, Realtime,
               "End of its last recording; null: all are excluded."),
    };
};

struct CaptureRow {
    std::string path;
    std::optional<std::string> host;
    std::optional<std::string> session;
    std::optional<std::uint64_t> segment;
    std::string end;
    std::string message;
    std::optional<std::uint64_t> damaged_at_bytes;
    std::uint64_t records = 0;
    std::uint64_t unknown_records = 0;
    std::uint64_t unusable_records = 0;
};
template <> struct Declaration<CaptureRow> {
    static constexpr std::string_view TABLE = "captures";
    static constexpr std::string_view MEANING = "The files that were given.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(CaptureRow, path, Text, "The file."),
        COLUMN(CaptureRow, host, Text, "Its host: hosts.host; null: the file was not used."),
        COLUMN(CaptureRow, session, Text, "Its recording; null: the file was not used."),
        COLUMN(CaptureRow, segment, Number,
               "Its number among the files of its recording; null: the file was not used."),
        COLUMN(CaptureRow, end, Word,
               "How it ends: complete, open (the recorder was killed or still runs), damaged or "
               "unreadable."),
        COLUMN(CaptureRow, message, Text, "Why, in a sentence; empty: complete."),
        COLUMN(CaptureRow, damaged_at_bytes, Bytes,
               "Offset from which on it is not used; null: it is not damaged."),
        COLUMN(CaptureRow, records, Count, "Records that were read."),
        COLUMN(CaptureRow, unknown_records, Count, "Records of a newer version, not used."),
        COLUMN(CaptureRow, unusable_records, Count, "Records that could not be used."),
    };
};

struct SourceRow {
    std::string host;
    std::string session;
    std::optional<std::string> device;
    std::string name;
    std::string state;
    std::string reason;
};
template <> struct Declaration<SourceRow> {
    static constexpr std::string_view TABLE = "sources";
    static constexpr std::string_view MEANING =
        "What each recording could record, and why not: one row for each source.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(SourceRow, host, Text, "The host: hosts.host."),
        COLUMN(SourceRow, session, Text, "The recording: captures.session."),
        COLUMN(SourceRow, device, Text, "The device; null: the whole host."),
        COLUMN(SourceRow, name, Word, "The source, as in collwire record --dry-run."),
        COLUMN(SourceRow, state, Word,
               "The worst of the recording: off, on, degraded, unavailable or refused."),
        COLUMN(SourceRow, reason, Text, "Why; empty: it was on."),
    };
};

struct LossRow {
    std::string host;
    std::string loss_class;
    std::optional<std::uint64_t> cpu;
    std::uint64_t records = 0;
};
template <> struct Declaration<LossRow> {
    static constexpr std::string_view TABLE = "losses";
    static constexpr std::string_view MEANING =
        "Records that recorders lost, of the recordings that are used. No row: no loss.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(LossRow, host, Text, "The host: hosts.host."),
        COLUMN(LossRow, loss_class, Word, "Which records, as in docs/capture-format.md."),
        COLUMN(LossRow, cpu, Number, "The CPU; null: in user space."),
        COLUMN(LossRow, records, Count, "How many."),
    };
};

struct WarningRow {
    std::uint64_t place = 0;
    std::string warning;
};
template <> struct Declaration<WarningRow> {
    static constexpr std::string_view TABLE = "warnings";
    static constexpr std::string_view MEANING = "What lowers the worth of numbers, as sentences.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(WarningRow, place, Number, "By severity, from 1."),
        COLUMN(WarningRow, warning, Text, "The effect on the numbers."),
    };
};

struct ClockDifferenceRow {
    std::string host_a;
    std::string host_b;
    std::int64_t b_minus_a_ns = 0;
    std::uint64_t spread_ns = 0;
    std::uint64_t connections = 0;
};
template <> struct Declaration<ClockDifferenceRow> {
    static constexpr std::string_view TABLE = "clock_differences";
    static constexpr std::string_view MEANING =
        "Differences of the real time clocks of two hosts, measured on their connections.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(ClockDifferenceRow, host_a, Text, "The one host: hosts.host."),
        COLUMN(ClockDifferenceRow, host_b, Text, "The other host: hosts.host."),
        COLUMN(ClockDifferenceRow, b_minus_a_ns, Nanoseconds,
               "Clock of the other host less that of the one."),
        COLUMN(ClockDifferenceRow, spread_ns, Nanoseconds,
               "How far the connections differ from each other."),
        COLUMN(ClockDifferenceRow, connections, Count, "Connections that it was measured on."),
    };
};

struct ClockRow {
    std::string host;
    std::string calibration;
    std::optional<std::string> reference;
    std::uint64_t constraints = 0;
    std::optional<std::uint64_t> typical_error_ns;
    std::optional<std::uint64_t> worst_error_ns;
    std::optional<std::int64_t> drift_least_ppb;
    std::optional<std::int64_t> drift_most_ppb;
};
template <> struct Declaration<ClockRow> {
    static constexpr std::string_view TABLE = "clocks";
    static constexpr std::string_view MEANING =
        "The clock of each host against that of a reference host, from causality alone: nothing "
        "arrives before it was sent.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(ClockRow, host, Text, "The host: hosts.host."),
        COLUMN(ClockRow, calibration, Word,
               "reference; bounded; none: nothing ties it to another host in both directions; "
               "contradiction: its constraints cannot all be true, so none is used."),
        COLUMN(ClockRow, reference, Text,
               "The host whose clock it is held against; null: it is not calibrated."),
        COLUMN(ClockRow, constraints, Count, "Pairs of events that it has a part in."),
        COLUMN(ClockRow, typical_error_ns, Nanoseconds,
               "Half of the width of its bounds, the median over its recordings; null: it is not "
               "calibrated."),
        COLUMN(
            ClockRow, worst_error_ns, Nanoseconds,
            "Half of the width of its bounds where they are widest; null: it is not calibrated."),
        COLUMN(ClockRow, drift_least_ppb, Number,
               "Lower bound of how much faster it runs, on average, in parts of a billion; null: "
               "not known, or the reference."),
        COLUMN(ClockRow, drift_most_ppb, Number, "Upper bound of it; null: as drift_least_ppb."),
    };
};

struct ClockWindowRow {
    std::string host;
    std::uint64_t reference_ns = 0;
    std::int64_t least_ns = 0;
    std::int64_t most_ns = 0;
    std::int64_t ahead_least_ns = 0;
    std::int64_t ahead_most_ns = 0;
};
template <> struct Declaration<ClockWindowRow> {
    static constexpr std::string_view TABLE = "clock_windows";
    static constexpr std::string_view MEANING =
        "Bounds of the clock of each calibrated host, one row each 10 s (longer where that made "
        "more than 64 rows of a host).";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(ClockWindowRow, host, Text, "The host: clocks.host."),
        COLUMN(ClockWindowRow, reference_ns, Nanoseconds,
               "The middle of the window, by the monotonic clock of clocks.reference."),
        COLUMN(ClockWindowRow, least_ns, Nanoseconds,
               "Lower bound of what the host's monotonic clock showed then."),
        COLUMN(ClockWindowRow, most_ns, Nanoseconds, "Upper bound of it."),
        COLUMN(ClockWindowRow, ahead_least_ns, Nanoseconds,
               "Lower bound of the host's real time clock less that of the reference."),
        COLUMN(ClockWindowRow, ahead_most_ns, Nanoseconds, "Upper bound of it."),
    };
};

} // namespace collwire::rows
