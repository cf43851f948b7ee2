// SPDX-License-Identifier: Apache-2.0
// Rows of what went wrong: verdicts, findings, errors and events.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "correlate/rows/words.h"

namespace collwire::rows {

struct VerdictRow {
    std::uint64_t place = 0;
    std::string code;
    std::string severity;
    std::string confidence;
    std::optional<std::string> communicator_hash;
    std::optional<std::string> communicator_name;
    std::optional<std::int64_t> rank;
    std::optional<std::string> host;
    std::optional<std::uint64_t> pid;
    std::optional<std::uint64_t> from_realtime_ns;
    std::optional<std::uint64_t> until_realtime_ns;
    std::string sentence;
    std::string evidence;
};
template <> struct Declaration<VerdictRow> {
    static constexpr std::string_view TABLE = "verdicts";
    static constexpr std::string_view MEANING =
        "Which rank the job waited for when its captures ended, as collwire diagnose prints it. "
        "No row: nothing waited.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(VerdictRow, place, Number, "Causes first, from 1."),
        COLUMN(VerdictRow, code, Word, "Its code, as in docs/diagnose.md."),
        COLUMN(VerdictRow, severity, Word, "failure or note."),
        COLUMN(VerdictRow, confidence, Word,
               "certain, or probable: other causes would look the same."),
        COLUMN(VerdictRow, communicator_hash, Text,
               "The communicator: communicators.hash; null: not known, or several."),
        COLUMN(VerdictRow, communicator_name, Text, "Its name; null: none, or not known."),
        COLUMN(VerdictRow, rank, Number, "The rank; null: not known, or several."),
        COLUMN(VerdictRow, host, Text, "The host: hosts.host; null: not known, or several."),
        COLUMN(VerdictRow, pid, Number, "The process; null: not known, or several."),
        COLUMN(VerdictRow, from_realtime_ns, Realtime, "From then on; null: not known."),
        COLUMN(VerdictRow, until_realtime_ns, Realtime, "Until then; null: not known."),
        COLUMN(VerdictRow, sentence, Text, "What it says."),
        COLUMN(VerdictRow, evidence, Text, "What it rests on, one a line."),
    };
};

struct FindingRow {
    std::uint64_t place = 0;
    std::string kind;
    std::string sentence;
    std::string comms;
    std::string hosts;
};
template <> struct Declaration<FindingRow> {
    static constexpr std::string_view TABLE = "findings";
    static constexpr std::string_view MEANING = "Problems that need attention.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(FindingRow, place, Number, "By severity, from 1."),
        COLUMN(FindingRow, kind, Word, "Its kind, as in docs/report-schema.md."),
        COLUMN(FindingRow, sentence, Text, "What it says."),
        COLUMN(FindingRow, comms, Text,
               "The communicators: communicators.comm, with commas; empty: none."),
        COLUMN(FindingRow, hosts, Text, "The hosts: hosts.host, one a line; empty: none."),
    };
};

struct ErrorRow {
    std::uint64_t realtime_ns = 0;
    std::optional<std::uint64_t> after_realtime_ns;
    bool is_before_recording = false;
    std::string host;
    std::uint64_t pid = 0;
    std::string kind;
    std::optional<std::string> sequence;
    std::optional<std::uint64_t> comm;
    std::optional<std::int64_t> rank;
    std::optional<std::int64_t> peer_rank;
    std::optional<std::string> result;
    std::string sentence;
};
template <> struct Declaration<ErrorRow> {
    static constexpr std::string_view TABLE = "errors";
    static constexpr std::string_view MEANING =
        "NCCL's errors, failed queue pairs and processes that exited, by time.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(ErrorRow, realtime_ns, Realtime, "It happened not later than this."),
        COLUMN(ErrorRow, after_realtime_ns, Realtime, "It happened after this; null: not known."),
        COLUMN(ErrorRow, is_before_recording, Flag,
               "1: it was there at the recording's first poll."),
        COLUMN(ErrorRow, host, Text, "The host: hosts.host."),
        COLUMN(ErrorRow, pid, Number, "The process, by the host's number."),
        COLUMN(ErrorRow, kind, Word, "process_ended, queue_pairs, result or warning."),
        COLUMN(ErrorRow, sequence, Word,
               "Among the errors of its communicator: first or follows; null: not known."),
        COLUMN(ErrorRow, comm, Number, "The communicator; null: not known, or several."),
        COLUMN(ErrorRow, rank, Number, "The rank; null: not known, or several."),
        COLUMN(ErrorRow, peer_rank, Number, "The rank at the other end; null: not known."),
        COLUMN(ErrorRow, result, Word, "NCCL's result by its name; null: not known."),
        COLUMN(ErrorRow, sentence, Text, "What it says."),
    };
};

struct EventRow {
    std::uint64_t realtime_ns = 0;
    std::optional<std::uint64_t> duration_ns;
    std::string host;
    std::optional<std::string> device;
    std::optional<std::uint64_t> port;
    std::optional<std::string> netdev;
    std::optional<std::uint64_t> qpn;
    std::optional<std::uint64_t> pid;
    std::string kind;
    bool is_derived = false;
    std::string sentence;
};
template <> struct Declaration<EventRow> {
    static constexpr std::string_view TABLE = "events";
    static constexpr std::string_view MEANING = "Events of ports, cables and queue pairs, by time.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(EventRow, realtime_ns, Realtime, "When it happened, or started."),
        COLUMN(EventRow, duration_ns, Nanoseconds, "How long it lasted; null: a moment."),
        COLUMN(EventRow, host, Text, "The host: hosts.host."),
        COLUMN(EventRow, device, Text, "The RDMA device; null: none, or not known."),
        COLUMN(EventRow, port, Number, "The port; null: none, or not known."),
        COLUMN(EventRow, netdev, Text, "The network interface; null: none, or not known."),
        COLUMN(EventRow, qpn, Number, "The queue pair number; null: of no queue pair."),
        COLUMN(EventRow, pid, Number, "The process; null: of no process."),
        COLUMN(EventRow, kind, Word, "Its kind, as in docs/report-schema.md."),
        COLUMN(EventRow, is_derived, Flag, "1: concluded from counts, not recorded itself."),
        COLUMN(EventRow, sentence, Text, "What it says."),
    };
};

} // namespace collwire::rows
