// SPDX-License-Identifier: Apache-2.0
// The fields of NCCL and socket records.
#include <array>

#include "collwire/records.h"
#include "correlate/capture/field_builder.h"
#include "correlate/capture/nccl_names.h"

namespace collwire::capture {
namespace {

constexpr auto IMAGE = std::to_array<Field>({
    FIELD(cw_nccl_image, image_id),
    FIELD(cw_nccl_image, version),
    FIELD(cw_nccl_image, inode),
    FIELD(cw_nccl_image, rungs).named(nccl_capability_name),
    FIELD(cw_nccl_image, build_id),
    FIELD(cw_nccl_image, path),
    FIELD(cw_nccl_image, reason),
    FIELD(cw_nccl_image, basis),
});

constexpr auto PROCESS = std::to_array<Field>({
    FIELD(cw_nccl_process, tgid),
    FIELD(cw_nccl_process, image_id),
    FIELD(cw_nccl_process, start_boottime_ns),
    FIELD(cw_nccl_process, gone_ns),
    FIELD(cw_nccl_process, there_ns),
});

constexpr auto COMM = std::to_array<Field>({
    FIELD(cw_nccl_comm, tgid),
    FIELD(cw_nccl_comm, tid),
    FIELD(cw_nccl_comm, comm),
    FIELD(cw_nccl_comm, comm_hash),
    FIELD(cw_nccl_comm, start_boottime_ns),
    FIELD(cw_nccl_comm, bus_id),
    FIELD(cw_nccl_comm, parent),
    FIELD(cw_nccl_comm, proxy_state),
    FIELD(cw_nccl_comm, op_count),
    FIELD(cw_nccl_comm, launched),
    FIELD(cw_nccl_comm, image_id),
    FIELD(cw_nccl_comm, flags).flags(nccl_comm_flag_names),
    FIELD(cw_nccl_comm, rank),
    FIELD(cw_nccl_comm, n_ranks),
    FIELD(cw_nccl_comm, cuda_dev),
    FIELD(cw_nccl_comm, node),
    FIELD(cw_nccl_comm, n_nodes),
    FIELD(cw_nccl_comm, local_rank),
    FIELD(cw_nccl_comm, local_ranks),
    FIELD(cw_nccl_comm, color),
    FIELD(cw_nccl_comm, name),
    FIELD(cw_nccl_comm, p2p_channels),
    FIELD(cw_nccl_comm, p2p_channels_per_peer),
});

constexpr auto COMM_END = std::to_array<Field>({
    FIELD(cw_nccl_comm_end, tgid),
    FIELD(cw_nccl_comm_end, tid),
    FIELD(cw_nccl_comm_end, comm),
});

constexpr auto CHANNEL = std::to_array<Field>({
    FIELD(cw_nccl_channel, tgid),
    FIELD(cw_nccl_channel, channel),
    FIELD(cw_nccl_channel, comm),
    FIELD(cw_nccl_channel, ring_prev),
    FIELD(cw_nccl_channel, ring_next),
    FIELD(cw_nccl_channel, ring_index),
    FIELD(cw_nccl_channel, tree_up),
    FIELD(cw_nccl_channel, tree_down),
    FIELD(cw_nccl_channel, n_order),
});

constexpr auto PARAM = std::to_array<Field>({
    FIELD(cw_nccl_param, tgid),
    FIELD(cw_nccl_param, image_id),
    FIELD(cw_nccl_param, value),
    FIELD(cw_nccl_param, name),
});

constexpr auto CALL = std::to_array<Field>({
    FIELD(cw_nccl_call, comm),
    FIELD(cw_nccl_call, tgid),
    FIELD(cw_nccl_call, tid),
    FIELD(cw_nccl_call, count),
    FIELD(cw_nccl_call, stream),
    FIELD(cw_nccl_call, arguments_hash),
    FIELD(cw_nccl_call, root),
    FIELD(cw_nccl_call, reduction),
    FIELD(cw_nccl_call, func).named(nccl_func_name),
    FIELD(cw_nccl_call, datatype).named(nccl_datatype_name),
    FIELD(cw_nccl_call, flags).flags(nccl_call_flag_names),
    FIELD(cw_nccl_call, reserved).as(FieldType::Reserved),
});

constexpr auto RETURN = std::to_array<Field>({
    FIELD(cw_nccl_return, comm),
    FIELD(cw_nccl_return, call_ns),
    FIELD(cw_nccl_return, tgid),
    FIELD(cw_nccl_return, tid),
    FIELD(cw_nccl_return, result).named(nccl_result_name),
    FIELD(cw_nccl_return, reserved).as(FieldType::Reserved),
});

constexpr auto PROGRESS = std::to_array<Field>({
    FIELD(cw_nccl_progress, connection),
    FIELD(cw_nccl_progress, group),
    FIELD(cw_nccl_progress, base_steps),
    FIELD(cw_nccl_progress, tgid),
    FIELD(cw_nccl_progress, tid),
    FIELD(cw_nccl_progress, nsteps),
    FIELD(cw_nccl_progress, flags).flags(nccl_progress_flag_names),
});

constexpr auto STEPS = std::to_array<Field>({
    FIELD(cw_nccl_steps, connection),
    FIELD(cw_nccl_steps, steps),
    FIELD(cw_nccl_steps, read_ns),
    FIELD(cw_nccl_steps, unchanged_ns),
    FIELD(cw_nccl_steps, tgid),
    FIELD(cw_nccl_steps, flags).flags(nccl_steps_flag_names),
});

constexpr auto TASK_REF = std::to_array<Field>({
    FIELD(cw_nccl_task_ref, arguments_hash),
    FIELD(cw_nccl_task_ref, task),
});

constexpr auto LAUNCH = std::to_array<Field>({
    FIELD(cw_nccl_launch, comm),
    FIELD(cw_nccl_launch, tgid),
    FIELD(cw_nccl_launch, tid),
    FIELD(cw_nccl_launch, plan),
    FIELD(cw_nccl_launch, shape),
    FIELD(cw_nccl_launch, launched),
    FIELD(cw_nccl_launch, n_ops),
    FIELD(cw_nccl_launch, n_tasks),
    FIELD(cw_nccl_launch, flags).flags(nccl_launch_flag_names),
    FIELD(cw_nccl_launch, reserved).as(FieldType::Reserved),
    STRUCT_FIELD(cw_nccl_launch, tasks, TASK_REF).used_by(FIELD(cw_nccl_launch, n_tasks)),
    FIELD(cw_nccl_launch, channel_mask),
});

constexpr auto LAUNCH_TASKS = std::to_array<Field>({
    FIELD(cw_nccl_launch_tasks, comm),
    FIELD(cw_nccl_launch_tasks, plan),
    FIELD(cw_nccl_launch_tasks, launch_ns),
    FIELD(cw_nccl_launch_tasks, tgid),
    FIELD(cw_nccl_launch_tasks, first),
    FIELD(cw_nccl_launch_tasks, n),
    STRUCT_FIELD(cw_nccl_launch_tasks, tasks, TASK_REF).used_by(FIELD(cw_nccl_launch_tasks, n)),
});

constexpr auto SHAPE_TASK = std::to_array<Field>({
    FIELD(cw_nccl_shape_task, comm),
    FIELD(cw_nccl_shape_task, shape),
    FIELD(cw_nccl_shape_task, tgid),
    FIELD(cw_nccl_shape_task, index),
    FIELD(cw_nccl_shape_task, count),
    FIELD(cw_nccl_shape_task, bytes),
    FIELD(cw_nccl_shape_task, root),
    FIELD(cw_nccl_shape_task, reduction),
    FIELD(cw_nccl_shape_task, func).named(nccl_func_name),
    FIELD(cw_nccl_shape_task, api_func).named(nccl_func_name),
    FIELD(cw_nccl_shape_task, datatype).named(nccl_datatype_name),
    FIELD(cw_nccl_shape_task, algorithm).named(nccl_algorithm_name),
    FIELD(cw_nccl_shape_task, protocol).named(nccl_protocol_name),
    FIELD(cw_nccl_shape_task, n_channels),
    FIELD(cw_nccl_shape_task, reserved).as(FieldType::Reserved),
});

constexpr auto OP = std::to_array<Field>({
    FIELD(cw_nccl_op, connection),
    FIELD(cw_nccl_op, nbytes),
    FIELD(cw_nccl_op, chunk_bytes),
    FIELD(cw_nccl_op, slice_bytes),
    FIELD(cw_nccl_op, loop_bytes),
    FIELD(cw_nccl_op, loop_offset_bytes),
    FIELD(cw_nccl_op, channel_bytes),
    FIELD(cw_nccl_op, nsteps),
    FIELD(cw_nccl_op, task),
    FIELD(cw_nccl_op, root),
    FIELD(cw_nccl_op, peer),
    FIELD(cw_nccl_op, ring_index),
    FIELD(cw_nccl_op, channel),
    FIELD(cw_nccl_op, func).named(nccl_func_name),
    FIELD(cw_nccl_op, pattern).named(nccl_pattern_name),
    FIELD(cw_nccl_op, protocol).named(nccl_protocol_name),
    FIELD(cw_nccl_op, algorithm).named(nccl_algorithm_name),
    FIELD(cw_nccl_op, slice_steps),
    FIELD(cw_nccl_op, chunk_steps),
    FIELD(cw_nccl_op, datatype).named(nccl_datatype_name),
    FIELD(cw_nccl_op, reduction),
    FIELD(cw_nccl_op, registered),
    FIELD(cw_nccl_op, flags).flags(nccl_op_flag_names),
    FIELD(cw_nccl_op, proxy_index),
});

constexpr auto SHAPE_OPS = std::to_array<Field>({
    FIELD(cw_nccl_shape_ops, comm),
    FIELD(cw_nccl_shape_ops, shape),
    FIELD(cw_nccl_shape_ops, tgid),
    FIELD(cw_nccl_shape_ops, n_ops),
    FIELD(cw_nccl_shape_ops, first),
    FIELD(cw_nccl_shape_ops, n),
    STRUCT_FIELD(cw_nccl_shape_ops, ops, OP).used_by(FIELD(cw_nccl_shape_ops, n)),
    FIELD(cw_nccl_shape_ops, proxy_indices).used_by(FIELD(cw_nccl_shape_ops, n)),
    FIELD(cw_nccl_shape_ops, reserved).as(FieldType::Reserved),
});

constexpr auto ENDPOINT = std::to_array<Field>({
    FIELD(cw_nccl_endpoint, address),
    FIELD(cw_nccl_endpoint, number),
    FIELD(cw_nccl_endpoint, device),
    FIELD(cw_nccl_endpoint, role).named(nccl_role_name),
    FIELD(cw_nccl_endpoint, depth),
});

constexpr auto CONNECTION = std::to_array<Field>({
    FIELD(cw_nccl_connection, tgid),
    FIELD(cw_nccl_connection, tid),
    FIELD(cw_nccl_connection, comm),
    FIELD(cw_nccl_connection, connection),
    FIELD(cw_nccl_connection, net_comm),
    FIELD(cw_nccl_connection, transport).named(nccl_transport_name),
    FIELD(cw_nccl_connection, flags).flags(nccl_connection_flag_names),
    FIELD(cw_nccl_connection, rank),
    FIELD(cw_nccl_connection, peer),
    FIELD(cw_nccl_connection, channel),
    FIELD(cw_nccl_connection, conn_index),
    FIELD(cw_nccl_connection, net_dev),
    FIELD(cw_nccl_connection, n_endpoints),
    FIELD(cw_nccl_connection, first),
    FIELD(cw_nccl_connection, n),
    STRUCT_FIELD(cw_nccl_connection, endpoints, ENDPOINT).used_by(FIELD(cw_nccl_connection, n)),
    FIELD(cw_nccl_connection, socket_inodes).used_by(FIELD(cw_nccl_connection, n)),
});

constexpr auto TCP_SOCKET = std::to_array<Field>({
    FIELD(cw_tcp_socket, inode),
    FIELD(cw_tcp_socket, netns),
    FIELD(cw_tcp_socket, tgid),
    FIELD(cw_tcp_socket, fd),
    FIELD(cw_tcp_socket, local_address).as(FieldType::Gid),
    FIELD(cw_tcp_socket, remote_address).as(FieldType::Gid),
    FIELD(cw_tcp_socket, local_port),
    FIELD(cw_tcp_socket, remote_port),
    FIELD(cw_tcp_socket, flags).flags(tcp_socket_flag_names),
    FIELD(cw_tcp_socket, sent_bytes),
    FIELD(cw_tcp_socket, acked_bytes),
    FIELD(cw_tcp_socket, received_bytes),
    FIELD(cw_tcp_socket, retransmitted_bytes),
    FIELD(cw_tcp_socket, unsent_bytes),
    FIELD(cw_tcp_socket, sent_segments),
    FIELD(cw_tcp_socket, received_segments),
    FIELD(cw_tcp_socket, retransmitted_segments),
    FIELD(cw_tcp_socket, rtt_us),
    FIELD(cw_tcp_socket, mss_bytes),
    FIELD(cw_tcp_socket, state),
});

constexpr auto NCCL_SOCKET = std::to_array<Field>({
    FIELD(cw_nccl_socket, tgid),
    FIELD(cw_nccl_socket, tid),
    FIELD(cw_nccl_socket, inode),
    FIELD(cw_nccl_socket, tx_payload_bytes),
    FIELD(cw_nccl_socket, rx_payload_bytes),
    FIELD(cw_nccl_socket, retransmitted_bytes),
    FIELD(cw_nccl_socket, type).named(nccl_socket_type_name),
    FIELD(cw_nccl_socket, reserved).as(FieldType::Reserved),
});

constexpr auto RESULT = std::to_array<Field>({
    FIELD(cw_nccl_result, comm),
    FIELD(cw_nccl_result, before_ns),
    FIELD(cw_nccl_result, tgid),
    FIELD(cw_nccl_result, result).named(nccl_result_name),
    FIELD(cw_nccl_result, of).named(nccl_result_of_name),
    FIELD(cw_nccl_result, reserved).as(FieldType::Reserved),
});

constexpr auto LAST_ERROR = std::to_array<Field>({
    FIELD(cw_nccl_last_error, before_ns),
    FIELD(cw_nccl_last_error, tgid),
    FIELD(cw_nccl_last_error, image_id),
    FIELD(cw_nccl_last_error, text),
});

constexpr auto WARNING = std::to_array<Field>({
    FIELD(cw_nccl_warning, tgid),
    FIELD(cw_nccl_warning, tid),
    FIELD(cw_nccl_warning, line),
    FIELD(cw_nccl_warning, image_id),
    FIELD(cw_nccl_warning, file),
    FIELD(cw_nccl_warning, format),
    FIELD(cw_nccl_warning, earlier),
});

constexpr auto LOCAL = std::to_array<Field>({
    FIELD(cw_nccl_local, comm),
    FIELD(cw_nccl_local, tgid),
    FIELD(cw_nccl_local, peer),
    FIELD(cw_nccl_local, p2p_send),
    FIELD(cw_nccl_local, p2p_recv),
    FIELD(cw_nccl_local, shm_send),
    FIELD(cw_nccl_local, shm_recv),
    FIELD(cw_nccl_local, net_send),
    FIELD(cw_nccl_local, net_recv),
});
constexpr auto NVLS = std::to_array<Field>({
    FIELD(cw_nccl_nvls, comm),
    FIELD(cw_nccl_nvls, tgid),
    FIELD(cw_nccl_nvls, n_heads),
    FIELD(cw_nccl_nvls, head_rank),
    FIELD(cw_nccl_nvls, n_channels),
    FIELD(cw_nccl_nvls, chunk_bytes),
    FIELD(cw_nccl_nvls, tree_chunk_bytes),
    FIELD(cw_nccl_nvls, tree_up),
    FIELD(cw_nccl_nvls, tree_down),
});
constexpr auto NETWORK = std::to_array<Field>({
    FIELD(cw_nccl_network, net),
    FIELD(cw_nccl_network, tgid),
    FIELD(cw_nccl_network, image_id),
    FIELD(cw_nccl_network, name),
    FIELD(cw_nccl_network, path),
});

} // namespace

const RecordLayout *nccl_layout_of(std::uint64_t kind) {
    switch (kind) {
    case CW_KIND_NCCL_IMAGE:
        return layout<cw_nccl_image, IMAGE>("cw_nccl_image");
    case CW_KIND_NCCL_PROCESS:
        return layout<cw_nccl_process, PROCESS>("cw_nccl_process");
    case CW_KIND_NCCL_COMM:
        return layout<cw_nccl_comm, COMM>("cw_nccl_comm");
    case CW_KIND_NCCL_COMM_END:
        return layout<cw_nccl_comm_end, COMM_END>("cw_nccl_comm_end");
    case CW_KIND_NCCL_CHANNEL:
        return layout<cw_nccl_channel, CHANNEL>("cw_nccl_channel");
    case CW_KIND_NCCL_PARAM:
        return layout<cw_nccl_param, PARAM>("cw_nccl_param");
    case CW_KIND_NCCL_CALL:
        return layout<cw_nccl_call, CALL>("cw_nccl_call");
    case CW_KIND_NCCL_RETURN:
        return layout<cw_nccl_return, RETURN>("cw_nccl_return");
    case CW_KIND_NCCL_PROGRESS:
        return layout<cw_nccl_progress, PROGRESS>("cw_nccl_progress");
    case CW_KIND_NCCL_STEPS:
        return layout<cw_nccl_steps, STEPS>("cw_nccl_steps");
    case CW_KIND_NCCL_LAUNCH:
        return layout<cw_nccl_launch, LAUNCH>("cw_nccl_launch");
    case CW_KIND_NCCL_LAUNCH_TASKS:
        return layout<cw_nccl_launch_tasks, LAUNCH_TASKS>("cw_nccl_launch_tasks");
    case CW_KIND_NCCL_SHAPE_TASK:
        return layout<cw_nccl_shape_task, SHAPE_TASK>("cw_nccl_shape_task");
    case CW_KIND_NCCL_SHAPE_OPS:
        return layout<cw_nccl_shape_ops, SHAPE_OPS>("cw_nccl_shape_ops");
    case CW_KIND_NCCL_CONNECTION:
        return layout<cw_nccl_connection, CONNECTION>("cw_nccl_connection");
    case CW_KIND_TCP_SOCKET:
        return layout<cw_tcp_socket, TCP_SOCKET>("cw_tcp_socket");
    case CW_KIND_NCCL_SOCKET:
        return layout<cw_nccl_socket, NCCL_SOCKET>("cw_nccl_socket");
    case CW_KIND_NCCL_RESULT:
        return layout<cw_nccl_result, RESULT>("cw_nccl_result");
    case CW_KIND_NCCL_LAST_ERROR:
        return layout<cw_nccl_last_error, LAST_ERROR>("cw_nccl_last_error");
    case CW_KIND_NCCL_WARNING:
        return layout<cw_nccl_warning, WARNING>("cw_nccl_warning");
    case CW_KIND_NCCL_LOCAL:
        return layout<cw_nccl_local, LOCAL>("cw_nccl_local");
    case CW_KIND_NCCL_NVLS:
        return layout<cw_nccl_nvls, NVLS>("cw_nccl_nvls");
    case CW_KIND_NCCL_NETWORK:
        return layout<cw_nccl_network, NETWORK>("cw_nccl_network");
    default:
        return nullptr;
    }
}

} // namespace collwire::capture
