// SPDX-License-Identifier: Apache-2.0
// Rows of totals: by tier, by process, between hosts, by certainty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "correlate/rows/words.h"

namespace collwire::rows {

struct TierRow {
    Tier tier = Tier::Unknown;
    std::uint64_t qps = 0;
    std::uint64_t qps_without_bytes = 0;
    std::optional<std::uint64_t> tx_wire_bytes;
    std::optional<std::uint64_t> tx_payload_bytes;
    std::optional<std::uint64_t> retransmitted_wire_bytes;
    std::optional<std::uint64_t> derived_tx_payload_bytes;
    std::uint64_t sockets = 0;
    std::optional<std::uint64_t> tcp_tx_payload_bytes;
    std::optional<std::uint64_t> tcp_derived_tx_payload_bytes;
};
template <> struct Declaration<TierRow> {
    static constexpr std::string_view TABLE = "tiers";
    static constexpr std::string_view MEANING =
        "What captured hosts sent, by the highest switch level crossed.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(TierRow, tier, Word, "The highest switch level that the bytes cross."),
        COLUMN(TierRow, qps, Count, "Queue pairs; one of datagrams counts in each of its tiers."),
        COLUMN(TierRow, qps_without_bytes, Count,
               "Queue pairs with unknown bytes: where any, bytes are lower bounds."),
        COLUMN(TierRow, tx_wire_bytes, Bytes,
               "Whole frames of queue pairs; 0: certainly none; null: not known."),
        COLUMN(
            TierRow, tx_payload_bytes, Bytes,
            "What the transport carried for queue pairs; 0: certainly nothing; null: not known."),
        COLUMN(TierRow, retransmitted_wire_bytes, Bytes,
               "Frames that were sent again; null: not measured."),
        COLUMN(TierRow, derived_tx_payload_bytes, Bytes,
               "Computed bytes of queue pairs that were not measured, in no other column; null: "
               "none."),
        COLUMN(TierRow, sockets, Count, "NCCL's TCP sockets."),
        COLUMN(TierRow, tcp_tx_payload_bytes, Bytes,
               "What NCCL's sockets sent, in no other column; null: not measured."),
        COLUMN(TierRow, tcp_derived_tx_payload_bytes, Bytes,
               "Computed bytes of connections without recorded sockets; null: none."),
    };
};

struct ProcessRow {
    std::uint64_t process = 0;
    std::string host;
    std::uint64_t pid = 0;
    std::optional<std::string> title;
    std::optional<std::string> cmdline;
    std::optional<std::uint64_t> uid;
    std::optional<std::string> slurm_job;
    std::optional<std::string> slurm_step;
    std::optional<std::string> pod_uid;
    std::optional<std::string> container_id;
    std::uint64_t qps = 0;
    std::uint64_t qps_without_bytes = 0;
    std::optional<std::uint64_t> tx_wire_bytes;
    std::optional<std::uint64_t> rx_wire_bytes;
    std::optional<std::uint64_t> tx_payload_bytes;
    std::optional<std::uint64_t> rx_payload_bytes;
    std::optional<std::uint64_t> derived_tx_payload_bytes;
    std::optional<std::uint64_t> tcp_tx_payload_bytes;
    std::optional<std::uint64_t> tcp_rx_payload_bytes;
};
template <> struct Declaration<ProcessRow> {
    static constexpr std::string_view TABLE = "processes";
    static constexpr std::string_view MEANING =
        "Processes with queue pairs or with sockets of NCCL's connections.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(ProcessRow, process, Number, "Number of the process in this file."),
        COLUMN(ProcessRow, host, Text, "Its host: hosts.host."),
        COLUMN(ProcessRow, pid, Number, "Its number on the host."),
        COLUMN(ProcessRow, title, Text, "Program and script, in short; null: not known."),
        COLUMN(ProcessRow, cmdline, Text, "Its command line; null: not known."),
        COLUMN(ProcessRow, uid, Number, "Its user; null: not known."),
        COLUMN(ProcessRow, slurm_job, Text, "Its Slurm job; null: none, or not known."),
        COLUMN(ProcessRow, slurm_step, Text, "Its Slurm step; null: none, or not known."),
        COLUMN(ProcessRow, pod_uid, Text, "Its Kubernetes pod; null: none, or not known."),
        COLUMN(ProcessRow, container_id, Text, "Its container; null: none, or not known."),
        COLUMN(ProcessRow, qps, Count, "Its queue pairs."),
        COLUMN(ProcessRow, qps_without_bytes, Count, "Those with unknown bytes."),
        COLUMN(ProcessRow, tx_wire_bytes, Bytes, "Whole frames sent; null: not measured."),
        COLUMN(ProcessRow, rx_wire_bytes, Bytes, "Whole frames received; null: not measured."),
        COLUMN(ProcessRow, tx_payload_bytes, Bytes,
               "What the transport carried from it; null: not measured."),
        COLUMN(ProcessRow, rx_payload_bytes, Bytes,
               "What the transport carried to it; null: not measured."),
        COLUMN(ProcessRow, derived_tx_payload_bytes, Bytes,
               "Computed bytes of queue pairs that were not measured, in no other column; null: "
               "none."),
        COLUMN(ProcessRow, tcp_tx_payload_bytes, Bytes,
               "What its NCCL sockets sent; null: not measured."),
        COLUMN(ProcessRow, tcp_rx_payload_bytes, Bytes,
               "What its NCCL sockets received; null: not measured."),
    };
};

struct ProcessTierRow {
    std::uint64_t process = 0;
    Tier tier = Tier::Unknown;
    std::uint64_t tx_wire_bytes = 0;
};
template <> struct Declaration<ProcessTierRow> {
    static constexpr std::string_view TABLE = "process_tiers";
    static constexpr std::string_view MEANING =
        "What the queue pairs of processes sent, by tier. No row: not measured, or nothing.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(ProcessTierRow, process, Number, "The process: processes.process."),
        COLUMN(ProcessTierRow, tier, Word, "The highest switch level that the bytes cross."),
        COLUMN(ProcessTierRow, tx_wire_bytes, Bytes, "Whole frames sent."),
    };
};

struct HostPairRow {
    std::uint64_t host_pair = 0;
    std::string src_host;
    std::string destination;
    bool is_captured = false;
    std::uint64_t qps = 0;
    std::uint64_t qps_without_bytes = 0;
    std::optional<std::uint64_t> tx_wire_bytes;
    std::optional<std::uint64_t> tx_payload_bytes;
    std::optional<std::uint64_t> derived_tx_payload_bytes;
    std::uint64_t sockets = 0;
    std::optional<std::uint64_t> tcp_tx_payload_bytes;
};
template <> struct Declaration<HostPairRow> {
    static constexpr std::string_view TABLE = "host_pairs";
    static constexpr std::string_view MEANING = "What captured hosts sent to each other host.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(HostPairRow, host_pair, Number, "Number of the pair in this file."),
        COLUMN(HostPairRow, src_host, Text, "The host that sent: hosts.host."),
        COLUMN(HostPairRow, destination, Text,
               "The other host, the address of an unknown one, or in parentheses why it is not "
               "known."),
        COLUMN(HostPairRow, is_captured, Flag, "1: the destination is in the captures."),
        COLUMN(HostPairRow, qps, Count, "Queue pairs."),
        COLUMN(HostPairRow, qps_without_bytes, Count,
               "Queue pairs with unknown bytes: where any, bytes are lower bounds."),
        COLUMN(HostPairRow, tx_wire_bytes, Bytes,
               "Whole frames of queue pairs; null: not measured."),
        COLUMN(HostPairRow, tx_payload_bytes, Bytes,
               "What the transport carried for queue pairs; null: not measured."),
        COLUMN(HostPairRow, derived_tx_payload_bytes, Bytes,
               "Computed bytes of queue pairs that were not measured, in no other column; null: "
               "none."),
        COLUMN(HostPairRow, sockets, Count, "NCCL's TCP sockets."),
        COLUMN(HostPairRow, tcp_tx_payload_bytes, Bytes,
               "What NCCL's sockets sent, in no other column; null: not measured."),
    };
};

struct HostPairTierRow {
    std::uint64_t host_pair = 0;
    Tier tier = Tier::Unknown;
    std::uint64_t tx_wire_bytes = 0;
};
template <> struct Declaration<HostPairTierRow> {
    static constexpr std::string_view TABLE = "host_pair_tiers";
    static constexpr std::string_view MEANING =
        "What queue pairs sent from host to host, by tier. No row: not measured, or nothing.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(HostPairTierRow, host_pair, Number, "The pair: host_pairs.host_pair."),
        COLUMN(HostPairTierRow, tier, Word, "The highest switch level that the bytes cross."),
        COLUMN(HostPairTierRow, tx_wire_bytes, Bytes, "Whole frames sent."),
    };
};

struct IdentityRow {
    Certainty certainty = Certainty::Process;
    std::optional<std::uint64_t> payload_bytes;
};
template <> struct Declaration<IdentityRow> {
    static constexpr std::string_view TABLE = "identity";
    static constexpr std::string_view MEANING =
        "NCCL's data over the network by certainty, each byte once. No row: no recording has "
        "NCCL.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(IdentityRow, certainty, Word, "How sure it is which operation the bytes belong to."),
        COLUMN(IdentityRow, payload_bytes, Bytes,
               "What the transport carried first; null: not measured, and nothing computed."),
    };
};

} // namespace collwire::rows
