// SPDX-License-Identifier: Apache-2.0
#include "tools/trace-gen/job_inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/set_text.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/record_kinds.h"
#include "tools/trace-gen/job_node.h"
#include "tools/trace-gen/job_params.h"
#include "tools/trace-gen/made_record.h"
#include "tools/trace-gen/synthetic.h"

namespace collwire::trace_gen {
namespace {

constexpr std::uint32_t NCCL_VERSION = 22809;
constexpr std::uint32_t IMAGE = 1;
constexpr std::uint32_t PORT = 1;
constexpr std::uint8_t MTU_4096 = 5;
constexpr std::uint32_t RECORDER_PID = 900;
constexpr std::uint64_t INODES_OF_RANK = 100'000'000;
constexpr std::uint64_t SETUP_INODES = 50'000'000;
constexpr std::array<std::string_view, 8> SOURCES_ON = {"inventory", "counters", "qp",   "posts",
                                                        "ports",     "mappings", "nccl", "sockets"};

constexpr std::array<JobRole, JOB_ROLES> ROLES = {JobRole::Data, JobRole::Tensor, JobRole::Pipeline,
                                                  JobRole::Expert};

std::uint32_t gpu_bus(std::uint32_t local) {
    return 0x1b + local * 0x20;
}

// JobCommunicator::at_place of every place: with thousands of ranks most of a capture is this.
void ring_from_place_0(const JobCommunicator &comm, std::uint32_t channel,
                       std::vector<std::int32_t> &ring) {
    const std::uint32_t k = comm.width();
    for (std::uint32_t place = 0; place < k; place++)
        ring[place] = static_cast<std::int32_t>(comm.at_place(place, channel));
    for (std::size_t place = k; place < ring.size(); place++)
        ring[place] = ring[place - k] + static_cast<std::int32_t>(k);
}

} // namespace

std::string host_of_node(std::uint32_t node) {
    return fmt::format("gpu-{:04}", node);
}

void put_nic_address(std::uint8_t (&gid)[16], std::uint32_t node, std::uint32_t nic) {
    std::memset(gid, 0, sizeof(gid));
    gid[10] = gid[11] = 0xff;
    gid[12] = 10;
    gid[13] = static_cast<std::uint8_t>(nic);
    gid[14] = static_cast<std::uint8_t>(node / NODES_OF_POD);
    gid[15] = static_cast<std::uint8_t>(node % NODES_OF_POD + 1);
}

std::string job_topology(std::uint32_t nodes) {
    const std::uint32_t pods = (nodes + NODES_OF_POD - 1) / NODES_OF_POD;
    return fmt::format(
        R"({{
  "collwire_topology": 1,
  "source": "collwire-trace-gen job",
  "switches": [
    {{"id": "pod{{p}}-leaf{{i}}", "tier": "leaf", "uplinks": ["spine{{s}}"], "vars": {{"p": "0-{}", "i": "0-7", "s": "0-7"}}}},
    {{"id": "spine[0-7]", "tier": "spine"}}
  ],
  "ports": [
    {{"host": "gpu-[0000-{:04}]", "device": "mlx5_{{i}}", "port": 1, "switch": "pod{{p}}-leaf{{i}}", "ip": "10.{{i}}.{{p}}.{{h}}", "rail": "{{i}}",
     "vars": {{"i": "0-7", "p": {{"of": "n", "every": {}}}, "h": {{"of": "n", "within": {}, "start": 1}}}}}}
  ]
}}
)",
        pods - 1, nodes - 1, NODES_OF_POD, NODES_OF_POD);
}

void JobInventory::clock(source::RecordSink &sink, std::uint64_t true_ns) const {
    auto clock = make<cw_clock>(CW_KIND_CLOCK, clock_.monotonic_ns(true_ns));
    clock.realtime_ns = clock_.realtime_ns(true_ns);
    clock.boottime_ns = clock.header.time_ns;
    clock.uncertainty_ns = 80;
    sink.append(clock.header);
}

void JobInventory::machine(source::RecordSink &sink, std::uint32_t segment) const {
    const JobOptions &options = plan_.options();
    auto node = make<cw_node>(CW_KIND_NODE, clock_.boot_ns);
    node.session_id = options.seed * 1'000'003 + node_;
    node.segment = segment;
    node.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_NCCL | CW_NODE_SOCKETS |
                 (options.bytes == JobBytes::Posts ? std::uint32_t{CW_NODE_POSTS} : 0U);
    node.realtime_ns = clock_.realtime_ns(0);
    node.boottime_ns = node.record_start_ns = clock_.boot_ns;
    node.recorder_pid = RECORDER_PID;
    node.n_cpus = 192;
    node.sample_interval_ns = SAMPLE_NS;
    set_text(node.hostname, host_of_node(node_));
    set_text(node.boot_id, fmt::format("{:08x}-0000-4000-8000-{:012x}", options.seed, node_));
    set_text(node.machine_id, fmt::format("{:016x}{:016x}", options.seed, node_));
    set_text(node.kernel_release, "6.8.0-synthetic");
    set_text(node.tool_version, TOOL_VERSION);
    sink.append(node.header);
    clock(sink, 0);
    for (const std::string_view name : SOURCES_ON) {
        auto source = make<cw_source>(CW_KIND_SOURCE, clock_.boot_ns);
        source.state =
            name != "posts" || options.bytes == JobBytes::Posts ? CW_SOURCE_ON : CW_SOURCE_OFF;
        source.dev_index = ~0U;
        set_text(source.name, name);
        sink.append(source.header);
    }
}

void JobInventory::nic(source::RecordSink &sink, std::uint32_t nic) const {
    const std::uint64_t now_ns = clock_.boot_ns;
    auto device = make<cw_device>(CW_KIND_DEVICE, now_ns);
    device.dev_index = nic;
    device.node_guid = 0xa088c20300000000 + node_ * std::uint64_t{0x100} + nic;
    device.numa_node = static_cast<std::int32_t>(nic / 4);
    device.n_ports = 1;
    set_text(device.name, fmt::format("mlx5_{}", nic));
    set_text(device.driver, "mlx5_core");
    set_text(device.pci_address, fmt::format("0000:{:02x}:00.0", gpu_bus(nic) + 1));
    set_text(device.firmware, "28.39.1002");
    sink.append(device.header);

    auto port = make<cw_port>(CW_KIND_PORT, now_ns);
    port.dev_index = nic;
    port.port = PORT;
    port.link_layer = CW_LINK_ETHERNET;
    port.state = 4;
    port.phys_state = 5;
    port.active_mtu_bytes = 4096;
    port.rate_mbps = 400'000;
    port.ifindex = nic + 10;
    port.carrier = 1;
    set_text(port.netdev, fmt::format("rail{}", nic));
    sink.append(port.header);

    auto gid = make<cw_gid>(CW_KIND_GID, now_ns);
    gid.dev_index = nic;
    gid.port = PORT;
    gid.gid_index = 3;
    gid.type = CW_GID_ROCE_V2;
    put_nic_address(gid.gid, node_, nic);
    set_text(gid.netdev, fmt::format("rail{}", nic));
    sink.append(gid.header);

    constexpr std::array<std::string_view, 4> COUNTERS = {"port_xmit_data", "port_rcv_data",
                                                          "port_xmit_packets", "port_rcv_packets"};
    for (std::uint32_t i = 0; i < COUNTERS.size(); i++) {
        auto counter = make<cw_counter_def>(CW_KIND_COUNTER_DEF, now_ns);
        counter.id = nic * static_cast<std::uint32_t>(COUNTERS.size()) + i + 1;
        counter.dev_index = nic;
        counter.port = PORT;
        counter.unit = i < 2 ? CW_UNIT_OCTETS_4 : CW_UNIT_PACKETS;
        counter.source = CW_COUNTER_PORT;
        set_text(counter.name, COUNTERS[i]);
        sink.append(counter.header);
    }
}

void JobInventory::process(source::RecordSink &sink, std::uint32_t local) const {
    const std::uint32_t pid = pid_of_rank(node_ * GPUS + local);
    auto process = make<cw_process>(CW_KIND_PROCESS, clock_.boot_ns);
    process.pid = process.namespace_pid = pid;
    process.parent_pid = RECORDER_PID + 1;
    process.start_boottime_ns = process_start_ns();
    process.uid = 1000;
    process.numa_node = -1;
    set_text(process.comm, "python3");
    set_text(process.executable, "/usr/bin/python3.10");
    set_text(process.argv0, "python3");
    set_text(process.script, "train.py");
    set_text(process.slurm_job, fmt::format("{}", 4711 + plan_.options().seed));
    set_text(process.slurm_step, "0");
    set_text(process.cgroup, fmt::format("/system.slice/slurmstepd.scope/job_{}/step_0",
                                         4711 + plan_.options().seed));
    sink.append(process.header);
}

void JobInventory::preamble(source::RecordSink &sink, std::uint32_t segment) const {
    machine(sink, segment);
    for (std::uint32_t i = 0; i < GPUS; i++)
        nic(sink, i);
    for (std::uint32_t local = 0; local < GPUS; local++)
        process(sink, local);
    auto image = make<cw_nccl_image>(CW_KIND_NCCL_IMAGE, clock_.boot_ns);
    image.image_id = IMAGE;
    image.version = NCCL_VERSION;
    image.inode = 4'242'424;
    std::fill(std::begin(image.rungs), std::end(image.rungs), std::uint8_t{CW_RUNG_EXACT});
    set_text(image.build_id, "00000000000000000000000000000000c0111e55");
    set_text(image.path, "/opt/venv/lib/python3.10/site-packages/nvidia/nccl/lib/libnccl.so.2");
    set_text(image.basis, "the file's own symbols and DWARF");
    sink.append(image.header);
}

std::uint32_t JobInventory::qpn(const RankEdge &edge) const {
    const JobEdge &of_plan = plan_.edges()[edge.edge];
    return edge.is_send ? of_plan.from_qpn : of_plan.to_qpn;
}

std::uint32_t JobInventory::nic_of(const RankEdge &edge) const {
    const JobEdge &of_plan = plan_.edges()[edge.edge];
    return edge.is_send ? of_plan.from_nic : of_plan.to_nic;
}

cw_qp_key JobInventory::qp_key(const RankEdge &edge) const {
    return {.dev_index = nic_of(edge),
            .qpn = qpn(edge),
            .generation_ns = clock_.monotonic_ns(QP_CREATED_NS) + qpn(edge)};
}

void JobInventory::queue_pair(source::RecordSink &sink, const RankEdge &edge) const {
    const JobEdge &of_plan = plan_.edges()[edge.edge];
    const JobCommunicator &comm = plan_.communicators()[of_plan.comm];
    const std::uint32_t own = edge.is_send ? of_plan.from : of_plan.to;
    const std::uint32_t peer = edge.is_send ? of_plan.to : of_plan.from;
    const cw_qp_key key = qp_key(edge);
    auto event = make<cw_qp_event>(CW_KIND_QP_CREATE, key.generation_ns + 1000);
    event.header.cpu = 0;
    event.key = key;
    event.tgid = pid_of_rank(comm.global_of(own));
    event.tid = event.tgid + 5000;
    event.start_boottime_ns = process_start_ns();
    set_text(event.comm, "python3");
    set_text(event.device, fmt::format("mlx5_{}", key.dev_index));
    event.user_handle = connection_address(edge) + 0x40;
    event.qp_type = 2;
    event.old_state = 0xff;
    event.gid_type = CW_GID_UNKNOWN;
    sink.append(event.header);

    event.header.kind = CW_KIND_QP_STATE;
    const auto change = [&](std::uint8_t state) {
        event.header.time_ns += 20'000;
        event.old_state = static_cast<std::uint8_t>(state - 1);
        event.new_state = state;
        sink.append(event.header);
    };
    event.port = PORT;
    change(1);
    event.gid_type = CW_GID_ROCE_V2;
    event.sgid_index = 3;
    event.path_mtu = MTU_4096;
    event.hop_limit = 255;
    event.timeout = 20;
    event.retry_count = 7;
    event.rnr_retry = 7;
    event.dest_qpn = edge.is_send ? of_plan.to_qpn : of_plan.from_qpn;
    event.flags = CW_QP_ADDRESS | CW_QP_GRH | CW_QP_SGID | CW_QP_DEST | CW_QP_PATH_MTU |
                  CW_QP_PSN_RQ | CW_QP_PSN_SQ;
    put_nic_address(event.sgid, node_, key.dev_index);
    put_nic_address(event.dgid, comm.node_of(peer),
                    edge.is_send ? of_plan.to_nic : of_plan.from_nic);
    change(2);
    change(3);
}

void JobInventory::communicator(source::RecordSink &sink, const JobCommunicator &comm,
                                std::uint32_t rank, std::uint32_t local) const {
    const std::uint32_t pid = pid_of_rank(node_ * GPUS + local);
    auto record = make<cw_nccl_comm>(CW_KIND_NCCL_COMM,
                                     clock_.monotonic_ns(COMM_CREATED_NS + comm.id * 1000ULL));
    record.header.cpu = 0;
    record.tgid = record.tid = pid;
    record.comm = comm_address(comm.id);
    record.comm_hash = comm.hash;
    record.start_boottime_ns = process_start_ns();
    record.bus_id = std::uint64_t{gpu_bus(local)} << 12;
    record.proxy_state = record.comm + 0x80000;
    record.image_id = IMAGE;
    record.flags = CW_NCCL_COMM_CREATED | CW_NCCL_COMM_LAUNCHED;
    record.rank = static_cast<std::int32_t>(rank);
    record.n_ranks = static_cast<std::int32_t>(comm.n_ranks());
    record.cuda_dev = static_cast<std::int32_t>(local);
    record.node = static_cast<std::int32_t>(rank / comm.width());
    record.n_nodes = static_cast<std::int32_t>(comm.nodes.size());
    record.local_rank = static_cast<std::int32_t>(rank % comm.width());
    record.local_ranks = static_cast<std::int32_t>(comm.width());
    if (plan_.options().has_names)
        set_text(record.name, fmt::format("{}{}", role_name(comm.role), comm.index));
    record.p2p_channels = comm.p2p_channels;
    record.p2p_channels_per_peer = comm.channels_a_peer;
    sink.append(record.header);
}

void JobInventory::channels(source::RecordSink &sink, const JobCommunicator &comm,
                            std::uint32_t rank, std::uint32_t pid) const {
    const std::uint32_t n = comm.n_ranks();
    const std::uint32_t n_order = plan_.options().has_ring_order ? n : 0;
    std::vector<std::byte> bytes(sizeof(cw_nccl_channel) + std::size_t{(n_order + 1) / 2} * 8);
    std::vector<std::int32_t> ring(n_order);
    for (std::uint32_t channel = 0; channel < comm.channels; channel++) {
        auto record = make<cw_nccl_channel>(
            CW_KIND_NCCL_CHANNEL, clock_.monotonic_ns(COMM_CREATED_NS + 2'000'000 + comm.id));
        record.header.length_bytes = static_cast<std::uint32_t>(bytes.size());
        record.tgid = pid;
        record.channel = channel;
        record.comm = comm_address(comm.id);
        const std::uint32_t place = comm.place_of(rank, channel);
        const auto rank_at = [&](std::uint32_t at) {
            return static_cast<std::int32_t>(comm.at_place(at % n, channel));
        };
        record.ring_prev = rank_at(place + n - 1);
        record.ring_next = rank_at(place + 1);
        record.ring_index = static_cast<std::int32_t>(place);
        // Within a node the tree is a chain from its head on.
        const std::uint32_t k = comm.width();
        const std::uint32_t node = rank / k;
        const std::uint32_t from_head = (rank + k - comm.tree_head(node, channel) % k) % k;
        const auto in_node = [&](std::uint32_t distance) {
            return static_cast<std::int32_t>(node * k +
                                             (comm.tree_head(node, channel) + distance) % k);
        };
        std::fill(std::begin(record.tree_down), std::end(record.tree_down), -1);
        record.tree_up = from_head == 0 ? -1 : in_node(from_head - 1);
        std::size_t downs = 0;
        if (from_head == 0 && comm.crosses_nodes()) {
            const JobCommunicator::Tree tree = comm.tree_of(node, channel);
            const auto head = [&](std::int32_t other) {
                return static_cast<std::int32_t>(
                    comm.tree_head(static_cast<std::uint32_t>(other), channel));
            };
            if (tree.up >= 0)
                record.tree_up = head(tree.up);
            for (const std::int32_t down : tree.down)
                if (down >= 0)
                    record.tree_down[downs++] = head(down);
        }
        if (from_head + 1 < k)
            record.tree_down[downs] = in_node(from_head + 1);
        record.n_order = n_order;
        std::memcpy(bytes.data(), &record, sizeof(record));
        if (n_order != 0) {
            ring_from_place_0(comm, channel, ring);
            std::byte *order = bytes.data() + sizeof(record);
            const std::size_t to_end_bytes = (n - place) * sizeof(ring[0]);
            std::memcpy(order, ring.data() + place, to_end_bytes);
            std::memcpy(order + to_end_bytes, ring.data(), place * sizeof(ring[0]));
        }
        sink.append(*reinterpret_cast<const cw_header *>(bytes.data()));
    }
}

void JobInventory::neighbours(source::RecordSink &sink, const JobCommunicator &comm,
                              std::uint32_t rank, std::uint32_t pid) const {
    const std::uint32_t k = comm.width();
    const std::uint32_t node = rank / k;
    for (std::uint32_t peer = node * k; peer < node * k + k; peer++) {
        if (peer == rank)
            continue;
        auto record = make<cw_nccl_local>(
            CW_KIND_NCCL_LOCAL, clock_.monotonic_ns(COMM_CREATED_NS + 3'000'000 + comm.id));
        record.comm = comm_address(comm.id);
        record.tgid = pid;
        record.peer = static_cast<std::int32_t>(peer);
        record.p2p_send[0] = record.p2p_recv[0] = (1ULL << comm.channels) - 1;
        if (comm.role == JobRole::Expert)
            record.p2p_send[1] = record.p2p_recv[1] = (1ULL << comm.p2p_channels) - 1;
        sink.append(record.header);
    }
}

void JobInventory::connection(source::RecordSink &sink, const RankEdge &edge,
                              std::uint64_t time_ns) const {
    const JobEdge &of_plan = plan_.edges()[edge.edge];
    const JobCommunicator &comm = plan_.communicators()[of_plan.comm];
    const std::uint32_t own = edge.is_send ? of_plan.from : of_plan.to;
    const std::uint32_t peer = edge.is_send ? of_plan.to : of_plan.from;
    auto record = make<cw_nccl_connection>(CW_KIND_NCCL_CONNECTION, time_ns);
    record.header.cpu = 0;
    record.tgid = record.tid = pid_of_rank(comm.global_of(own));
    record.comm = comm_address(comm.id);
    record.connection = connection_address(edge);
    record.net_comm = record.connection + 0x100;
    record.transport = CW_NCCL_TRANSPORT_IB;
    record.flags =
        CW_NCCL_CONNECTION_GDR | (edge.is_send ? std::uint32_t{CW_NCCL_CONNECTION_SEND} : 0U);
    record.rank = static_cast<std::int32_t>(own);
    record.peer = static_cast<std::int32_t>(peer);
    record.channel = of_plan.channel;
    record.conn_index = of_plan.index;
    record.net_dev = static_cast<std::int32_t>(nic_of(edge));
    record.n_endpoints = record.n = 1;
    record.endpoints[0].address = connection_address(edge) + 0x40;
    record.endpoints[0].number = qpn(edge);
    record.endpoints[0].device = static_cast<std::uint16_t>(nic_of(edge));
    record.endpoints[0].role = edge.is_send ? CW_NCCL_ROLE_DATA : CW_NCCL_ROLE_CLEAR_TO_SEND;
    sink.append(record.header);
}

void JobInventory::end_of_rank(source::RecordSink &sink, const RankProgram &program,
                               std::uint32_t local, std::uint64_t true_ns) const {
    const std::uint64_t now_ns = clock_.monotonic_ns(true_ns);
    for (const JobRole role : ROLES) {
        const JobMembership member = plan_.membership(role, node_ * GPUS + local);
        if (member.comm == ~0U)
            continue;
        auto record = make<cw_nccl_comm_end>(CW_KIND_NCCL_COMM_END, now_ns);
        record.header.cpu = 0;
        record.tgid = record.tid = program.pid();
        record.comm = comm_address(member.comm);
        sink.append(record.header);
    }
    for (const RankEdge &edge : program.edges()) {
        auto event = make<cw_qp_event>(CW_KIND_QP_DESTROY, now_ns + 20'000'000);
        event.header.cpu = 0;
        event.key = qp_key(edge);
        event.tgid = program.pid();
        event.tid = event.tgid + 5000;
        event.start_boottime_ns = process_start_ns();
        event.qp_type = 2;
        event.old_state = 3;
        event.new_state = 0xff;
        event.gid_type = CW_GID_UNKNOWN;
        sink.append(event.header);
    }
}

void JobInventory::rank(source::RecordSink &sink, const RankProgram &program,
                        std::uint32_t local) const {
    const std::uint32_t global = node_ * GPUS + local;
    auto process =
        make<cw_nccl_process>(CW_KIND_NCCL_PROCESS, clock_.monotonic_ns(QP_CREATED_NS / 2));
    process.tgid = program.pid();
    process.image_id = IMAGE;
    process.start_boottime_ns = process_start_ns();
    sink.append(process.header);
    const std::uint64_t first_inode = (local + 1) * INODES_OF_RANK;
    for (const RankEdge &edge : program.edges())
        queue_pair(sink, edge);
    for (const JobRole role : ROLES) {
        const JobMembership member = plan_.membership(role, global);
        if (member.comm == ~0U)
            continue;
        const JobCommunicator &comm = plan_.communicators()[member.comm];
        communicator(sink, comm, member.rank, local);
        sockets(sink, program.pid(), CW_NCCL_SOCKET_BOOTSTRAP, JOB_BOOTSTRAP_SOCKETS,
                first_inode + comm.id * std::uint64_t{32}, COMM_CREATED_NS - 100'000);
        sockets(sink, program.pid(), CW_NCCL_SOCKET_PROXY, JOB_PROXY_SOCKETS,
                first_inode + comm.id * std::uint64_t{32} + JOB_BOOTSTRAP_SOCKETS,
                COMM_CREATED_NS - 50'000);
        channels(sink, comm, member.rank, program.pid());
        neighbours(sink, comm, member.rank, program.pid());
    }
    for (const auto &[name, value] : JOB_PARAMS) {
        auto param = make<cw_nccl_param>(CW_KIND_NCCL_PARAM,
                                         clock_.monotonic_ns(COMM_CREATED_NS + 3'500'000));
        param.tgid = program.pid();
        param.image_id = IMAGE;
        param.value = value;
        for (const SetParameter &set : plan_.options().parameters)
            if (set.name == name)
                param.value = set.value;
        set_text(param.name, name);
        sink.append(param.header);
    }
    // The sockets over which the two ends of a connection exchange their addresses.
    for (std::size_t i = 0; i < program.edges().size(); i++)
        sockets(sink, program.pid(), CW_NCCL_SOCKET_NETWORK_SETUP, 1,
                first_inode + SETUP_INODES + i, QP_CREATED_NS + i * 1000);
}

void JobInventory::sockets(source::RecordSink &sink, std::uint32_t pid, cw_nccl_socket_type type,
                           std::uint32_t n, std::uint64_t first_inode,
                           std::uint64_t true_ns) const {
    for (std::uint32_t i = 0; i < n; i++) {
        auto record = make<cw_nccl_socket>(CW_KIND_NCCL_SOCKET, clock_.monotonic_ns(true_ns) + i);
        record.header.cpu = 0;
        record.tgid = pid;
        record.tid = pid + 4000;
        record.inode = first_inode + i;
        record.tx_payload_bytes = JOB_SOCKET_BYTES;
        record.rx_payload_bytes = JOB_SOCKET_BYTES;
        record.type = type;
        sink.append(record.header);
    }
}

} // namespace collwire::trace_gen
