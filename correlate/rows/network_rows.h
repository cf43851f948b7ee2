// SPDX-License-Identifier: Apache-2.0
// Rows of queue pairs, sockets and ports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "correlate/rows/words.h"

namespace collwire::rows {

struct QpRow {
    std::uint64_t qp = 0;
    std::string host;
    std::optional<std::string> device;
    std::optional<std::uint64_t> port;
    std::uint64_t qpn = 0;
    std::uint64_t created_realtime_ns = 0;
    std::string type;
    std::optional<std::uint64_t> pid;
    std::string owner;
    std::optional<std::string> remote_host;
    std::optional<std::uint64_t> remote_qpn;
    std::optional<std::uint64_t> peer;
    std::string pairing;
    Tier tier = Tier::Unknown;
    std::optional<std::string> role;
    std::optional<std::uint64_t> flow;
    std::optional<std::uint64_t> comm;
    std::optional<std::int64_t> rank;
    std::optional<std::int64_t> peer_rank;
    std::optional<std::int64_t> channel;
    std::optional<Certainty> certainty;
    std::optional<ByteSource> byte_source;
    std::optional<std::uint64_t> tx_payload_bytes;
    std::optional<std::uint64_t> rx_payload_bytes;
    std::optional<std::uint64_t> tx_wire_bytes;
    std::optional<std::uint64_t> rx_wire_bytes;
    std::optional<std::uint64_t> retransmitted_wire_bytes;
    std::optional<std::uint64_t> tx_response_wire_bytes;
    std::optional<std::uint64_t> tx_ack_wire_bytes;
    std::optional<std::uint64_t> posted_tx_payload_bytes;
    std::optional<std::uint64_t> derived_tx_payload_bytes;
    std::optional<std::uint64_t> path_mtu_bytes;
    std::optional<std::string> state;
    bool is_preexisting = false;
    std::string damaged_by;
};
template <> struct Declaration<QpRow> {
    static constexpr std::string_view TABLE = "qps";
    static constexpr std::string_view MEANING =
        "Queue pairs, one row for each generation of a number.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(QpRow, qp, Number, "Number of the queue pair in this file."),
        COLUMN(QpRow, host, Text, "Its host: hosts.host."),
        COLUMN(QpRow, device, Text, "Its RDMA device; null: not known."),
        COLUMN(QpRow, port, Number, "Its port of the device; null: not known."),
        COLUMN(QpRow, qpn, Number, "Its queue pair number."),
        COLUMN(QpRow, created_realtime_ns, Realtime,
               "When it was created, or discovered if it is older than the recording."),
        COLUMN(QpRow, type, Word, "Its type: RC, UC, UD and so on."),
        COLUMN(QpRow, pid, Number, "Its process, by the host's number; null: not known."),
        COLUMN(QpRow, owner, Word, "Who has it: process, kernel or unknown."),
        COLUMN(QpRow, remote_host, Text, "The host at its other end; null: not known."),
        COLUMN(QpRow, remote_qpn, Number,
               "The number at its other end; null: not known, or datagrams."),
        COLUMN(QpRow, peer, Number,
               "The queue pair at its other end: qps.qp; null: not in the captures."),
        COLUMN(QpRow, pairing, Word,
               "Whether its other end was found: paired, peer_not_captured, ambiguous or none."),
        COLUMN(QpRow, tier, Word,
               "The highest switch level to its other end; of datagrams the highest of all, and "
               "qp_peers has each."),
        COLUMN(QpRow, role, Word,
               "In a process that runs NCCL: data, clear_to_send, flush or other; else null."),
        COLUMN(QpRow, flow, Number,
               "NCCL's connection that it belongs to: flows.flow; null: not known."),
        COLUMN(QpRow, comm, Number,
               "The communicator of that connection; null: several, or not known."),
        COLUMN(QpRow, rank, Number, "The rank of this end; null: not known."),
        COLUMN(QpRow, peer_rank, Number, "The rank of the other end; null: not known."),
        COLUMN(QpRow, channel, Number, "NCCL's channel; null: several, or not known."),
        COLUMN(QpRow, certainty, Word,
               "How sure its owner is; null: the kernel, or not known (owner)."),
        COLUMN(QpRow, byte_source, Word, "How its bytes were measured; null: not measured."),
        COLUMN(QpRow, tx_payload_bytes, Bytes,
               "What the transport carried from it; null: not measured."),
        COLUMN(QpRow, rx_payload_bytes, Bytes,
               "What the transport carried to it; null: not measured."),
        COLUMN(QpRow, tx_wire_bytes, Bytes, "Whole frames that it sent; null: not measured."),
        COLUMN(QpRow, rx_wire_bytes, Bytes, "Whole frames that it received; null: not measured."),
        COLUMN(QpRow, retransmitted_wire_bytes, Bytes,
               "Frames that it sent again, in tx_wire_bytes too; null: not measured."),
        COLUMN(QpRow, tx_response_wire_bytes, Bytes,
               "The part of tx_wire_bytes that answers READ and ATOMIC; null: not measured."),
        COLUMN(QpRow, tx_ack_wire_bytes, Bytes,
               "The part of tx_wire_bytes that acknowledges; null: not counted."),
        COLUMN(QpRow, posted_tx_payload_bytes, Bytes,
               "Payload of its work requests, also where frames were counted; null: not "
               "recorded."),
        COLUMN(QpRow, derived_tx_payload_bytes, Bytes,
               "Computed bytes of NCCL's operations, in no other column; null: none, or its "
               "connection was "
               "measured."),
        COLUMN(QpRow, path_mtu_bytes, Bytes, "Its path MTU; null: not known."),
        COLUMN(QpRow, state, Word, "Its last recorded state; null: not known."),
        COLUMN(QpRow, is_preexisting, Flag, "1: it existed before the recording."),
        COLUMN(QpRow, damaged_by, Text,
               "Classes of loss that may make its bytes too low, with commas; empty: none."),
    };
};

struct QpPeerRow {
    std::uint64_t qp = 0;
    std::string remote_gid;
    std::uint64_t remote_qpn = 0;
    std::optional<std::string> remote_host;
    Tier tier = Tier::Unknown;
    std::uint64_t tx_frames = 0;
    std::uint64_t tx_wire_bytes = 0;
    std::uint64_t tx_payload_bytes = 0;
};
template <> struct Declaration<QpPeerRow> {
    static constexpr std::string_view TABLE = "qp_peers";
    static constexpr std::string_view MEANING =
        "Destinations of datagram queue pairs. Their bytes are parts of those in qps.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(QpPeerRow, qp, Number, "The queue pair that sent: qps.qp."),
        COLUMN(QpPeerRow, remote_gid, Text, "Address of the destination."),
        COLUMN(QpPeerRow, remote_qpn, Number, "Queue pair number of the destination."),
        COLUMN(QpPeerRow, remote_host, Text, "Host of the destination; null: not known."),
        COLUMN(QpPeerRow, tier, Word, "The highest switch level to it."),
        COLUMN(QpPeerRow, tx_frames, Count, "Frames that were sent there."),
        COLUMN(QpPeerRow, tx_wire_bytes, Bytes, "Whole frames that were sent there."),
        COLUMN(QpPeerRow, tx_payload_bytes, Bytes, "What the transport carried there."),
    };
};

struct SocketRow {
    std::string host;
    std::uint64_t pid = 0;
    std::string local;
    std::string remote;
    std::optional<std::string> remote_host;
    std::optional<std::string> netdev;
    std::optional<std::string> role;
    std::optional<std::uint64_t> flow;
    std::optional<std::uint64_t> comm;
    std::optional<std::int64_t> rank;
    std::optional<std::int64_t> peer_rank;
    std::optional<std::int64_t> channel;
    Certainty certainty = Certainty::Process;
    Tier tier = Tier::Unknown;
    std::optional<std::uint64_t> tx_payload_bytes;
    std::optional<std::uint64_t> rx_payload_bytes;
    std::optional<std::uint64_t> retransmitted_bytes;
    std::optional<std::uint64_t> rtt_us;
    bool is_closed = false;
    bool is_cut_short = false;
    bool is_paired = false;
};
template <> struct Declaration<SocketRow> {
    static constexpr std::string_view TABLE = "sockets";
    static constexpr std::string_view MEANING =
        "TCP sockets of NCCL's connections. Bytes are the kernel's counters, without frames and "
        "headers.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(SocketRow, host, Text, "Its host: hosts.host."),
        COLUMN(SocketRow, pid, Number, "Its process, by the host's number."),
        COLUMN(SocketRow, local, Text, "Its own address and port."),
        COLUMN(SocketRow, remote, Text, "The address and port of its other end."),
        COLUMN(SocketRow, remote_host, Text, "The host at its other end; null: not known."),
        COLUMN(SocketRow, netdev, Text, "The interface of its own address; null: not known."),
        COLUMN(SocketRow, role, Word, "data or control; null: of no known connection."),
        COLUMN(SocketRow, flow, Number,
               "NCCL's connection that it belongs to: flows.flow; null: not known."),
        COLUMN(SocketRow, comm, Number,
               "The communicator of that connection; null: several, or not known."),
        COLUMN(SocketRow, rank, Number, "The rank of this end; null: not known."),
        COLUMN(SocketRow, peer_rank, Number, "The rank of the other end; null: not known."),
        COLUMN(SocketRow, channel, Number, "NCCL's channel; null: several, or not known."),
        COLUMN(SocketRow, certainty, Word, "How sure its connection is."),
        COLUMN(SocketRow, tier, Word, "The highest switch level to its other end."),
        COLUMN(SocketRow, tx_payload_bytes, Bytes,
               "What the other end acknowledged; null: not measured."),
        COLUMN(SocketRow, rx_payload_bytes, Bytes, "What arrived; null: not measured."),
        COLUMN(SocketRow, retransmitted_bytes, Bytes,
               "Sent again, not in tx_payload_bytes; null: the kernel does not count it."),
        COLUMN(SocketRow, rtt_us, Microseconds,
               "The kernel's smoothed round trip time at the last sample; null: it has none."),
        COLUMN(SocketRow, is_closed, Flag, "1: closed before the recording ended."),
        COLUMN(SocketRow, is_cut_short, Flag,
               "1: closed before its last counters were read, so its last bytes are missing."),
        COLUMN(SocketRow, is_paired, Flag, "1: its other end is in these captures too."),
    };
};

struct DeviceRow {
    std::string host;
    std::string device;
    std::optional<std::string> driver;
    std::optional<std::string> pci_address;
    std::optional<std::int64_t> numa_node;
    bool is_software = false;
};
template <> struct Declaration<DeviceRow> {
    static constexpr std::string_view TABLE = "devices";
    static constexpr std::string_view MEANING = "RDMA devices of captured hosts.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(DeviceRow, host, Text, "Its host: hosts.host."),
        COLUMN(DeviceRow, device, Text, "Its name."),
        COLUMN(DeviceRow, driver, Text, "Its kernel module; null: not known."),
        COLUMN(DeviceRow, pci_address, Text, "Its PCI address; null: no PCI device."),
        COLUMN(DeviceRow, numa_node, Number, "Its NUMA node; null: none, or not known."),
        COLUMN(DeviceRow, is_software, Flag, "1: no hardware (rdma_rxe, siw)."),
    };
};

struct PortRow {
    std::string host;
    std::string device;
    std::uint64_t port = 0;
    std::optional<std::string> netdev;
    std::string link_layer;
    std::optional<std::string> state;
    std::optional<std::uint64_t> rate_mbps;
    std::optional<std::string> switch_name;
    std::optional<std::string> switch_port;
    std::optional<std::uint64_t> rail;
    std::string counter;
    std::optional<std::uint64_t> tx_wire_bytes;
    std::optional<std::uint64_t> rx_wire_bytes;
    std::optional<std::uint64_t> explained_tx_bytes;
    std::optional<std::uint64_t> explained_rx_bytes;
    std::optional<std::uint64_t> uncertainty_bytes;
    std::optional<std::uint64_t> self_tx_wire_bytes;
    std::optional<std::uint64_t> tcp_tx_payload_bytes;
    std::optional<std::uint64_t> tcp_rx_payload_bytes;
    std::uint64_t counter_resets = 0;
    std::uint64_t qps_without_bytes = 0;
};
template <> struct Declaration<PortRow> {
    static constexpr std::string_view TABLE = "ports";
    static constexpr std::string_view MEANING =
        "Ports of RDMA devices: their own counters over the recording, and what is known of "
        "these bytes.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(PortRow, host, Text, "Its host: hosts.host."),
        COLUMN(PortRow, device, Text, "Its RDMA device."),
        COLUMN(PortRow, port, Number, "Its number on the device."),
        COLUMN(PortRow, netdev, Text, "Its network interface; null: none, or not known."),
        COLUMN(PortRow, link_layer, Word, "Ethernet or InfiniBand."),
        COLUMN(PortRow, state, Word, "Its last recorded state; null: not known."),
        COLUMN(PortRow, rate_mbps, MegabitsPerSecond, "Its rate; null: not known."),
        COLUMN(PortRow, switch_name, Text, "Its switch in the topology; null: not given."),
        COLUMN(PortRow, switch_port, Text, "The port of that switch; null: not given."),
        COLUMN(PortRow, rail, Number, "Its rail in the topology; null: not given."),
        COLUMN(PortRow, counter, Word, "The counter that its bytes are from; none: it has none."),
        COLUMN(PortRow, tx_wire_bytes, Bytes, "Sent, by its counter; null: not measured."),
        COLUMN(PortRow, rx_wire_bytes, Bytes, "Received, by its counter; null: not measured."),
        COLUMN(PortRow, explained_tx_bytes, Bytes,
               "Frames that its queue pairs sent; null: not known."),
        COLUMN(PortRow, explained_rx_bytes, Bytes,
               "Frames that its queue pairs received; null: not known."),
        COLUMN(PortRow, uncertainty_bytes, Bytes,
               "How far counter and queue pairs may differ, as they are not sampled at the same "
               "moment; null: not known."),
        COLUMN(PortRow, self_tx_wire_bytes, Bytes,
               "Frames of its queue pairs that never reached it; null: not known."),
        COLUMN(PortRow, tcp_tx_payload_bytes, Bytes,
               "What NCCL's sockets sent on its interface; null: no socket is known there."),
        COLUMN(PortRow, tcp_rx_payload_bytes, Bytes,
               "What NCCL's sockets received on its interface; null: no socket is known there."),
        COLUMN(PortRow, counter_resets, Count, "How often the counter fell and counted anew."),
        COLUMN(PortRow, qps_without_bytes, Count, "Its queue pairs with unknown bytes."),
    };
};

} // namespace collwire::rows
