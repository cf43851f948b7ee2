// SPDX-License-Identifier: Apache-2.0
#include "correlate/tabulate/rows_of_network.h"

#include <algorithm>

#include "collwire/qp_records.h"
#include "collwire/socket_records.h"
#include "correlate/capture/kinds.h"
#include "correlate/nccl/describe.h"
#include "correlate/report/names.h"
#include "correlate/rows/network_rows.h"
#include "correlate/tabulate/convert.h"

namespace collwire::tabulate {

using model::Index;
using model::Model;
using model::NONE;
using model::Qp;

namespace {

void set_remote(rows::QpRow &row, const Qp &qp) {
    row.remote_host = if_any(qp.remote_host);
    if (qp.has(CW_QP_DEST) && !qp.is_datagram())
        row.remote_qpn = qp.address.dest_qpn;
    row.peer = if_index(qp.peer);
    row.pairing = report::pairing_name(qp.pairing);
    row.tier = tier_of(qp.tier);
}

void set_bytes(rows::QpRow &row, const Qp &qp) {
    const model::QpBytes &bytes = qp.bytes;
    row.byte_source = byte_source_of(bytes.rung);
    row.tx_payload_bytes = bytes.tx_payload_bytes;
    row.rx_payload_bytes = bytes.rx_payload_bytes;
    row.tx_wire_bytes = bytes.tx_wire_bytes;
    row.rx_wire_bytes = bytes.rx_wire_bytes;
    row.retransmitted_wire_bytes = bytes.retransmitted_wire_bytes;
    row.tx_response_wire_bytes = bytes.tx_response_wire_bytes;
    row.tx_ack_wire_bytes = bytes.tx_ack_wire_bytes;
    row.posted_tx_payload_bytes = qp.posted_tx_payload_bytes;
    for (const std::string &loss : qp.damaged_by)
        row.damaged_by += (row.damaged_by.empty() ? "" : ",") + loss;
}

rows::QpRow qp_row(const Model &model, Index index) {
    const Qp &qp = model.qps[index];
    rows::QpRow row;
    row.qp = index;
    row.host = model.hosts[qp.host].name;
    if (qp.device != NONE)
        row.device = model.devices[qp.device].name;
    row.port = if_not_0(qp.port_number);
    row.qpn = qp.key.qpn;
    row.created_realtime_ns = model.hosts[qp.host].realtime_ns(qp.key.generation_ns);
    row.type = report::qp_type_text(qp.type);
    if (qp.process != NONE)
        row.pid = model.processes[qp.process].pid;
    row.owner = qp.has(CW_QP_KERNEL) ? "kernel" : qp.process != NONE ? "process" : "unknown";
    set_remote(row, qp);
    set_bytes(row, qp);
    if (qp.process != NONE)
        row.certainty = rows::Certainty::Process;
    if (index < model.nccl.qps.size()) {
        const nccl::QpIdentity &identity = model.nccl.qps[index];
        row.role = if_any(nccl::role_name(identity.role));
        row.derived_tx_payload_bytes = identity.derived_payload_bytes;
        row.flow = if_index(identity.link);
        set_flow(row, model.nccl, identity.link);
        if (identity.link != NONE)
            row.certainty =
                certainty_of(std::min(identity.rung, model.nccl.links[identity.link].rung));
    }
    row.path_mtu_bytes = if_not_0(qp.path_mtu_bytes());
    row.state = if_any(capture::qp_state_name(qp.state));
    row.is_preexisting = qp.has(CW_QP_PREEXISTING);
    return row;
}

rows::QpPeerRow peer_row(Index qp, const model::UdPeer &peer) {
    return {.qp = qp,
            .remote_gid = model::gid_text(peer.dgid),
            .remote_qpn = peer.dest_qpn,
            .remote_host = if_any(peer.remote_host),
            .tier = tier_of(peer.tier),
            .tx_frames = peer.tx_frames,
            .tx_wire_bytes = peer.tx_wire_bytes,
            .tx_payload_bytes = peer.tx_payload_bytes};
}

rows::SocketRow socket_row(const Model &model, Index index) {
    const nccl::Socket &socket = model.nccl.gathered.sockets[index];
    const nccl::SocketIdentity &identity = model.nccl.sockets[index];
    const cw_tcp_socket &last = socket.last;
    rows::SocketRow row;
    row.host = model.hosts[model.sessions[socket.session].host].name;
    row.pid = socket.tgid;
    row.local = nccl::endpoint_text(last.local_address, last.local_port);
    row.remote = nccl::endpoint_text(last.remote_address, last.remote_port);
    row.remote_host = if_any(identity.remote_host);
    if (identity.port != NONE)
        row.netdev = if_any(model.ports[identity.port].netdev);
    row.role = if_any(nccl::socket_role_name(identity));
    row.flow = if_index(identity.link);
    set_flow(row, model.nccl, identity.link);
    if (identity.link != NONE)
        row.certainty = certainty_of(model.nccl.links[identity.link].rung);
    row.tier = tier_of(identity.tier);
    row.tx_payload_bytes = identity.tx_bytes;
    row.rx_payload_bytes = identity.rx_bytes;
    row.retransmitted_bytes = identity.retransmitted_bytes;
    row.rtt_us = if_not_0(last.rtt_us);
    row.is_closed = (last.flags & CW_TCP_SOCKET_GONE) != 0;
    row.is_cut_short = identity.is_cut_short;
    row.is_paired = identity.peer != NONE;
    return row;
}

rows::DeviceRow device_row(const Model &model, const model::Device &device) {
    return {.host = model.hosts[device.host].name,
            .device = device.name,
            .driver = if_any(device.driver),
            .pci_address = if_any(device.pci_address),
            .numa_node = if_not_negative(device.numa_node),
            .is_software = device.is_software()};
}

rows::PortRow port_row(const Model &model, const model::Port &port) {
    const model::Device &device = model.devices[port.device];
    const model::PortBytes &bytes = port.bytes;
    rows::PortRow row;
    row.host = model.hosts[device.host].name;
    row.device = device.name;
    row.port = port.number;
    row.netdev = if_any(port.netdev);
    row.link_layer = capture::link_layer_name(port.link_layer);
    if (port.state != 0)
        row.state = std::string(capture::port_state_name(port.state));
    row.rate_mbps = if_not_0(port.rate_mbps);
    row.switch_name = if_any(port.switch_id);
    row.switch_port = if_any(port.switch_port);
    if (port.rail)
        row.rail = *port.rail;
    row.counter = bytes.source;
    row.tx_wire_bytes = bytes.tx_wire_bytes;
    row.rx_wire_bytes = bytes.rx_wire_bytes;
    row.explained_tx_bytes = bytes.explained_tx_bytes;
    row.explained_rx_bytes = bytes.explained_rx_bytes;
    row.uncertainty_bytes = bytes.uncertainty_bytes;
    row.self_tx_wire_bytes = bytes.self_tx_wire_bytes;
    row.tcp_tx_payload_bytes = bytes.tcp_tx_bytes;
    row.tcp_rx_payload_bytes = bytes.tcp_rx_bytes;
    row.counter_resets = bytes.counter_resets;
    row.qps_without_bytes = bytes.qps_without_bytes;
    return row;
}

} // namespace

void rows_of_network(const Model &model, rows::RowSink &sink) {
    for (Index index = 0; index < model.qps.size() && !sink.is_stopped(); ++index) {
        rows::put(sink, qp_row(model, index));
        for (const model::UdPeer &peer : model.qps[index].ud_peers)
            rows::put(sink, peer_row(index, peer));
    }
    for (const Index index : report::sockets_in_order(model))
        rows::put(sink, socket_row(model, index));
    for (const model::Device &device : model.devices)
        rows::put(sink, device_row(model, device));
    for (const Index index : report::ports_in_order(model))
        rows::put(sink, port_row(model, model.ports[index]));
}

} // namespace collwire::tabulate
