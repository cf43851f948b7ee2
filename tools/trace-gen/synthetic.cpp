// SPDX-License-Identifier: Apache-2.0
#include "tools/trace-gen/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "base/set_text.h"
#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/wire_records.h"
#include "tools/trace-gen/made_record.h"
#include "tools/trace-gen/nccl_rank.h"
#include "userspace/capture/writer.h"

namespace collwire::trace_gen {
namespace {

constexpr std::uint64_t SECOND_NS = 1'000'000'000;
constexpr std::uint64_t START_NS = 1000 * SECOND_NS; // monotonic clock of every node
constexpr std::uint64_t REALTIME_OFFSET_NS = 1'767'225'600 * SECOND_NS; // 2026-01-01 UTC
constexpr std::uint32_t DEV_INDEX = 0;
constexpr std::uint32_t PORT = 1;
constexpr std::uint32_t FIRST_QPN = 17;
constexpr std::uint32_t PID = 4321;
constexpr std::uint8_t PATH_MTU_1024 = 3;
constexpr std::uint64_t PAYLOAD_BYTES = 1024;
// Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4; an acknowledgement has an AETH of 4 (InfiniBand
// architecture 9.2, annex 17).
constexpr std::uint64_t HEADER_BYTES = 58;
constexpr std::uint64_t REQUEST_BYTES = HEADER_BYTES + PAYLOAD_BYTES;
constexpr std::uint64_t ACK_BYTES = HEADER_BYTES + 4;
constexpr std::uint64_t FRAMES_AN_ACK = 16;
constexpr std::uint8_t OPCODE_RC_WRITE_MIDDLE = 0x07;
constexpr std::uint8_t OPCODE_RC_ACK = 0x11;
constexpr std::uint64_t OTHER_BYTES_A_SECOND = 1000; // ARP etc.: traffic without a queue pair

struct End {
    std::uint32_t node = 0;
    std::uint32_t qpn = 0;
    std::uint64_t frames_a_second = 0; // requests sent per second
    std::uint32_t psn = 0;             // of the first request
};

struct QueuePair {
    End local;
    End remote;
};

// 10.x.y.z as an IPv4-mapped GID.
void put_gid(std::uint8_t (&gid)[16], std::uint32_t node) {
    const std::uint32_t address = node + 1;
    gid[10] = gid[11] = 0xff;
    gid[12] = 10;
    gid[13] = static_cast<std::uint8_t>(address >> 16);
    gid[14] = static_cast<std::uint8_t>(address >> 8);
    gid[15] = static_cast<std::uint8_t>(address);
}

// One ring of all nodes per channel: each node sends the data of its rank to the next node. The
// reverse direction is omitted.
std::vector<std::vector<QueuePair>> connect_rings(const SyntheticOptions &options) {
    std::mt19937_64 random(options.seed);
    std::vector<std::vector<QueuePair>> nodes(options.nodes);
    const std::uint64_t frames_a_second =
        nccl_frames_a_second(options.nodes, options.collectives_a_second);
    for (std::uint32_t channel = 0; channel < options.qps / 2; channel++) {
        for (std::uint32_t node = 0; node < options.nodes; node++) {
            const auto psn = static_cast<std::uint32_t>(random() & CW_QPN_MASK);
            const End sender{.node = node,
                             .qpn = nccl_send_qpn(FIRST_QPN, channel),
                             .frames_a_second = frames_a_second,
                             .psn = psn};
            const End receiver{.node = (node + 1) % options.nodes,
                               .qpn = nccl_receive_qpn(FIRST_QPN, channel)};
            nodes[sender.node].push_back({sender, receiver});
            nodes[receiver.node].push_back({receiver, sender});
        }
    }
    return nodes;
}

// Connection c joins a node with the next one, then with the second next, and so on.
std::vector<std::vector<QueuePair>> connect(const SyntheticOptions &options) {
    std::mt19937_64 random(options.seed);
    std::vector<std::vector<QueuePair>> nodes(options.nodes);
    std::vector<std::uint32_t> next_qpn(options.nodes, FIRST_QPN);
    const std::uint64_t connections =
        (static_cast<std::uint64_t>(options.nodes) * options.qps + 1) / 2;
    const auto end = [&](std::uint32_t node) {
        return End{.node = node,
                   .qpn = next_qpn[node]++,
                   .frames_a_second = 100 + random() % 100'000,
                   .psn = static_cast<std::uint32_t>(random() & CW_QPN_MASK)};
    };
    for (std::uint64_t c = 0; c < connections; c++) {
        const auto a = static_cast<std::uint32_t>(c % options.nodes);
        const std::uint64_t distance =
            options.nodes == 1 ? 0 : 1 + c / options.nodes % (options.nodes - 1);
        const auto b = static_cast<std::uint32_t>((a + distance) % options.nodes);
        const End left = end(a);
        const End right = end(b);
        nodes[a].push_back({left, right});
        nodes[b].push_back({right, left});
    }
    return nodes;
}

// Counters of what `from` sent after `seconds`; sender and receiver count the same.
cw_wire_direction sent_by(const End &from, const End &to, std::uint64_t seconds) {
    cw_wire_direction direction{};
    const std::uint64_t requests = from.frames_a_second * seconds;
    const std::uint64_t acks = to.frames_a_second * seconds / FRAMES_AN_ACK;
    direction.frames[CW_WIRE_REQUEST] = requests;
    direction.wire_bytes[CW_WIRE_REQUEST] = requests * REQUEST_BYTES;
    direction.payload_bytes[CW_WIRE_REQUEST] = requests * PAYLOAD_BYTES;
    direction.frames[CW_WIRE_ACK] = acks;
    direction.wire_bytes[CW_WIRE_ACK] = acks * ACK_BYTES;
    if (seconds > 0) {
        direction.first_ns = START_NS + 1000;
        direction.last_ns = START_NS + seconds * SECOND_NS - 1;
        direction.first_psn = requests > 0 ? from.psn : to.psn;
        direction.first_opcode = requests > 0 ? OPCODE_RC_WRITE_MIDDLE : OPCODE_RC_ACK;
    }
    return direction;
}

std::uint64_t sum_wire_bytes(const cw_wire_direction &direction) {
    return direction.wire_bytes[CW_WIRE_REQUEST] + direction.wire_bytes[CW_WIRE_ACK];
}

class NodeCapture {
public:
    NodeCapture(const SyntheticOptions &options, std::uint32_t node,
                const std::vector<QueuePair> &qps)
        : options_(options), node_(node), host_(fmt::format("node{}", node)), qps_(qps) {}

    Result<std::string> write() {
        auto made = capture::CaptureWriter::create(
            {.directory = options_.directory,
             .host = host_,
             .realtime_ns = [] { return START_NS + REALTIME_OFFSET_NS; }},
            [this](source::RecordSink &sink, std::uint32_t segment) { preamble(sink, segment); });
        if (!made)
            return std::move(made).failure();
        auto &writer = **made;
        writer.begin(START_NS);
        for (const QueuePair &qp : qps_)
            life(writer, qp);
        NcclRank rank({.rank = node_,
                       .n_ranks = options_.nodes,
                       .channels = options_.qps / 2,
                       .collectives_a_second = options_.collectives_a_second,
                       .pid = PID,
                       .first_qpn = FIRST_QPN,
                       .pid_start_ns = START_NS - SECOND_NS});
        if (options_.collectives_a_second != 0)
            rank.begin(writer, START_NS + 10);
        for (std::uint64_t second = 1; second <= options_.duration_s; second++) {
            if (options_.collectives_a_second != 0)
                rank.run(writer, START_NS + (second - 1) * SECOND_NS, SECOND_NS);
            sample(writer, second);
            writer.flush(START_NS + second * SECOND_NS);
        }
        const std::uint64_t end_ns = START_NS + (options_.duration_s + 1) * SECOND_NS;
        if (auto closed = writer.close(end_ns, 0, 0); !closed)
            return std::move(closed).failure();
        if (auto failure = writer.take_failure())
            return *std::move(failure);
        return writer.path();
    }

private:
    void preamble(source::RecordSink &sink, std::uint32_t segment) const {
        auto node = make<cw_node>(CW_KIND_NODE, START_NS);
        node.session_id = options_.seed * 1'000'003 + node_;
        node.segment = segment;
        node.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_WIRE |
                     (options_.collectives_a_second != 0 ? std::uint32_t{CW_NODE_NCCL} : 0U);
        node.realtime_ns = START_NS + REALTIME_OFFSET_NS;
        node.boottime_ns = START_NS;
        node.record_start_ns = START_NS;
        node.n_cpus = 1;
        node.sample_interval_ns = SECOND_NS;
        set_text(node.hostname, host_);
        set_text(node.boot_id, fmt::format("00000000-0000-4000-8000-{:012x}", node_));
        set_text(node.kernel_release, "synthetic");
        set_text(node.tool_version, TOOL_VERSION);
        sink.append(node.header);

        auto clock = make<cw_clock>(CW_KIND_CLOCK, START_NS);
        clock.realtime_ns = node.realtime_ns;
        clock.boottime_ns = START_NS;
        sink.append(clock.header);

        auto source = make<cw_source>(CW_KIND_SOURCE, START_NS);
        source.state = CW_SOURCE_ON;
        source.dev_index = ~0U;
        set_text(source.name, "rxe_wire");
        sink.append(source.header);
        inventory(sink);
    }

    void inventory(source::RecordSink &sink) const {
        auto device = make<cw_device>(CW_KIND_DEVICE, START_NS);
        device.dev_index = DEV_INDEX;
        device.flags = CW_DEVICE_SOFTWARE;
        device.numa_node = -1;
        device.n_ports = 1;
        set_text(device.name, "rxe0");
        set_text(device.driver, "rdma_rxe");
        sink.append(device.header);

        auto port = make<cw_port>(CW_KIND_PORT, START_NS);
        port.dev_index = DEV_INDEX;
        port.port = PORT;
        port.link_layer = CW_LINK_ETHERNET;
        port.state = 4;
        port.active_mtu_bytes = PAYLOAD_BYTES;
        port.ifindex = 2;
        port.carrier = 1;
        set_text(port.netdev, "eth0");
        sink.append(port.header);

        auto gid = make<cw_gid>(CW_KIND_GID, START_NS);
        gid.dev_index = DEV_INDEX;
        gid.port = PORT;
        gid.gid_index = 1;
        gid.type = CW_GID_ROCE_V2;
        put_gid(gid.gid, node_);
        set_text(gid.netdev, "eth0");
        sink.append(gid.header);

        auto process = make<cw_process>(CW_KIND_PROCESS, START_NS);
        process.pid = PID;
        process.start_boottime_ns = START_NS - SECOND_NS;
        process.numa_node = -1;
        set_text(process.comm, "synthetic");
        set_text(process.argv0, "synthetic");
        sink.append(process.header);

        constexpr std::array COUNTERS = {std::pair{1U, "tx_bytes"}, std::pair{2U, "rx_bytes"}};
        for (const auto &[id, name] : COUNTERS) {
            auto counter = make<cw_counter_def>(CW_KIND_COUNTER_DEF, START_NS);
            counter.id = id;
            counter.dev_index = DEV_INDEX;
            counter.port = PORT;
            counter.unit = CW_UNIT_LINK_BYTES;
            counter.source = CW_COUNTER_NETDEV;
            set_text(counter.name, name);
            sink.append(counter.header);
        }
        sample(sink, 0);
    }

    static void life(source::RecordSink &sink, const QueuePair &qp) {
        auto event = make<cw_qp_event>(CW_KIND_QP_CREATE, START_NS);
        event.header.cpu = 0;
        event.key = key_of(qp);
        event.tgid = event.tid = PID;
        event.start_boottime_ns = START_NS - SECOND_NS;
        set_text(event.comm, "synthetic");
        set_text(event.device, "rxe0");
        event.qp_type = 2;
        event.old_state = 0xff;
        event.gid_type = CW_GID_UNKNOWN;
        sink.append(event.header);

        event.header.kind = CW_KIND_QP_STATE;
        event.port = PORT;
        event.gid_type = CW_GID_ROCE_V2;
        event.sgid_index = 1;
        event.path_mtu = PATH_MTU_1024;
        event.dest_qpn = qp.remote.qpn;
        event.rq_psn = qp.remote.psn;
        event.sq_psn = qp.local.psn;
        event.flags = CW_QP_ADDRESS | CW_QP_GRH | CW_QP_SGID | CW_QP_DEST | CW_QP_PATH_MTU |
                      CW_QP_PSN_RQ | CW_QP_PSN_SQ;
        put_gid(event.sgid, qp.local.node);
        put_gid(event.dgid, qp.remote.node);
        for (std::uint8_t state = 1; state <= 3; state++) {
            event.header.time_ns++;
            event.old_state = static_cast<std::uint8_t>(state - 1);
            event.new_state = state;
            sink.append(event.header);
        }
    }

    static cw_qp_key key_of(const QueuePair &qp) {
        return {.dev_index = DEV_INDEX, .qpn = qp.local.qpn, .generation_ns = START_NS};
    }

    void sample(source::RecordSink &sink, std::uint64_t second) const {
        const std::uint64_t now_ns = START_NS + second * SECOND_NS;
        std::uint64_t tx_bytes = second * OTHER_BYTES_A_SECOND;
        std::uint64_t rx_bytes = second * OTHER_BYTES_A_SECOND;
        for (const QueuePair &qp : qps_) {
            auto wire = make<cw_qp_wire>(CW_KIND_QP_WIRE, now_ns);
            wire.key = key_of(qp);
            wire.counters.tx = sent_by(qp.local, qp.remote, second);
            wire.counters.rx = sent_by(qp.remote, qp.local, second);
            // Traffic of a node to itself does not reach its port.
            if (qp.remote.node != node_) {
                tx_bytes += sum_wire_bytes(wire.counters.tx);
                rx_bytes += sum_wire_bytes(wire.counters.rx);
            }
            if (second > 0)
                sink.append(wire.header);
        }
        struct Samples {
            cw_counter_samples head;
            std::array<cw_counter_sample, 2> samples;
        };
        Samples record{.head = make<cw_counter_samples>(CW_KIND_COUNTER_SAMPLES, now_ns),
                       .samples = {{{.id = 1, .reserved = 0, .value = tx_bytes},
                                    {.id = 2, .reserved = 0, .value = rx_bytes}}}};
        record.head.header.length_bytes = sizeof(record);
        record.head.read_begin_ns = now_ns - 1000;
        record.head.n = 2;
        sink.append(record.head.header);
    }

    const SyntheticOptions &options_;
    std::uint32_t node_;
    std::string host_;
    const std::vector<QueuePair> &qps_;
};

} // namespace

Result<std::vector<std::string>> write_synthetic(const SyntheticOptions &options) {
    if (options.nodes == 0)
        return error(ErrorKind::Usage, "no nodes to write. Fix: give --nodes 1 or more");
    if (options.qps > CW_QPN_MASK - FIRST_QPN - 1)
        return error(
            ErrorKind::Usage,
            fmt::format(
                "{} queue pairs on one node exceed the number space. Fix: give a smaller --qps",
                options.qps));
    if (options.collectives_a_second != 0 && (options.nodes < 2 || options.qps < 2))
        return error(ErrorKind::Usage, "collectives need two nodes and two queue pairs on each. "
                                       "Fix: give --nodes 2 --qps 2 or more");
    const auto nodes =
        options.collectives_a_second != 0 ? connect_rings(options) : connect(options);
    std::vector<std::string> paths;
    for (std::uint32_t node = 0; node < options.nodes; node++) {
        auto path = NodeCapture(options, node, nodes[node]).write();
        if (!path)
            return std::move(path).failure();
        paths.push_back(*std::move(path));
    }
    return paths;
}

} // namespace collwire::trace_gen
