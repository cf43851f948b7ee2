// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/gather.h"

#include <algorithm>
#include <bit>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/post_records.h"
#include "collwire/record_kinds.h"
#include "collwire/socket_records.h"
#include "correlate/capture/reader.h"
#include "correlate/model/address.h"

namespace collwire::nccl {

using capture::record_as;
using capture::text_of;
using model::mix;

namespace {

// Records of one connection arrive within this time.
constexpr std::uint64_t SAME_CONNECTION_NS = 1'000'000'000;
// For one address: one that is reused often must not make reading slow.
constexpr std::size_t MAX_LOOKED_AT = 16;

bool is_counted(std::uint64_t &count, std::uint64_t limit, std::uint64_t n = 1) {
    if (n > limit - std::min(count, limit))
        return false;
    count += n;
    return true;
}

// Its memory could not be read before.
bool is_read_again(const cw_nccl_connection &known, const cw_nccl_connection &from) {
    return (known.flags & CW_NCCL_CONNECTION_FAULT) != 0 && from.first == known.first &&
           from.header.time_ns > known.header.time_ns &&
           (known.net_comm == 0 || known.net_comm == from.net_comm);
}

// A plugin connection whose queue pairs were searched for after it was known. The two records may
// be in different segments. A record later than the search belongs to another connection at the
// same addresses.
bool is_found_later(const GatheredConnection &known, const cw_nccl_connection &from) {
    if (known.head.transport != CW_NCCL_TRANSPORT_PLUGIN ||
        from.transport != known.head.transport || known.head.net_comm != from.net_comm)
        return false;
    const std::uint64_t known_ns = known.head.header.time_ns;
    return is_found(from) ? known.found_ns == 0 && known_ns <= from.header.time_ns
                          : known.found_ns == known_ns && from.header.time_ns <= known_ns;
}

// It existed at the earlier time; its endpoints are in the record that has them.
void add_found(GatheredConnection &known, const cw_nccl_connection &from) {
    const cw_nccl_connection before = known.head;
    if (is_found(from)) {
        known.found_ns = from.header.time_ns;
        known.head = from;
    }
    known.head.flags |= before.flags | from.flags;
    known.head.header.time_ns = std::min(before.header.time_ns, from.header.time_ns);
}

bool has_other_ports(const cw_tcp_socket &a, const cw_tcp_socket &b) {
    return a.local_port != b.local_port || a.remote_port != b.remote_port;
}

} // namespace

std::size_t AddressHash::operator()(const AddressKey &key) const {
    return mix(mix(key.address) ^ (std::uint64_t{key.session} << 32U | key.tgid));
}

CommStream &Gather::stream_of(Index session, std::uint32_t tgid, std::uint64_t address) {
    const auto [found, is_new] = gathered_.stream_at.try_emplace(
        AddressKey{address, session, tgid}, static_cast<Index>(gathered_.streams.size()));
    if (is_new) {
        CommStream stream;
        stream.session = session;
        stream.tgid = tgid;
        stream.address = address;
        gathered_.streams.push_back(std::move(stream));
    }
    return gathered_.streams[found->second];
}

bool Gather::add(Index session, const cw_header &header, std::span<const std::byte> record,
                 bool from_start) {
    switch (header.kind) {
    case CW_KIND_NCCL_CALL:
        return add_call(session, record);
    case CW_KIND_NCCL_RETURN:
        return add_return(session, record);
    case CW_KIND_NCCL_LAUNCH:
        return add_launch(session, record);
    case CW_KIND_NCCL_LAUNCH_TASKS:
        return add_launch_tasks(session, record);
    case CW_KIND_NCCL_PROGRESS:
        return add_progress(session, record);
    case CW_KIND_NCCL_STEPS:
        return add_steps(session, record);
    case CW_KIND_POST_OPERATIONS:
        return add_post_operations(session, record);
    case CW_KIND_NCCL_SHAPE_TASK:
        return add_shape_task(session, record);
    case CW_KIND_NCCL_SHAPE_OPS:
        return add_shape_ops(session, record);
    case CW_KIND_NCCL_CHANNEL:
        return add_channel(session, record);
    case CW_KIND_NCCL_LOCAL: {
        const auto local = record_as<cw_nccl_local>(record);
        if (!is_counted(counts_.locals, MAX_OTHER_RECORDS))
            return false;
        stream_of(session, local.tgid, local.comm).locals.push_back(local);
        return true;
    }
    case CW_KIND_NCCL_NVLS: {
        const auto nvls = record_as<cw_nccl_nvls>(record);
        if (!is_counted(counts_.locals, MAX_OTHER_RECORDS))
            return false;
        stream_of(session, nvls.tgid, nvls.comm).nvls.push_back(nvls);
        return true;
    }
    case CW_KIND_NCCL_CONNECTION:
        return add_connection(session, record);
    case CW_KIND_NCCL_IMAGE:
        return add_image(session, record);
    case CW_KIND_NCCL_NETWORK:
        return add_network(session, record);
    case CW_KIND_NCCL_PARAM:
        return add_param(session, record);
    case CW_KIND_TCP_SOCKET:
        return add_socket(session, record, from_start);
    case CW_KIND_NCCL_SOCKET:
        return add_closed_socket(session, record);
    case CW_KIND_NCCL_COMM: {
        const auto comm = record_as<cw_nccl_comm>(record);
        if (!is_counted(counts_.comms, MAX_OTHER_RECORDS))
            return false;
        stream_of(session, comm.tgid, comm.comm).comms.push_back(comm);
        return true;
    }
    case CW_KIND_NCCL_COMM_END: {
        const auto end = record_as<cw_nccl_comm_end>(record);
        if (!is_counted(counts_.ends, MAX_OTHER_RECORDS))
            return false;
        stream_of(session, end.tgid, end.comm).ends_ns.push_back(header.time_ns);
        return true;
    }
    case CW_KIND_NCCL_PROCESS:
        return add_process(session, record);
    case CW_KIND_NCCL_RESULT:
        return add_result(session, record);
    case CW_KIND_NCCL_LAST_ERROR:
        return add_last_error(session, record);
    case CW_KIND_NCCL_WARNING:
        return add_warning(session, record);
    case CW_KIND_GPU_KERNEL:
        return add_gpu_kernel(session, record);
    case CW_KIND_GPU_NAME:
        return add_gpu_name(session, record);
    case CW_KIND_GPU_WINDOW:
        return add_gpu_window(session, record);
    case CW_KIND_GPU_TRACE:
        return add_gpu_trace(session, record);
    case CW_KIND_GPU_CHANNEL:
        return add_gpu_channel(session, record);
    case CW_KIND_GPU_PROFILER:
        return add_gpu_profiler(session, record);
    case CW_KIND_NVLINK_GPU:
        return add_nvlink_gpu(session, record);
    case CW_KIND_NVLINK_SAMPLE:
        return add_nvlink_sample(session, record);
    case CW_KIND_NVLINK_GAP:
        return add_nvlink_gap(session, record);
    case CW_KIND_XID:
        return add_xid(session, record);
    default:
        return true;
    }
}

bool Gather::add_call(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_call>(record);
    if (!is_counted(counts_.calls, MAX_CALLS))
        return false;
    Call call;
    call.time_ns = from.header.time_ns;
    call.count = from.count;
    call.stream = from.stream;
    call.arguments_hash = from.arguments_hash;
    call.tid = from.tid;
    call.root = from.root;
    call.reduction = from.reduction;
    call.func = from.func;
    call.datatype = from.datatype;
    call.flags = from.flags;
    stream_of(session, from.tgid, from.comm).calls.push_back(call);
    return true;
}

bool Gather::add_return(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_return>(record);
    if (!is_counted(counts_.returns, MAX_CALLS))
        return false;
    stream_of(session, from.tgid, from.comm)
        .returns.push_back({from.call_ns, from.tid, from.result});
    return true;
}

bool Gather::add_launch(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_launch>(record);
    const std::size_t n_here = std::min<std::size_t>(from.n_tasks, CW_NCCL_LAUNCH_TASKS);
    if (!is_counted(counts_.launches, MAX_CALLS) || !is_counted(counts_.tasks, MAX_TASKS, n_here))
        return false;
    CommStream &stream = stream_of(session, from.tgid, from.comm);
    Launch launch;
    launch.time_ns = from.header.time_ns;
    launch.plan = from.plan;
    launch.shape = from.shape;
    launch.launched = from.launched;
    launch.n_ops = from.n_ops;
    launch.tid = from.tid;
    launch.n_tasks = from.n_tasks;
    launch.flags = from.flags;
    launch.channels = static_cast<std::uint8_t>(std::popcount(from.channel_mask));
    launch.first_task = static_cast<std::uint32_t>(stream.tasks.size());
    stream.tasks.insert(stream.tasks.end(), from.tasks, from.tasks + n_here);
    stream.launches.push_back(launch);
    return true;
}

bool Gather::add_launch_tasks(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_launch_tasks>(record);
    const auto n = std::min<std::uint16_t>(from.n, CW_NCCL_MORE_TASKS);
    if (!is_counted(counts_.tasks, MAX_TASKS, n))
        return false;
    CommStream &stream = stream_of(session, from.tgid, from.comm);
    stream.more_tasks.push_back({from.launch_ns, from.plan,
                                 static_cast<std::uint32_t>(stream.tasks.size()), from.first, n});
    stream.tasks.insert(stream.tasks.end(), from.tasks, from.tasks + n);
    return true;
}

GatheredShape &Gather::shape_of(Index session, std::uint32_t tgid, std::uint64_t comm,
                                std::uint64_t shape) {
    const auto [found, is_new] = gathered_.shape_of_hash.try_emplace(
        AddressKey{shape, session, tgid}, static_cast<Index>(gathered_.shapes.size()));
    if (!is_new)
        return gathered_.shapes[found->second];
    GatheredShape added;
    added.session = session;
    added.tgid = tgid;
    added.comm = comm;
    gathered_.shapes.push_back(std::move(added));
    return gathered_.shapes.back();
}

bool Gather::add_shape_task(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_shape_task>(record);
    if (from.index >= MAX_SHAPE_ITEMS)
        return false;
    GatheredShape &shape = shape_of(session, from.tgid, from.comm, from.shape);
    const std::size_t more =
        from.index < shape.tasks.size() ? 0 : from.index + 1 - shape.tasks.size();
    if (!is_counted(counts_.shapes, MAX_SHAPE_RECORDS, more))
        return false;
    shape.tasks.resize(shape.tasks.size() + more);
    shape.tasks[from.index] = from;
    return true;
}

bool Gather::add_shape_ops(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_shape_ops>(record);
    const auto n = std::min<std::uint32_t>(from.n, CW_NCCL_SHAPE_OPS);
    if (from.n_ops > MAX_SHAPE_ITEMS || from.first > from.n_ops || n > from.n_ops - from.first)
        return false;
    GatheredShape &shape = shape_of(session, from.tgid, from.comm, from.shape);
    const std::size_t end = from.first + n;
    const std::size_t more = end <= shape.ops.size() ? 0 : end - shape.ops.size();
    if (!is_counted(counts_.shapes, MAX_SHAPE_RECORDS, more))
        return false;
    shape.n_ops = std::max<std::uint32_t>(shape.n_ops, from.n_ops);
    shape.ops.resize(shape.ops.size() + more);
    shape.has_op.resize(shape.ops.size());
    for (std::uint32_t i = 0; i < n; ++i) {
        shape.ops[from.first + i] = from.ops[i];
        shape.has_op[from.first + i] = true;
    }
    return true;
}

bool Gather::add_progress(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_progress>(record);
    if (!is_counted(counts_.progress, MAX_CALLS))
        return false;
    gathered_.progress[{from.connection, session, from.tgid}].push_back(
        {from.header.time_ns, from.group, from.base_steps, from.nsteps,
         (from.flags & CW_NCCL_PROGRESS_END) != 0});
    return true;
}

bool Gather::add_steps(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_steps>(record);
    if (!is_counted(counts_.steps, MAX_CALLS))
        return false;
    gathered_.steps[{from.connection, session, from.tgid}].push_back(
        {from.read_ns, from.header.time_ns, from.unchanged_ns, from.steps,
         (from.flags & CW_NCCL_STEPS_IDLE) != 0, (from.flags & CW_NCCL_STEPS_BUSY) != 0});
    return true;
}

bool Gather::add_post_operations(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_post_operations>(record);
    if (!is_counted(counts_.post_operations, MAX_CALLS))
        return false;
    gathered_.post_operations[{from.connection, session, from.tgid}].push_back(
        {from.header.time_ns, from.begin_ns, from.from_steps, from.to_steps, from.bytes,
         from.operations, (from.flags & CW_POST_OPERATIONS_FAULT) != 0});
    return true;
}

bool Gather::add_channel(Index session, std::span<const std::byte> record) {
    Channel channel;
    channel.record = record_as<cw_nccl_channel>(record);
    channel.time_ns = channel.record.header.time_ns;
    auto order = capture::order_of(record);
    if (!is_counted(counts_.channels, MAX_OTHER_RECORDS) ||
        !is_counted(counts_.ranks, MAX_ORDER_RANKS, order.size()))
        return false;
    channel.order = ring_orders_.keep(std::move(order));
    stream_of(session, channel.record.tgid, channel.record.comm)
        .channels.push_back(std::move(channel));
    return true;
}

bool Gather::add_connection(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_connection>(record);
    const auto n = std::min<std::uint32_t>(from.n, CW_NCCL_ENDPOINTS);
    if (from.first >= MAX_ENDPOINTS || !is_counted(counts_.connections, MAX_OTHER_RECORDS))
        return false;
    std::vector<Index> &same =
        gathered_.connections_at[AddressKey{from.connection, session, from.tgid}];
    GatheredConnection *connection = nullptr;
    for (std::size_t i = same.size(); i > 0 && same.size() - i < MAX_LOOKED_AT; --i) {
        GatheredConnection &known = gathered_.connections[same[i - 1]];
        const std::uint64_t known_ns = known.head.header.time_ns;
        // A repetition by a later segment or the same capture, or another part of it. A later
        // record belongs to a new connection at the same addresses.
        const bool is_of_it = from.first == known.head.first
                                  ? from.header.time_ns == known_ns
                                  : from.first > known.head.first &&
                                        from.header.time_ns >= known_ns &&
                                        from.header.time_ns - known_ns < SAME_CONNECTION_NS;
        const bool are_found = is_found(from) && known.found_ns == from.header.time_ns;
        if (known.head.comm != from.comm)
            continue;
        if (known.head.net_comm == from.net_comm && (are_found || (is_of_it && !is_found(from)))) {
            connection = &known;
            break;
        }
        if (is_found_later(known, from)) {
            connection = &known;
            add_found(known, from);
            break;
        }
        if (is_read_again(known.head, from)) {
            connection = &known;
            known.head = from;
            known.endpoints.clear();
            known.socket_inodes.clear();
            break;
        }
    }
    if (connection == nullptr) {
        same.push_back(static_cast<Index>(gathered_.connections.size()));
        gathered_.connections.emplace_back();
        connection = &gathered_.connections.back();
        connection->session = session;
        connection->head = from;
        connection->found_ns = is_found(from) ? from.header.time_ns : 0;
    }
    connection->head.flags |= from.flags;
    if (connection->endpoints.size() < from.first + n)
        connection->endpoints.resize(from.first + n);
    std::copy_n(from.endpoints, n, connection->endpoints.begin() + from.first);
    if (connection->head.transport == CW_NCCL_TRANSPORT_SOCKET) {
        connection->socket_inodes.resize(connection->endpoints.size());
        std::copy_n(from.socket_inodes, n, connection->socket_inodes.begin() + from.first);
    }
    return true;
}

bool Gather::add_image(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_image>(record);
    if (!is_counted(counts_.images, MAX_OTHER_RECORDS))
        return false;
    Image image;
    image.session = session;
    image.image_id = from.image_id;
    image.version = from.version;
    std::copy_n(from.rungs, image.rungs.size(), image.rungs.begin());
    image.build_id = text_of(from.build_id);
    image.path = text_of(from.path);
    image.reason = text_of(from.reason);
    image.basis = text_of(from.basis);
    // Each segment repeats it.
    const auto [found, is_new] = images_.try_emplace(AddressKey{from.image_id, session, 0},
                                                     static_cast<Index>(gathered_.images.size()));
    if (is_new)
        gathered_.images.emplace_back();
    gathered_.images[found->second] = std::move(image);
    return true;
}

bool Gather::add_network(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_network>(record);
    if (!is_counted(counts_.networks, MAX_OTHER_RECORDS))
        return false;
    // Each segment repeats it; it may have been read since.
    GatheredNetwork &network = gathered_.networks[AddressKey{from.net, session, from.tgid}];
    if (network.name.empty())
        network.name = text_of(from.name);
    if (network.path.empty())
        network.path = text_of(from.path);
    return true;
}

bool Gather::add_param(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_param>(record);
    if (!is_counted(counts_.params, MAX_OTHER_RECORDS))
        return false;
    gathered_.params.push_back(
        {session, from.tgid, std::string(text_of(from.name)), from.value, from.header.time_ns});
    return true;
}

bool Gather::add_socket(Index session, std::span<const std::byte> record, bool from_start) {
    const auto from = record_as<cw_tcp_socket>(record);
    std::vector<Index> &same = sockets_[AddressKey{from.inode, session, from.tgid}];
    Socket *socket = nullptr;
    for (std::size_t i = same.size(); i > 0 && same.size() - i < MAX_LOOKED_AT; --i)
        if (gathered_.sockets[same[i - 1]].last.netns == from.netns) {
            socket = &gathered_.sockets[same[i - 1]];
            break;
        }
    const bool is_gone = (from.flags & CW_TCP_SOCKET_GONE) != 0;
    // Another socket has the inode now.
    if (socket != nullptr && (socket->last.flags & CW_TCP_SOCKET_GONE) != 0 &&
        (!is_gone || has_other_ports(from, socket->last)) &&
        from.header.time_ns > socket->last.header.time_ns)
        socket = nullptr;
    if (socket == nullptr) {
        if (gathered_.sockets.size() >= MAX_SOCKETS)
            return false;
        same.push_back(static_cast<Index>(gathered_.sockets.size()));
        gathered_.sockets.emplace_back();
        socket = &gathered_.sockets.back();
        socket->session = session;
        socket->tgid = from.tgid;
        socket->first = from;
        // Without its first segment the recording starts here. But a socket that has only its last
        // counters was opened later: a segment starts with all that are open.
        socket->is_counted_from_first = !from_start && !is_gone;
        if (socket->is_counted_from_first)
            socket->acked.set_baseline(
                {.time_ns = from.header.time_ns, .payload_bytes = from.acked_bytes});
    }
    if (from.header.time_ns >= socket->last.header.time_ns)
        socket->last = from;
    socket->acked.add({.time_ns = from.header.time_ns, .payload_bytes = from.acked_bytes});
    return true;
}

bool Gather::add_closed_socket(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_socket>(record);
    if (!is_counted(counts_.closed_sockets, MAX_OTHER_RECORDS))
        return false;
    // A type of a newer version is not known.
    if (from.type < CW_NCCL_SOCKET_TYPES)
        gathered_.closed_sockets.push_back({session, from.tgid, from.header.time_ns, from.inode,
                                            from.tx_payload_bytes, from.type});
    return true;
}

Gathered Gather::take() {
    Gathered taken = std::move(gathered_);
    *this = Gather{};
    return taken;
}

} // namespace collwire::nccl
