// SPDX-License-Identifier: Apache-2.0
// What a recorder writes of one rank of a communicator, for tests of what is made of it.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "collwire/socket_records.h"
#include "tests/support/node_builder.h"

namespace collwire::test {

// Of a socket of which nothing else is said: this and its descriptor.
inline constexpr std::uint64_t SOCKET_INODES = 7000;

struct RankOptions {
    std::uint32_t pid = 100;
    std::uint64_t comm = 0xc0de0000;
    std::uint64_t hash = 0x1122334455667788;
    std::int32_t rank = 0;
    std::int32_t n_ranks = 2;
    double created = 11;
    std::uint64_t pid_start_ns = 5 * NS;
    std::uint32_t flags = CW_NCCL_COMM_CREATED | CW_NCCL_COMM_LAUNCHED;
    std::uint64_t launched = 0;
    std::uint64_t parent = 0;
    std::uint32_t version = 22809;
    std::string_view name = "";
    std::uint32_t p2p_channels = 0;
    std::uint64_t bus_id = 0;
    std::int32_t cuda_dev = 0;
    std::int32_t n_nodes = 0; // 0: each rank is on one of its own
    std::int32_t local_ranks = 0;
    std::string_view basis = "the file's own symbols and DWARF";
    cw_rung operations = CW_RUNG_EXACT;
};

struct CallOptions {
    std::uint8_t func = CW_NCCL_ALL_GATHER;
    std::uint64_t count = 1024; // of floats
    std::int32_t root = 0;      // or peer
    std::uint64_t buffer = 0x7f0000000000;
    std::uint8_t flags = 0;
    std::uint32_t tid = 1;
    std::int32_t reduction = 0;
};

// Any function of the arguments will do.
[[nodiscard]] inline std::uint32_t hash_of(const CallOptions &call) {
    std::uint64_t hash = call.buffer;
    for (const std::uint64_t value :
         {std::uint64_t{call.func}, call.count * 4,
          static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root))})
        hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
    return static_cast<std::uint32_t>(hash >> 32U);
}

// An operation of a ring that goes around once: (n_ranks - 1) times `bytes` on its connection.
struct RingOp {
    std::uint64_t connection = 0;
    std::uint64_t bytes = 0;
    std::uint8_t channel = 0;
    std::uint32_t task = 0;
    std::uint8_t flags = 0;
    std::int32_t peer = 1;
};

struct LaunchOptions {
    std::uint64_t plan = 0x91a0;
    std::uint8_t flags = CW_NCCL_LAUNCH_LAUNCHED;
    std::uint64_t launched = 0;
    std::uint32_t tid = 1;
    std::uint64_t channel_mask = 0;
};

class NcclBuilder {
public:
    NcclBuilder(NodeBuilder &node, RankOptions options) : node_(node), options_(options) {
        if (options.version == 0)
            return;
        auto image = make_record<cw_nccl_image>(CW_KIND_NCCL_IMAGE, 1);
        image.image_id = 1;
        image.version = options.version;
        std::fill(std::begin(image.rungs), std::end(image.rungs), std::uint8_t{CW_RUNG_EXACT});
        image.rungs[CW_NCCL_OPERATIONS] = static_cast<std::uint8_t>(options.operations);
        set_text(image.path, "/usr/lib/libnccl.so.2");
        set_text(image.basis, options.basis);
        node_.add(image);
        auto process = make_record<cw_nccl_process>(CW_KIND_NCCL_PROCESS, 1);
        process.tgid = options.pid;
        process.image_id = 1;
        process.start_boottime_ns = options.pid_start_ns;
        node_.add(process);
    }

    [[nodiscard]] cw_nccl_comm comm_record() const {
        auto comm = make_record<cw_nccl_comm>(CW_KIND_NCCL_COMM, seconds(options_.created), 0);
        comm.tgid = options_.pid;
        comm.tid = 1;
        comm.comm = options_.comm;
        comm.comm_hash = options_.hash;
        comm.start_boottime_ns = options_.pid_start_ns;
        comm.bus_id = options_.bus_id;
        comm.cuda_dev = options_.cuda_dev;
        comm.parent = options_.parent;
        comm.launched = options_.launched;
        comm.image_id = options_.version == 0 ? 0 : 1;
        comm.flags = options_.flags;
        comm.rank = options_.rank;
        comm.n_ranks = options_.n_ranks;
        comm.n_nodes = options_.n_nodes == 0 ? options_.n_ranks : options_.n_nodes;
        comm.local_ranks = options_.local_ranks;
        comm.node = options_.rank % std::max(comm.n_nodes, 1);
        set_text(comm.name, options_.name);
        comm.p2p_channels = options_.p2p_channels;
        return comm;
    }
    NcclBuilder &comm() {
        node_.add(comm_record());
        return *this;
    }
    NcclBuilder &end(double time) {
        auto end = make_record<cw_nccl_comm_end>(CW_KIND_NCCL_COMM_END, seconds(time), 0);
        end.tgid = options_.pid;
        end.comm = options_.comm;
        node_.add(end);
        return *this;
    }
    NcclBuilder &call(double time, const CallOptions &options) {
        auto call = make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, seconds(time), 0);
        call.comm = options_.comm;
        call.tgid = options_.pid;
        call.tid = options.tid;
        call.count = options.count;
        call.stream = 0x5151;
        call.arguments_hash = hash_of(options);
        call.root = options.root;
        call.reduction = options.reduction;
        call.func = options.func;
        call.datatype = 7; // ncclFloat32
        call.flags = options.flags;
        node_.add(call);
        return *this;
    }

    // What the call of that time returned: ncclResult_t.
    NcclBuilder &returned(double call_time, std::uint32_t result) {
        auto back = make_record<cw_nccl_return>(CW_KIND_NCCL_RETURN, seconds(call_time) + 500, 0);
        back.comm = options_.comm;
        back.call_ns = seconds(call_time);
        back.tgid = options_.pid;
        back.tid = 1;
        back.result = result;
        node_.add(back);
        return *this;
    }
    // How far a connection is, at `time`.
    NcclBuilder &steps(double time, std::uint64_t connection, std::uint64_t steps,
                       std::uint32_t flags = CW_NCCL_STEPS_IDLE) {
        auto record = make_record<cw_nccl_steps>(CW_KIND_NCCL_STEPS, seconds(time));
        record.connection = connection;
        record.steps = steps;
        record.read_ns = seconds(time) - 1000;
        record.tgid = options_.pid;
        record.flags = flags;
        node_.add(record);
        return *this;
    }
    // An operation on a connection, from its begin to its end.
    NcclBuilder &progress(double begin, double end, std::uint64_t connection, std::uint64_t base,
                          std::uint32_t nsteps = 1) {
        for (const bool is_end : {false, true}) {
            auto record = make_record<cw_nccl_progress>(CW_KIND_NCCL_PROGRESS,
                                                        seconds(is_end ? end : begin), 0);
            record.connection = connection;
            record.group = 0xa465;
            record.base_steps = is_end ? base : 0;
            record.tgid = options_.pid;
            record.nsteps = nsteps;
            record.flags = is_end ? std::uint32_t{CW_NCCL_PROGRESS_END} : 0U;
            node_.add(record);
        }
        return *this;
    }
    // A ring, from this rank on.
    NcclBuilder &channel(double time, std::uint32_t number,
                         const std::vector<std::int32_t> &order) {
        struct {
            cw_nccl_channel head;
            std::int32_t order[16];
        } record{.head = make_record<cw_nccl_channel>(CW_KIND_NCCL_CHANNEL, seconds(time)),
                 .order = {}};
        record.head.header.length_bytes = sizeof(record);
        record.head.comm = options_.comm;
        record.head.tgid = options_.pid;
        record.head.channel = number;
        record.head.n_order = static_cast<std::uint32_t>(order.size());
        std::copy(order.begin(), order.end(), record.order);
        node_.capture().add_header(record.head.header);
        return *this;
    }

    // On a node of `n_heads`.
    NcclBuilder &nvls(double time, std::int32_t n_heads, std::int32_t head_rank) {
        auto record = make_record<cw_nccl_nvls>(CW_KIND_NCCL_NVLS, seconds(time));
        record.comm = options_.comm;
        record.tgid = options_.pid;
        record.n_heads = n_heads;
        record.head_rank = head_rank;
        record.n_channels = 1;
        record.chunk_bytes = 131072;
        std::fill(std::begin(record.tree_up), std::end(record.tree_up), -1);
        std::fill(std::begin(record.tree_down), std::end(record.tree_down), -1);
        node_.add(record);
        return *this;
    }

    NcclBuilder &connection(double time, std::uint64_t address, bool send, std::int32_t peer,
                            std::initializer_list<std::uint32_t> qpns, std::int32_t channel = 0,
                            std::uint32_t flags = 0) {
        auto connection = connection_record(time, address, send, peer, channel);
        connection.flags |= flags;
        for (const std::uint32_t qpn : qpns)
            add_endpoint(connection, qpn, send ? CW_NCCL_ROLE_DATA : CW_NCCL_ROLE_CLEAR_TO_SEND);
        node_.add(connection);
        return *this;
    }
    [[nodiscard]] cw_nccl_connection socket_connection_record(double time, std::uint64_t address,
                                                              bool send, std::int32_t peer,
                                                              std::uint32_t fd) const {
        auto connection = connection_record(time, address, send, peer, 0);
        connection.transport = CW_NCCL_TRANSPORT_SOCKET;
        add_endpoint(connection, fd, CW_NCCL_ROLE_CONTROL);
        connection.socket_inodes[0] = SOCKET_INODES + fd;
        return connection;
    }
    NcclBuilder &socket_connection(double time, std::uint64_t address, bool send, std::int32_t peer,
                                   std::uint32_t fd, std::uint64_t inode = 0) {
        auto connection = socket_connection_record(time, address, send, peer, fd);
        if (inode != 0)
            connection.socket_inodes[0] = inode;
        node_.add(connection);
        return *this;
    }
    [[nodiscard]] cw_tcp_socket
    socket_record(double time, std::uint32_t fd, std::uint64_t acked_bytes,
                  std::uint16_t local_port = 1000, std::uint16_t remote_port = 2000,
                  std::uint32_t flags = 0, std::uint64_t inode = 0) const {
        auto socket = make_record<cw_tcp_socket>(CW_KIND_TCP_SOCKET, seconds(time));
        socket.inode = inode == 0 ? SOCKET_INODES + fd : inode;
        socket.tgid = options_.pid;
        socket.fd = fd;
        socket.acked_bytes = acked_bytes;
        socket.sent_bytes = acked_bytes;
        std::memcpy(socket.local_address, ipv4_gid(1).data(), 16);
        std::memcpy(socket.remote_address, ipv4_gid(2).data(), 16);
        socket.local_port = local_port;
        socket.remote_port = remote_port;
        socket.flags = flags;
        return socket;
    }
    NcclBuilder &socket(double time, std::uint32_t fd, std::uint64_t acked_bytes,
                        std::uint16_t local_port = 1000, std::uint16_t remote_port = 2000,
                        std::uint32_t flags = 0, std::uint64_t inode = 0) {
        node_.add(socket_record(time, fd, acked_bytes, local_port, remote_port, flags, inode));
        return *this;
    }

    // One that is no connection's was closed.
    NcclBuilder &closed_socket(double time, std::uint32_t type, std::uint64_t sent_bytes,
                               std::uint64_t inode = 9000) {
        auto socket = make_record<cw_nccl_socket>(CW_KIND_NCCL_SOCKET, seconds(time), 0);
        socket.tgid = options_.pid;
        socket.inode = inode;
        socket.tx_payload_bytes = sent_bytes;
        socket.rx_payload_bytes = 77;
        socket.type = type;
        node_.add(socket);
        return *this;
    }

    // Tasks first, in the order of their indices.
    NcclBuilder &shape(double time, std::uint64_t shape, const std::vector<CallOptions> &tasks,
                       const std::vector<cw_nccl_op> &ops, std::uint8_t n_channels = 0,
                       std::uint8_t algorithm = CW_NCCL_RING) {
        for (std::uint32_t i = 0; i < tasks.size(); ++i) {
            auto task = make_record<cw_nccl_shape_task>(CW_KIND_NCCL_SHAPE_TASK, seconds(time), 0);
            task.comm = options_.comm;
            task.shape = shape;
            task.tgid = options_.pid;
            task.index = i;
            task.count = tasks[i].count;
            task.bytes = tasks[i].count * 4;
            task.root = tasks[i].root;
            task.func = task.api_func = tasks[i].func;
            task.n_channels = n_channels;
            task.datatype = 7;
            task.algorithm = algorithm;
            task.protocol = CW_NCCL_SIMPLE;
            if (tasks[i].func >= CW_NCCL_ALL_TO_ALL) {
                task.func = tasks[i].flags != 0 ? CW_NCCL_SEND : CW_NCCL_RECV;
                task.algorithm = CW_NCCL_ALGORITHM_UNKNOWN;
            }
            node_.add(task);
        }
        for (std::uint32_t i = 0; i < ops.size(); ++i) {
            auto record = make_record<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS, seconds(time), 0);
            record.comm = options_.comm;
            record.shape = shape;
            record.tgid = options_.pid;
            record.n_ops = static_cast<std::uint32_t>(ops.size());
            record.first = i;
            record.n = 1;
            record.ops[0] = ops[i];
            node_.add(record);
        }
        return *this;
    }

    [[nodiscard]] cw_nccl_op ring(const RingOp &from,
                                  std::uint8_t func = CW_NCCL_ALL_GATHER) const {
        cw_nccl_op op{};
        op.connection = from.connection;
        op.channel_bytes = from.bytes;
        op.chunk_bytes = from.bytes;
        op.nbytes = from.bytes;
        op.nsteps = static_cast<std::uint32_t>(options_.n_ranks - 1);
        op.task = from.task;
        op.peer = from.peer;
        op.channel = from.channel;
        op.func = func;
        op.pattern = CW_NCCL_PATTERN_RING;
        op.protocol = CW_NCCL_SIMPLE;
        op.algorithm = CW_NCCL_RING;
        op.slice_steps = op.chunk_steps = 1;
        op.datatype = 7;
        op.flags = from.flags;
        return op;
    }
    [[nodiscard]] static cw_nccl_op p2p(std::uint64_t connection, bool send, std::int32_t peer,
                                        std::uint64_t bytes, std::uint32_t task = 0) {
        cw_nccl_op op{};
        op.connection = connection;
        op.chunk_bytes = 1U << 20U;
        op.nbytes = bytes;
        op.nsteps = 1;
        op.task = task;
        op.peer = peer;
        op.func = CW_NCCL_SEND_RECV;
        op.pattern = send ? CW_NCCL_PATTERN_SEND : CW_NCCL_PATTERN_RECV;
        op.protocol = CW_NCCL_SIMPLE;
        op.algorithm = CW_NCCL_ALGORITHM_UNKNOWN;
        op.slice_steps = op.chunk_steps = 1;
        return op;
    }

    NcclBuilder &launch(double time, std::uint64_t shape, const std::vector<CallOptions> &tasks,
                        const LaunchOptions &options = {}) {
        // A captured plan keeps its tasks.
        const bool is_captured = (options.flags & CW_NCCL_LAUNCH_GRAPH) != 0;
        auto captured = static_cast<std::uint32_t>(options.plan);
        std::vector<cw_nccl_task_ref> refs;
        for (const CallOptions &task : tasks)
            refs.push_back({hash_of(task), is_captured ? ++captured : next_task_++});
        return launch_refs(time, shape, refs, options);
    }
    NcclBuilder &launch_refs(double time, std::uint64_t shape,
                             const std::vector<cw_nccl_task_ref> &refs,
                             const LaunchOptions &options = {}) {
        const std::size_t n = refs.size();
        for (std::size_t first = 0; n > CW_NCCL_LAUNCH_TASKS && first < n;
             first += CW_NCCL_MORE_TASKS) {
            auto more =
                make_record<cw_nccl_launch_tasks>(CW_KIND_NCCL_LAUNCH_TASKS, seconds(time), 0);
            more.comm = options_.comm;
            more.tgid = options_.pid;
            more.plan = options.plan;
            more.launch_ns = seconds(time);
            more.first = static_cast<std::uint16_t>(first);
            more.n =
                static_cast<std::uint16_t>(std::min<std::size_t>(n - first, CW_NCCL_MORE_TASKS));
            std::copy_n(refs.begin() + static_cast<std::ptrdiff_t>(first), more.n, more.tasks);
            node_.add(more);
        }
        auto launch = make_record<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, seconds(time), 0);
        launch.comm = options_.comm;
        launch.tgid = options_.pid;
        launch.tid = options.tid;
        launch.plan = options.plan;
        launch.shape = shape;
        launch.launched = options.launched;
        launch.flags = options.flags;
        launch.channel_mask = options.channel_mask;
        launch.n_ops = shape == 0 || (options.flags & CW_NCCL_LAUNCH_LOCAL) != 0 ? 0 : 1;
        launch.n_tasks = static_cast<std::uint16_t>(n);
        if (n <= CW_NCCL_LAUNCH_TASKS)
            std::copy(refs.begin(), refs.end(), launch.tasks);
        node_.add(launch);
        return *this;
    }

    [[nodiscard]] NodeBuilder &node() { return node_; }
    [[nodiscard]] const RankOptions &options() const { return options_; }

private:
    [[nodiscard]] cw_nccl_connection connection_record(double time, std::uint64_t address,
                                                       bool send, std::int32_t peer,
                                                       std::int32_t channel) const {
        auto connection =
            make_record<cw_nccl_connection>(CW_KIND_NCCL_CONNECTION, seconds(time), 0);
        connection.tgid = options_.pid;
        connection.comm = options_.comm;
        connection.connection = address;
        connection.net_comm = address + 0x100;
        connection.transport = CW_NCCL_TRANSPORT_IB;
        connection.flags = send ? std::uint32_t{CW_NCCL_CONNECTION_SEND} : 0U;
        connection.rank = options_.rank;
        connection.peer = peer;
        connection.channel = channel;
        return connection;
    }
    static void add_endpoint(cw_nccl_connection &connection, std::uint32_t number,
                             cw_nccl_role role) {
        cw_nccl_endpoint &endpoint = connection.endpoints[connection.n++];
        endpoint.number = number;
        endpoint.role = static_cast<std::uint8_t>(role);
        connection.n_endpoints = connection.n;
    }

    NodeBuilder &node_;
    RankOptions options_;
    std::uint32_t next_task_ = 1;
};

// Two nodes, a rank on each; a connection each way of one queue pair. Rank 0 sends over queue pair
// 17 to 18 of rank 1, which sends over 27 to 28.
inline constexpr QpOptions RING_QPS[2][2] = {
    // sends, receives
    {{.qpn = 17, .local = 1, .remote = 2, .remote_qpn = 18, .pid = 100},
     {.qpn = 28, .local = 1, .remote = 2, .remote_qpn = 27, .pid = 100}},
    {{.qpn = 27, .local = 2, .remote = 1, .remote_qpn = 28, .pid = 200},
     {.qpn = 18, .local = 2, .remote = 1, .remote_qpn = 17, .pid = 200}},
};
inline constexpr std::uint64_t SENDS_AT = 0x5e000;
inline constexpr std::uint64_t RECEIVES_AT = 0x4e000;
inline constexpr std::uint32_t NCCL_NODE_FLAGS =
    CW_NODE_FIRST_SEGMENT | CW_NODE_WIRE | CW_NODE_NCCL;

struct RingPair {
    NodeBuilder node[2];
    NcclBuilder rank[2];
    std::uint64_t sent[2] = {0, 0}; // payload, frames
    std::uint64_t frames[2] = {0, 0};
    std::uint64_t launched = 0;

    // `is_unread_first`: the connections that send are emitted once more before, without endpoints.
    // `clock_ahead`: of the second node's realtime, in seconds.
    explicit RingPair(RankOptions options = {}, bool is_unread_first = false,
                      double clock_ahead = 0)
        : node{NodeBuilder({.flags = NCCL_NODE_FLAGS}), NodeBuilder({.hostname = "node1",
                                                                     .session_id = 2,
                                                                     .clock_ahead = clock_ahead,
                                                                     .flags = NCCL_NODE_FLAGS})},
          rank{NcclBuilder(node[0], of_rank(options, 0)),
               NcclBuilder(node[1], of_rank(options, 1))} {
        for (int i = 0; i < 2; ++i) {
            node[i].usual(static_cast<std::uint8_t>(i + 1)).qp(RING_QPS[i][0]).qp(RING_QPS[i][1]);
            rank[i].comm();
            if (is_unread_first)
                rank[i].connection(11.1, SENDS_AT, true, 1 - i, {}, 0, CW_NCCL_CONNECTION_FAULT);
            rank[i].connection(11.2, SENDS_AT, true, 1 - i, {RING_QPS[i][0].qpn});
            rank[i].connection(11.2, RECEIVES_AT, false, 1 - i, {RING_QPS[i][1].qpn});
        }
    }
    static RankOptions of_rank(RankOptions options, std::int32_t rank) {
        options.rank = rank;
        options.pid = rank == 0 ? 100 : 200;
        return options;
    }

    // The operations of an AllGather of `bytes` by each rank.
    [[nodiscard]] std::vector<cw_nccl_op> ops(int i, std::uint64_t bytes,
                                              std::uint32_t task = 0) const {
        return {
            rank[i].ring({.connection = RECEIVES_AT, .bytes = bytes, .task = task, .peer = 1 - i}),
            rank[i].ring({.connection = SENDS_AT, .bytes = bytes, .task = task, .peer = 1 - i})};
    }
    // Both ranks call and launch it, and it sends what it has to.
    RingPair &all_gather(double time, std::uint64_t count, std::uint64_t buffer = 0x7f0000000000) {
        const CallOptions call{.count = count, .buffer = buffer};
        ++launched;
        for (int i = 0; i < 2; ++i) {
            rank[i].call(time + 0.001 * i, call);
            rank[i].shape(time + 0.0011 * i, count, {call}, ops(i, count * 4));
            rank[i].launch(time + 0.002 + 0.001 * i, count, {call}, {.launched = launched});
            sends(i, count * 4);
        }
        return *this;
    }
    void sends(int i, std::uint64_t bytes) {
        sent[i] += bytes;
        frames[i] += (bytes + 1023) / 1024;
    }
    // Counters of all queue pairs as they are.
    RingPair &sample(double time) {
        for (int i = 0; i < 2; ++i) {
            const Frames data{.requests = frames[i], .request_payload = sent[i], .first = 11.5};
            const Frames clear_to_send{.requests = 10, .request_payload = 640, .first = 11.5};
            node[i].wire(RING_QPS[i][0], time, data, clear_to_send);
            node[1 - i].wire(RING_QPS[1 - i][1], time, clear_to_send, data);
        }
        return *this;
    }
    [[nodiscard]] std::vector<std::vector<std::byte>> captures() {
        for (NodeBuilder &each : node)
            each.clock(20).end();
        return {node[0].bytes(), node[1].bytes()};
    }
};

} // namespace collwire::test
