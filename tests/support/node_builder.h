// SPDX-License-Identifier: Apache-2.0
// A node's capture as a recorder would have written it, for tests of what is made of captures.
// Times are seconds after boot.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "collwire/wire_records.h"
#include "tests/support/capture_builder.h"

namespace collwire::test {

inline constexpr std::uint64_t NS = 1'000'000'000;
// 2026-01-02T03:04:05Z
inline constexpr std::uint64_t BOOT_REALTIME_NS = 1'767'323'045ULL * NS;

// Those before the clock began wrap around, as differences of clocks do.
[[nodiscard]] inline std::uint64_t seconds(double value) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(value * 1e9));
}

// 10.0.0.N as a RoCE v2 GID
[[nodiscard]] inline std::array<std::uint8_t, 16> ipv4_gid(std::uint8_t last) {
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last};
}

struct NodeOptions {
    std::string hostname = "node0";
    std::string boot_id = {}; // of the host name if empty
    std::uint64_t session_id = 1;
    std::uint32_t segment = 0;
    double start = 10;
    double clock_ahead = 0; // of realtime
    std::uint32_t flags = CW_NODE_FIRST_SEGMENT | CW_NODE_WIRE;
    std::string machine_id = {};
    std::uint64_t sample_interval_ns = NS;
};

struct QpOptions {
    std::uint32_t qpn = 17;
    double created = 11;
    std::uint8_t local = 1;  // 10.0.0.local
    std::uint8_t remote = 2; // 10.0.0.remote
    std::uint32_t remote_qpn = 18;
    std::uint32_t pid = 100;
    std::uint64_t pid_start_ns = 5 * NS;
    std::uint8_t type = 2; // RC
    std::uint32_t dev_index = 0;
    std::uint32_t sq_psn = 0;
    std::uint32_t rq_psn = 0;
    double connected_after = 0.1;
    std::uint32_t tid = 0; // that made it; 0: pid
};

// Frames of one direction: requests, responses, acknowledgements, retransmissions.
struct Frames {
    std::uint64_t requests = 0, request_payload = 0;
    std::uint64_t responses = 0, response_payload = 0;
    std::uint64_t acks = 0;
    std::uint64_t resent = 0;
    double first = 0;
    std::uint32_t first_psn = 0;
};
inline constexpr std::uint64_t FRAME_HEADERS = 58; // Ethernet, IPv4, UDP, BTH, ICRC
inline constexpr std::uint64_t ACK_FRAME = 62;
inline constexpr std::uint64_t RESENT_FRAME = 1082;

class NodeBuilder {
public:
    explicit NodeBuilder(NodeOptions options = {}) : options_(std::move(options)) {
        auto node = make_record<cw_node>(CW_KIND_NODE, seconds(options_.start));
        node.session_id = options_.session_id;
        node.segment = options_.segment;
        node.flags = options_.flags;
        node.realtime_ns = realtime(options_.start);
        node.record_start_ns = seconds(options_.start);
        node.sample_interval_ns = options_.sample_interval_ns;
        set_text(node.hostname, options_.hostname);
        set_text(node.boot_id,
                 options_.boot_id.empty() ? "boot-of-" + options_.hostname : options_.boot_id);
        set_text(node.machine_id, options_.machine_id);
        set_text(node.kernel_release, "6.1.0-test");
        set_text(node.tool_version, "0.1.0");
        capture_.add(node);
    }

    NodeBuilder &clock(double time) {
        auto clock = make_record<cw_clock>(CW_KIND_CLOCK, seconds(time));
        clock.realtime_ns = realtime(time);
        capture_.add(clock);
        return *this;
    }

    // rdma_rxe by default.
    NodeBuilder &device(std::uint32_t dev_index = 0, std::string_view name = "rxe0",
                        std::uint32_t flags = CW_DEVICE_SOFTWARE,
                        std::string_view pci_address = "") {
        auto device = make_record<cw_device>(CW_KIND_DEVICE, seconds(options_.start));
        device.dev_index = dev_index;
        device.flags = flags;
        device.numa_node = -1;
        device.n_ports = 1;
        set_text(device.name, name);
        set_text(device.driver, (flags & CW_DEVICE_SOFTWARE) != 0 ? "rdma_rxe" : "mlx5_core");
        set_text(device.pci_address, pci_address);
        capture_.add(device);
        return *this;
    }

    // Of a GPU, by default.
    NodeBuilder &pci_function(std::string_view address, std::string_view path,
                              std::int32_t numa_node, std::uint32_t class_code = 0x030200) {
        auto function = make_record<cw_pci_function>(CW_KIND_PCI_FUNCTION, seconds(options_.start));
        function.vendor = 0x10de;
        function.class_code = class_code;
        function.numa_node = numa_node;
        set_text(function.pci_address, address);
        set_text(function.path, path);
        return add(function);
    }

    [[nodiscard]] cw_port port_record(double time, std::uint32_t dev_index = 0) const {
        auto port = make_record<cw_port>(CW_KIND_PORT, seconds(time));
        port.dev_index = dev_index;
        port.port = 1;
        port.link_layer = CW_LINK_ETHERNET;
        port.state = 4;
        port.carrier = 1;
        port.active_mtu_bytes = 1024;
        port.ifindex = 2 + dev_index;
        set_text(port.netdev, "eth" + std::to_string(dev_index));
        return port;
    }
    NodeBuilder &port(std::uint32_t dev_index = 0) {
        return add(port_record(options_.start, dev_index));
    }

    NodeBuilder &gid(std::uint8_t last, std::uint32_t dev_index = 0) {
        auto gid = make_record<cw_gid>(CW_KIND_GID, seconds(options_.start));
        gid.dev_index = dev_index;
        gid.port = 1;
        gid.gid_index = 1;
        gid.type = CW_GID_ROCE_V2;
        std::memcpy(gid.gid, ipv4_gid(last).data(), 16);
        return add(gid);
    }

    // One rxe device with one port and 10.0.0.last.
    NodeBuilder &usual(std::uint8_t last) {
        return device().port().gid(last).source("qp").source("rxe_wire");
    }

    NodeBuilder &source(std::string_view name, cw_source_state state = CW_SOURCE_ON,
                        std::string_view reason = "") {
        auto source = make_record<cw_source>(CW_KIND_SOURCE, seconds(options_.start));
        source.state = state;
        source.dev_index = ~0U;
        set_text(source.name, name);
        set_text(source.reason, reason);
        return add(source);
    }

    NodeBuilder &process(std::uint32_t pid, std::uint64_t start_ns, std::string_view argv0,
                         std::string_view script = "") {
        auto process = make_record<cw_process>(CW_KIND_PROCESS, seconds(options_.start));
        process.pid = pid;
        process.start_boottime_ns = start_ns;
        process.numa_node = -1;
        set_text(process.comm, argv0.substr(0, 15));
        set_text(process.argv0, argv0);
        set_text(process.script, script);
        return add(process);
    }

    [[nodiscard]] static cw_qp_event qp_event(const QpOptions &options, cw_kind kind, double time) {
        auto event = make_record<cw_qp_event>(kind, seconds(time), 0);
        event.key = {options.dev_index, options.qpn, seconds(options.created)};
        event.tgid = options.pid;
        event.tid = options.tid == 0 ? options.pid : options.tid;
        event.start_boottime_ns = options.pid_start_ns;
        event.qp_type = options.type;
        event.old_state = 0xff;
        event.new_state = 0xff;
        event.port = 1;
        set_text(event.comm, "app");
        return event;
    }
    NodeBuilder &create(const QpOptions &options) {
        auto event = qp_event(options, CW_KIND_QP_CREATE, options.created);
        event.new_state = 0;
        event.port = 0;
        return add(event);
    }
    [[nodiscard]] static cw_qp_event connect_event(const QpOptions &options, cw_kind kind,
                                                   double time) {
        auto event = qp_event(options, kind, time);
        event.new_state = 3;
        event.flags = CW_QP_ADDRESS | CW_QP_GRH | CW_QP_SGID | CW_QP_DEST | CW_QP_PATH_MTU;
        if (options.sq_psn != 0 || options.rq_psn != 0)
            event.flags |= CW_QP_PSN_SQ | CW_QP_PSN_RQ;
        event.sq_psn = options.sq_psn;
        event.rq_psn = options.rq_psn;
        event.dest_qpn = options.remote_qpn;
        event.path_mtu = 3; // 1024
        event.gid_type = CW_GID_ROCE_V2;
        std::memcpy(event.sgid, ipv4_gid(options.local).data(), 16);
        std::memcpy(event.dgid, ipv4_gid(options.remote).data(), 16);
        return event;
    }
    // Created and ready to send.
    NodeBuilder &qp(const QpOptions &options) {
        create(options);
        return add(
            connect_event(options, CW_KIND_QP_STATE, options.created + options.connected_after));
    }
    NodeBuilder &datagram_qp(QpOptions options) {
        options.type = 4;
        create(options);
        auto event = qp_event(options, CW_KIND_QP_STATE, options.created + options.connected_after);
        event.new_state = 3;
        event.flags = CW_QP_SGID;
        event.gid_type = CW_GID_ROCE_V2;
        std::memcpy(event.sgid, ipv4_gid(options.local).data(), 16);
        return add(event);
    }
    NodeBuilder &destroy(const QpOptions &options, double time) {
        return add(qp_event(options, CW_KIND_QP_DESTROY, time));
    }

    NodeBuilder &wire(const QpOptions &options, double time, const Frames &tx, const Frames &rx) {
        auto wire = make_record<cw_qp_wire>(CW_KIND_QP_WIRE, seconds(time));
        wire.key = {options.dev_index, options.qpn, seconds(options.created)};
        fill(wire.counters.tx, tx);
        fill(wire.counters.rx, rx);
        return add(wire);
    }

    NodeBuilder &ud_peer(const QpOptions &options, double time, std::uint8_t to,
                         std::uint32_t to_qpn, std::uint64_t frames, std::uint64_t wire_bytes,
                         std::uint64_t payload_bytes) {
        auto peer = make_record<cw_ud_peer>(CW_KIND_UD_PEER, seconds(time));
        peer.key = {options.dev_index, options.qpn, seconds(options.created)};
        std::memcpy(peer.dgid, ipv4_gid(to).data(), 16);
        peer.dest_qpn = to_qpn;
        peer.tx_frames = frames;
        peer.tx_wire_bytes = wire_bytes;
        peer.tx_payload_bytes = payload_bytes;
        return add(peer);
    }

    // `n` work requests of `bytes` each, of one class.
    NodeBuilder &posts(const QpOptions &options, double time, cw_post_class post_class,
                       std::uint64_t n, std::uint64_t bytes, std::string_view device = "rxe0",
                       std::uint64_t context = 0x7000) {
        const cw_verbs_key key{context, options.pid, options.qpn, 0, 0};
        if (!device.empty()) {
            auto first = make_record<cw_verbs_qp>(CW_KIND_VERBS_QP, seconds(options.created + 0.2));
            first.key = key;
            first.start_boottime_ns = options.pid_start_ns;
            first.qp_type = options.type;
            set_text(first.device, device);
            add(first);
        }
        auto posts = make_record<cw_qp_post>(CW_KIND_QP_POST, seconds(time));
        posts.key = key;
        posts.counters.first_ns = seconds(options.created + 0.2);
        posts.counters.last_ns = seconds(time);
        posts.counters.posts = n;
        cw_post_class_counters &counters = posts.counters.classes[post_class];
        counters.wrs = n;
        counters.bytes = n * bytes;
        counters.zero_length_wrs = bytes == 0 ? n : 0;
        counters.pad_bytes = n * ((4 - bytes % 4) % 4);
        for (std::size_t mtu = 0; mtu < CW_MTU_CLASSES; ++mtu) {
            const std::uint64_t mtu_bytes = 256ULL << mtu;
            counters.packets[mtu] =
                n * std::max<std::uint64_t>(1, (bytes + mtu_bytes - 1) / mtu_bytes);
            if (post_class == CW_POST_READ && bytes > mtu_bytes)
                posts.counters.multi_packet_reads[mtu] = n;
        }
        return add(posts);
    }

    NodeBuilder &counter(std::uint32_t id, std::string_view name, cw_counter_source source,
                         cw_counter_unit unit, std::uint32_t dev_index = 0) {
        auto def = make_record<cw_counter_def>(CW_KIND_COUNTER_DEF, seconds(options_.start));
        def.id = id;
        def.dev_index = dev_index;
        def.port = 1;
        def.unit = unit;
        def.source = source;
        set_text(def.name, name);
        return add(def);
    }
    NodeBuilder &samples(double time, std::initializer_list<cw_counter_sample> samples) {
        capture_.add_samples(seconds(time), seconds(time), samples);
        return *this;
    }
    // eth0's bytes from 0 at the start to `tx` and `rx` at `time`.
    NodeBuilder &netdev(double time, std::uint64_t tx, std::uint64_t rx) {
        counter(1, "tx_bytes", CW_COUNTER_NETDEV, CW_UNIT_LINK_BYTES);
        counter(2, "rx_bytes", CW_COUNTER_NETDEV, CW_UNIT_LINK_BYTES);
        samples(options_.start, {{1, 0, 5000}, {2, 0, 7000}});
        return samples(time, {{1, 0, 5000 + tx}, {2, 0, 7000 + rx}});
    }

    NodeBuilder &carrier(double time, bool up, std::string_view netdev = "eth0") {
        auto carrier = make_record<cw_carrier>(CW_KIND_CARRIER, seconds(time), 0);
        carrier.up = up ? 1 : 0;
        set_text(carrier.netdev, netdev);
        return add(carrier);
    }
    NodeBuilder &async_event(double time, std::uint32_t event, std::uint32_t port = 1,
                             std::uint32_t qpn = 0) {
        auto async = make_record<cw_async_event>(CW_KIND_ASYNC_EVENT, seconds(time), 0);
        async.event = event;
        async.port = port;
        async.qpn = qpn;
        set_text(async.device, "rxe0");
        return add(async);
    }
    NodeBuilder &loss(cw_loss_class loss_class, std::uint16_t cpu, std::uint64_t records,
                      double time = 19) {
        auto loss = make_record<cw_loss>(CW_KIND_LOSS, seconds(time), cpu);
        loss.loss_class = loss_class;
        loss.records = records;
        return add(loss);
    }

    NodeBuilder &sample_gap(double begin, double end) {
        auto gap = make_record<cw_sample_gap>(CW_KIND_SAMPLE_GAP, seconds(end));
        gap.begin_ns = seconds(begin);
        return add(gap);
    }

    template <typename T> NodeBuilder &add(const T &record) {
        capture_.add(record);
        return *this;
    }
    NodeBuilder &add_header(const cw_header &record) {
        capture_.add_header(record);
        return *this;
    }
    NodeBuilder &end(double time = 20, std::uint32_t reason = 0) {
        capture_.add_end(seconds(time), reason);
        return *this;
    }
    [[nodiscard]] std::vector<std::byte> bytes() { return capture_.bytes(); }
    [[nodiscard]] CaptureBuilder &capture() { return capture_; }
    [[nodiscard]] std::uint64_t realtime(double time) const {
        return BOOT_REALTIME_NS + seconds(time + options_.clock_ahead);
    }

private:
    static void fill(cw_wire_direction &direction, const Frames &frames) {
        direction.frames[CW_WIRE_REQUEST] = frames.requests;
        direction.payload_bytes[CW_WIRE_REQUEST] = frames.request_payload;
        direction.wire_bytes[CW_WIRE_REQUEST] =
            frames.requests * FRAME_HEADERS + frames.request_payload;
        direction.frames[CW_WIRE_RESPONSE] = frames.responses;
        direction.payload_bytes[CW_WIRE_RESPONSE] = frames.response_payload;
        direction.wire_bytes[CW_WIRE_RESPONSE] =
            frames.responses * FRAME_HEADERS + frames.response_payload;
        direction.frames[CW_WIRE_ACK] = frames.acks;
        direction.wire_bytes[CW_WIRE_ACK] = frames.acks * ACK_FRAME;
        direction.frames[CW_WIRE_RETRANSMIT] = frames.resent;
        direction.wire_bytes[CW_WIRE_RETRANSMIT] = frames.resent * RESENT_FRAME;
        direction.payload_bytes[CW_WIRE_RETRANSMIT] = frames.resent * 1024;
        direction.first_ns = seconds(frames.first);
        direction.first_psn = frames.first_psn;
    }

    NodeOptions options_;
    CaptureBuilder capture_;
};

} // namespace collwire::test
