// SPDX-License-Identifier: Apache-2.0
// Rows of communicators, their ranks, operations and connections.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "correlate/rows/words.h"

namespace collwire::rows {

struct CommunicatorRow {
    std::uint64_t comm = 0;
    std::string hash;
    std::optional<std::string> name;
    std::optional<std::string> name_source;
    std::optional<std::string> guessed_role;
    std::optional<std::string> guess_reason;
    std::int64_t n_ranks = 0;
    std::optional<std::int64_t> n_nodes;
    std::optional<std::uint64_t> parent;
    std::uint64_t ranks_captured = 0;
    std::optional<std::uint64_t> created_realtime_ns;
    std::optional<std::uint64_t> ended_realtime_ns;
};
template <> struct Declaration<CommunicatorRow> {
    static constexpr std::string_view TABLE = "communicators";
    static constexpr std::string_view MEANING = "NCCL's communicators, each once for all ranks.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(CommunicatorRow, comm, Number, "Number of the communicator in this file."),
        COLUMN(CommunicatorRow, hash, Text, "NCCL's own hash, as 0x and 16 hexadecimal digits."),
        COLUMN(CommunicatorRow, name, Text,
               "The program's config.commName; null: none, or not known."),
        COLUMN(CommunicatorRow, name_source, Word,
               "nccl: name is known; guessed: guessed_role is; null: neither."),
        COLUMN(CommunicatorRow, guessed_role, Word,
               "What it is probably for, where it has no name: dp, tp, pp or ep (data, tensor, "
               "pipeline, expert parallelism); null: it has a name, or no role fits best."),
        COLUMN(CommunicatorRow, guess_reason, Text,
               "The evidence for guessed_role, or why no role fits best; null: it has a name."),
        COLUMN(CommunicatorRow, n_ranks, Count, "Ranks, captured or not."),
        COLUMN(CommunicatorRow, n_nodes, Count, "Nodes, by NCCL; null: not known."),
        COLUMN(CommunicatorRow, parent, Number,
               "The communicator that it was split, shrunk or grown from; null: none, or not "
               "known."),
        COLUMN(CommunicatorRow, ranks_captured, Count, "Ranks whose process a capture covers."),
        COLUMN(CommunicatorRow, created_realtime_ns, Realtime,
               "When its last rank was created; null: recorded for no rank."),
        COLUMN(CommunicatorRow, ended_realtime_ns, Realtime,
               "When its last rank was destroyed; null: not recorded for all ranks."),
    };
};

struct RankRow {
    std::uint64_t comm = 0;
    std::int64_t rank = 0;
    std::string host;
    std::uint64_t pid = 0;
    std::int64_t gpu = 0;
    std::optional<std::string> gpu_pci_address;
    std::int64_t node = 0;
    std::optional<std::string> nccl_version;
    bool from_creation = false;
    std::uint64_t first_seen_realtime_ns = 0;
    std::optional<std::uint64_t> ended_realtime_ns;
    std::string seq_base;
    bool is_joined = false;
    std::uint64_t calls = 0;
    std::uint64_t failed_calls = 0;
    std::optional<std::uint64_t> launches;
    std::uint64_t compared_calls = 0;
    std::uint64_t last_calls = 0;
    std::uint64_t late_calls = 0;
    std::optional<std::uint64_t> median_late_ns;
    std::uint64_t sum_late_ns = 0;
};
template <> struct Declaration<RankRow> {
    static constexpr std::string_view TABLE = "ranks";
    static constexpr std::string_view MEANING =
        "Captured ranks of communicators, one row for each recording of a rank's host.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(RankRow, comm, Number, "The communicator: communicators.comm."),
        COLUMN(RankRow, rank, Number, "The rank in its communicator."),
        COLUMN(RankRow, host, Text, "Its host: hosts.host."),
        COLUMN(RankRow, pid, Number, "Its process, by the host's number."),
        COLUMN(RankRow, gpu, Number, "CUDA's number of its device in that process."),
        COLUMN(RankRow, gpu_pci_address, Text, "PCI address of that device; null: not known."),
        COLUMN(RankRow, node, Number, "NCCL's number of its node in the communicator."),
        COLUMN(RankRow, nccl_version, Text, "Version of its NCCL; null: not known."),
        COLUMN(RankRow, from_creation, Flag, "1: recorded from its creation."),
        COLUMN(RankRow, first_seen_realtime_ns, Realtime, "When it was created or discovered."),
        COLUMN(RankRow, ended_realtime_ns, Realtime, "When it was destroyed; null: not recorded."),
        COLUMN(RankRow, seq_base, Word,
               "Where the numbers of its calls start, the weakest of them: creation, launched, "
               "aligned, recording."),
        COLUMN(RankRow, is_joined, Flag,
               "1: all its collectives are combined with those of other ranks."),
        COLUMN(RankRow, calls, Count, "Its calls of NCCL."),
        COLUMN(RankRow, failed_calls, Count, "Its calls that NCCL refused, as far as known."),
        COLUMN(RankRow, launches, Count,
               "Its launches; null: NCCL's file is API-only, so launches were not recorded."),
        COLUMN(RankRow, compared_calls, Count,
               "Its calls of collectives that all ranks called, without CUDA graphs, where clocks "
               "show the order: the next four are of these."),
        COLUMN(RankRow, last_calls, Count, "It certainly called last."),
        COLUMN(RankRow, late_calls, Count,
               "It certainly called 1 ms or more after the median rank."),
        COLUMN(RankRow, median_late_ns, Nanoseconds,
               "Median of these, after the median rank, at least; null: it was never late."),
        COLUMN(RankRow, sum_late_ns, Nanoseconds, "Sum of these, at least."),
    };
};

struct ParameterRow {
    std::uint64_t comm = 0;
    std::string name;
    std::int64_t value = 0;
    std::string text;
    std::uint64_t ranks = 0;
};
template <> struct Declaration<ParameterRow> {
    static constexpr std::string_view TABLE = "parameters";
    static constexpr std::string_view MEANING =
        "NCCL's parameters in the processes of a communicator's ranks. No row: not read, as no "
        "process had used it, or it is no number.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(ParameterRow, comm, Number, "The communicator: communicators.comm."),
        COLUMN(ParameterRow, name, Text, "NCCL's own name of it."),
        COLUMN(ParameterRow, value, Number, "As NCCL holds it, last read."),
        COLUMN(ParameterRow, text, Text, "The value, or that it is NCCL's mark for: not set."),
        COLUMN(ParameterRow, ranks, Count, "Captured ranks whose process has this value."),
    };
};

struct OperationRow {
    std::uint64_t operation = 0;
    std::uint64_t comm = 0;
    OperationKind kind = OperationKind::Collective;
    std::uint64_t seq = 0;
    std::string seq_base;
    std::optional<std::int64_t> rank;
    std::optional<std::uint64_t> replay;
    std::string op;
    std::optional<std::string> reduction;
    std::optional<std::int64_t> root;
    std::optional<std::int64_t> src_rank;
    std::optional<std::int64_t> dst_rank;
    std::uint64_t ranks_called = 0;
    bool differs = false;
    std::uint64_t elements = 0;
    std::string datatype;
    std::optional<std::string> algorithm;
    std::optional<std::string> protocol;
    std::optional<std::uint64_t> channels;
    std::optional<std::uint64_t> size_bytes;
    std::optional<std::uint64_t> data_bytes;
    std::optional<std::uint64_t> tx_payload_bytes;
    std::optional<std::uint64_t> tx_wire_bytes;
    Certainty certainty = Certainty::Process;
    std::optional<ByteSource> byte_source;
    bool is_partial = false;
    bool is_truncated = false;
    std::optional<bool> is_captured;
    bool is_launched = false;
    std::optional<std::uint64_t> launched_with;
    std::optional<std::uint64_t> called_realtime_ns;
    std::optional<std::int64_t> last_rank;
    std::optional<std::uint64_t> last_call_after_first_ns;
    std::optional<std::uint64_t> calls_within_ns;
    std::optional<std::uint64_t> first_launch_realtime_ns;
    std::optional<std::uint64_t> last_launch_realtime_ns;
    std::optional<std::uint64_t> end_realtime_ns;
    std::optional<std::uint64_t> end_after_realtime_ns;
    std::optional<std::uint64_t> end_before_realtime_ns;
    std::optional<std::string> end_known;
    std::optional<std::uint64_t> least_duration_ns;
    std::optional<std::uint64_t> most_duration_ns;
    std::optional<std::string> local_state;
    std::optional<std::uint64_t> local_payload_bytes;
};
template <> struct Declaration<OperationRow> {
    static constexpr std::string_view TABLE = "operations";
    static constexpr std::string_view MEANING =
        "Collectives, and sends with their receives: one row for each, over all its ranks.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(OperationRow, operation, Number, "Number of the operation in this file."),
        COLUMN(OperationRow, comm, Number, "The communicator: communicators.comm."),
        COLUMN(OperationRow, kind, Word, "A collective, or a send with its receive."),
        COLUMN(OperationRow, seq, Number,
               "Number among the collectives of the communicator, from 0; of a pair among those "
               "from the one rank to the other."),
        COLUMN(OperationRow, seq_base, Word,
               "Where the numbers start, the weakest of its ranks: creation, launched, aligned, "
               "recording."),
        COLUMN(OperationRow, rank, Number,
               "The rank whose calls seq counts, where seq_base is recording; else null."),
        COLUMN(OperationRow, replay, Number,
               "Number of the replay of its CUDA graph, from 0; null: not captured into one."),
        COLUMN(OperationRow, op, Word, "NCCL's name of the operation."),
        COLUMN(OperationRow, reduction, Word,
               "NCCL's name of the reduction; null: it has none, or the program's own."),
        COLUMN(OperationRow, root, Number, "The root rank; null: the operation has none."),
        COLUMN(OperationRow, src_rank, Number, "The rank that sends; null: a collective."),
        COLUMN(OperationRow, dst_rank, Number, "The rank that receives; null: a collective."),
        COLUMN(OperationRow, ranks_called, Count, "Captured ranks that called it."),
        COLUMN(OperationRow, differs, Flag, "1: ranks gave different arguments."),
        COLUMN(OperationRow, elements, Count, "Elements of the call."),
        COLUMN(OperationRow, datatype, Word, "NCCL's name of the type of an element."),
        COLUMN(OperationRow, algorithm, Word, "NCCL's name; null: not known."),
        COLUMN(OperationRow, protocol, Word, "NCCL's name; null: not known."),
        COLUMN(OperationRow, channels, Count, "Channels that it uses; null: not known."),
        COLUMN(OperationRow, size_bytes, Bytes,
               "Elements times the size of one; null: the size of the type is not known."),
        COLUMN(OperationRow, data_bytes, Bytes,
               "The user's data that ranks sent over the network; null: not known."),
        COLUMN(OperationRow, tx_payload_bytes, Bytes,
               "What the transport carried for it, with the flags of LL and LL128; null: not "
               "known."),
        COLUMN(OperationRow, tx_wire_bytes, Bytes,
               "Its share of the frames of its connections; null: not measured."),
        COLUMN(OperationRow, certainty, Word,
               "How sure it is that the bytes belong to this operation, the weakest of its "
               "parts."),
        COLUMN(OperationRow, byte_source, Word,
               "How the bytes were measured, the weakest of its parts; null: no number."),
        COLUMN(OperationRow, is_partial, Flag, "1: a part of it is missing from the captures."),
        COLUMN(OperationRow, is_truncated, Flag,
               "1: its launch had more operations than were recorded."),
        COLUMN(OperationRow, is_captured, Flag,
               "1: captured into a CUDA graph; null: no launch was recorded, which alone shows "
               "it."),
        COLUMN(OperationRow, is_launched, Flag, "1: handed to a proxy, or known to need none."),
        COLUMN(OperationRow, launched_with, Count,
               "Operations of its launch, itself included; null: no launch is known."),
        COLUMN(OperationRow, called_realtime_ns, Realtime,
               "The first rank's call; null: not known."),
        COLUMN(OperationRow, last_rank, Number,
               "The rank that certainly called last; null: the clocks of hosts do not show it "
               "(clocks), not all its ranks are captured, or it was captured into a CUDA graph."),
        COLUMN(
            OperationRow, last_call_after_first_ns, Nanoseconds,
            "From the first rank's call to the last one's, no finer than clocks.typical_error_ns; "
            "null: as last_rank."),
        COLUMN(OperationRow, calls_within_ns, Nanoseconds,
               "All ranks called within this time, where last_rank is null, too; null: not all of "
               "them are captured, nothing bounds the clocks of their hosts, or it was captured "
               "into a CUDA graph."),
        COLUMN(OperationRow, first_launch_realtime_ns, Realtime,
               "The first rank's launch; null: none was recorded."),
        COLUMN(OperationRow, last_launch_realtime_ns, Realtime,
               "The last rank's launch; null: none was recorded."),
        COLUMN(OperationRow, end_realtime_ns, Realtime,
               "When its last part on the network ended; null: not measured."),
        COLUMN(OperationRow, end_after_realtime_ns, Realtime,
               "It ended after this; null: not known."),
        COLUMN(OperationRow, end_before_realtime_ns, Realtime,
               "It ended before this; null: not known."),
        COLUMN(OperationRow, end_known, Word,
               "How its end is known: measured, sampled (between two samples), bounded (by the "
               "next operation); null: not known."),
        COLUMN(OperationRow, least_duration_ns, Nanoseconds,
               "From the launch to the end on the slowest rank, at least; null: not known."),
        COLUMN(OperationRow, most_duration_ns, Nanoseconds,
               "From the launch to the end on the slowest rank, at most; null: not known."),
        COLUMN(OperationRow, local_state, Word,
               "How much of its bytes inside nodes is modelled: none, modelled, partial, "
               "not_recorded, not_modelled; null: no communicator has several ranks on a node."),
        COLUMN(OperationRow, local_payload_bytes, Bytes,
               "Bytes inside nodes, computed from launches and never measured; null: not known."),
    };
};

struct OperationTierRow {
    std::uint64_t operation = 0;
    Tier tier = Tier::Unknown;
    std::uint64_t tx_payload_bytes = 0;
    std::optional<std::uint64_t> tx_wire_bytes;
};
template <> struct Declaration<OperationTierRow> {
    static constexpr std::string_view TABLE = "operation_tiers";
    static constexpr std::string_view MEANING =
        "Bytes of operations by tier, one row for each tier that an operation used.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(OperationTierRow, operation, Number, "The operation: operations.operation."),
        COLUMN(OperationTierRow, tier, Word, "The highest switch level that the bytes cross."),
        COLUMN(OperationTierRow, tx_payload_bytes, Bytes, "What the transport carried there."),
        COLUMN(OperationTierRow, tx_wire_bytes, Bytes,
               "Its share of the frames there; null: not measured."),
    };
};

struct OperationRankRow {
    std::uint64_t operation = 0;
    std::int64_t rank = 0;
    std::string host;
    std::uint64_t pid = 0;
    std::string op;
    std::uint64_t called_realtime_ns = 0;
    std::optional<std::uint64_t> called_common_ns;
    std::optional<std::uint64_t> launched_realtime_ns;
    std::optional<std::uint64_t> kernel;
    std::optional<std::uint64_t> tx_payload_bytes;
    std::optional<std::uint64_t> rx_payload_bytes;
};
template <> struct Declaration<OperationRankRow> {
    static constexpr std::string_view TABLE = "operation_ranks";
    static constexpr std::string_view MEANING =
        "Each rank's call of each operation. Only with --detail.";
    static constexpr Scope SCOPE = Scope::Detail;
    static constexpr std::tuple COLUMNS{
        COLUMN(OperationRankRow, operation, Number, "The operation: operations.operation."),
        COLUMN(OperationRankRow, rank, Number, "The rank that called."),
        COLUMN(OperationRankRow, host, Text, "Its host: hosts.host."),
        COLUMN(OperationRankRow, pid, Number, "Its process, by the host's number."),
        COLUMN(OperationRankRow, op, Word, "NCCL's name of the call; of a pair Send or Recv."),
        COLUMN(OperationRankRow, called_realtime_ns, Realtime, "Its call."),
        COLUMN(OperationRankRow, called_common_ns, Common,
               "Its call, on one clock for all hosts: no finer than clocks.typical_error_ns; null: "
               "the host's clock was never read."),
        COLUMN(OperationRankRow, launched_realtime_ns, Realtime, "Its launch; null: not known."),
        COLUMN(OperationRankRow, kernel, Number,
               "Its kernel on the GPU: kernels.kernel; null: not recorded."),
        COLUMN(OperationRankRow, tx_payload_bytes, Bytes,
               "What the rank sent for it over the network; null: a part is not known."),
        COLUMN(OperationRankRow, rx_payload_bytes, Bytes,
               "What the rank received for it over the network; null: a part is not known."),
    };
};

struct FlowRow {
    std::uint64_t flow = 0;
    std::string host;
    std::uint64_t pid = 0;
    std::optional<std::uint64_t> comm;
    std::optional<std::int64_t> rank;
    std::optional<std::int64_t> peer_rank;
    std::optional<std::int64_t> channel;
    std::uint64_t n_channels = 0;
    bool is_send = false;
    std::string transport;
    Certainty certainty = Certainty::Process;
    std::optional<ByteSource> byte_source;
    std::uint64_t operations_payload_bytes = 0;
    std::optional<std::uint64_t> measured_payload_bytes;
    std::uint64_t queue_pairs = 0;
    std::uint64_t sockets = 0;
};
template <> struct Declaration<FlowRow> {
    static constexpr std::string_view TABLE = "flows";
    static constexpr std::string_view MEANING =
        "One end of an NCCL connection over the network, or of several that share queue pairs or "
        "sockets.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(FlowRow, flow, Number, "Number of the flow in this file."),
        COLUMN(FlowRow, host, Text, "The host of this end: hosts.host."),
        COLUMN(FlowRow, pid, Number, "The process of this end, by the host's number."),
        COLUMN(FlowRow, comm, Number,
               "The communicator that uses it; null: several, or not known."),
        COLUMN(FlowRow, rank, Number,
               "The rank of this end, in the communicator that created it; null: not known."),
        COLUMN(FlowRow, peer_rank, Number, "The rank of the other end; null: not known."),
        COLUMN(FlowRow, channel, Number, "NCCL's channel; null: several, or not known."),
        COLUMN(FlowRow, n_channels, Count, "Channels that use it."),
        COLUMN(FlowRow, is_send, Flag, "1: this end sends, 0: it receives."),
        COLUMN(FlowRow, transport, Word,
               "NCCL's network: NET/IB, NET/Socket, NET/Plugin, CollNet or unknown."),
        COLUMN(FlowRow, certainty, Word, "How sure its queue pairs or sockets are."),
        COLUMN(FlowRow, byte_source, Word,
               "How its bytes were measured; null: they were not measured."),
        COLUMN(FlowRow, operations_payload_bytes, Bytes,
               "The part of its bytes that operations have."),
        COLUMN(FlowRow, measured_payload_bytes, Bytes,
               "What it carried in the recording, with bytes of no operation; null: not measured."),
        COLUMN(FlowRow, queue_pairs, Count, "Its queue pairs that were found."),
        COLUMN(FlowRow, sockets, Count, "Its sockets that were found."),
    };
};

struct RankPairRow {
    std::uint64_t comm = 0;
    std::optional<std::int64_t> src_rank;
    std::optional<std::int64_t> dst_rank;
    std::string transport;
    Tier tier = Tier::Unknown;
    std::uint64_t payload_bytes = 0;
    std::optional<std::uint64_t> wire_bytes;
};
template <> struct Declaration<RankPairRow> {
    static constexpr std::string_view TABLE = "rank_pairs";
    static constexpr std::string_view MEANING =
        "Bytes of operations from rank to rank, data alone. For a sender in no capture: what was "
        "received.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(RankPairRow, comm, Number, "The communicator: communicators.comm."),
        COLUMN(RankPairRow, src_rank, Number, "The rank that sent; null: not known."),
        COLUMN(RankPairRow, dst_rank, Number, "The rank that received; null: not known."),
        COLUMN(RankPairRow, transport, Word,
               "NCCL's network: NET/IB, NET/Socket, NET/Plugin or unknown."),
        COLUMN(RankPairRow, tier, Word, "The highest switch level between them."),
        COLUMN(RankPairRow, payload_bytes, Bytes, "What the transport carried."),
        COLUMN(RankPairRow, wire_bytes, Bytes,
               "Its share of the frames; null: not measured for a part."),
    };
};

} // namespace collwire::rows
