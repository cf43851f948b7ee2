// SPDX-License-Identifier: Apache-2.0
#include "correlate/capture/kinds.h"

#include <array>

#include "collwire/records.h"

namespace collwire::capture {
namespace {

using Names = std::span<const NamedNumber>;

constexpr auto KINDS = std::to_array<NamedNumber>({
    {CW_KIND_NODE, "node"},
    {CW_KIND_DEVICE, "device"},
    {CW_KIND_PORT, "port"},
    {CW_KIND_GID, "gid"},
    {CW_KIND_CLOCK, "clock"},
    {CW_KIND_PROCESS, "process"},
    {CW_KIND_PROBE, "probe"},
    {CW_KIND_SOURCE, "source"},
    {CW_KIND_END, "end"},
    {CW_KIND_PCI_FUNCTION, "pci_function"},
    {CW_KIND_QP_CREATE, "qp_create"},
    {CW_KIND_QP_STATE, "qp_state"},
    {CW_KIND_QP_EXISTING, "qp_existing"},
    {CW_KIND_QP_DESTROY, "qp_destroy"},
    {CW_KIND_QP_ERROR, "qp_error"},
    {CW_KIND_ASYNC_EVENT, "async_event"},
    {CW_KIND_CARRIER, "carrier"},
    {CW_KIND_MODULE_EVENT, "module_event"},
    {CW_KIND_DEVICE_GONE, "device_gone"},
    {CW_KIND_QP_WIRE, "qp_wire"},
    {CW_KIND_UD_PEER, "ud_peer"},
    {CW_KIND_QP_POST, "qp_post"},
    {CW_KIND_VERBS_QP, "verbs_qp"},
    {CW_KIND_POST_SLICE, "post_slice"},
    {CW_KIND_POST_OPERATIONS, "post_operations"},
    {CW_KIND_COUNTER_DEF, "counter_def"},
    {CW_KIND_COUNTER_SAMPLES, "counter_samples"},
    {CW_KIND_LOSS, "loss"},
    {CW_KIND_SAMPLE_GAP, "sample_gap"},
    {CW_KIND_NCCL_IMAGE, "nccl_image"},
    {CW_KIND_NCCL_PROCESS, "nccl_process"},
    {CW_KIND_NCCL_COMM, "nccl_comm"},
    {CW_KIND_NCCL_COMM_END, "nccl_comm_end"},
    {CW_KIND_NCCL_CHANNEL, "nccl_channel"},
    {CW_KIND_NCCL_PARAM, "nccl_param"},
    {CW_KIND_NCCL_CALL, "nccl_call"},
    {CW_KIND_NCCL_LAUNCH, "nccl_launch"},
    {CW_KIND_NCCL_LAUNCH_TASKS, "nccl_launch_tasks"},
    {CW_KIND_NCCL_SHAPE_TASK, "nccl_shape_task"},
    {CW_KIND_NCCL_SHAPE_OPS, "nccl_shape_ops"},
    {CW_KIND_NCCL_CONNECTION, "nccl_connection"},
    {CW_KIND_NCCL_RETURN, "nccl_return"},
    {CW_KIND_NCCL_PROGRESS, "nccl_progress"},
    {CW_KIND_NCCL_STEPS, "nccl_steps"},
    {CW_KIND_TCP_SOCKET, "tcp_socket"},
    {CW_KIND_NCCL_SOCKET, "nccl_socket"},
    {CW_KIND_NCCL_RESULT, "nccl_result"},
    {CW_KIND_NCCL_LAST_ERROR, "nccl_last_error"},
    {CW_KIND_NCCL_WARNING, "nccl_warning"},
    {CW_KIND_NCCL_NETWORK, "nccl_network"},
    {CW_KIND_NCCL_LOCAL, "nccl_local"},
    {CW_KIND_NCCL_NVLS, "nccl_nvls"},
    {CW_KIND_GPU_KERNEL, "gpu_kernel"},
    {CW_KIND_GPU_NAME, "gpu_name"},
    {CW_KIND_GPU_WINDOW, "gpu_window"},
    {CW_KIND_GPU_TRACE, "gpu_trace"},
    {CW_KIND_GPU_CHANNEL, "gpu_channel"},
    {CW_KIND_GPU_PROFILER, "gpu_profiler"},
    {CW_KIND_NVLINK_GPU, "nvlink_gpu"},
    {CW_KIND_NVLINK_SAMPLE, "nvlink_sample"},
    {CW_KIND_NVLINK_GAP, "nvlink_gap"},
    {CW_KIND_XID, "xid"},
});

constexpr auto LINK_LAYERS = std::to_array<NamedNumber>({
    {CW_LINK_UNKNOWN, "unknown"},
    {CW_LINK_INFINIBAND, "infiniband"},
    {CW_LINK_ETHERNET, "ethernet"},
});

constexpr auto PORT_STATES = std::to_array<NamedNumber>({
    {0, "unknown"},
    {1, "down"},
    {2, "init"},
    {3, "armed"},
    {4, "active"},
    {5, "active_defer"},
});

constexpr auto GID_TYPES = std::to_array<NamedNumber>({
    {CW_GID_IB, "ib"},
    {CW_GID_ROCE_V1, "roce_v1"},
    {CW_GID_ROCE_V2, "roce_v2"},
    {CW_GID_UNKNOWN, "unknown"},
});

constexpr auto PROBE_KINDS = std::to_array<NamedNumber>({
    {CW_PROBE_KPROBE, "kprobe"},
    {CW_PROBE_KRETPROBE, "kretprobe"},
    {CW_PROBE_FENTRY, "fentry"},
    {CW_PROBE_FEXIT, "fexit"},
    {CW_PROBE_UPROBE, "uprobe"},
    {CW_PROBE_TRACEPOINT, "tracepoint"},
    {CW_PROBE_URETPROBE, "uretprobe"},
});

constexpr auto SOURCE_STATES = std::to_array<NamedNumber>({
    {CW_SOURCE_OFF, "off"},
    {CW_SOURCE_ON, "on"},
    {CW_SOURCE_DEGRADED, "degraded"},
    {CW_SOURCE_UNAVAILABLE, "unavailable"},
    {CW_SOURCE_REFUSED, "refused"},
});

constexpr auto END_REASONS = std::to_array<NamedNumber>({
    {0, "finished"},
    {1, "signal"},
    {2, "rotated"},
    {3, "write_failed"},
});

constexpr auto QP_TYPES = std::to_array<NamedNumber>({
    {0, "SMI"},
    {1, "GSI"},
    {2, "RC"},
    {3, "UC"},
    {4, "UD"},
    {8, "RAW_PACKET"},
    {9, "XRC_INI"},
    {10, "XRC_TGT"},
    {0xff, "DRIVER"},
});

constexpr auto QP_STATES = std::to_array<NamedNumber>({
    {0, "RESET"},
    {1, "INIT"},
    {2, "RTR"},
    {3, "RTS"},
    {4, "SQD"},
    {5, "SQE"},
    {6, "ERR"},
    {0xff, "unknown"},
});

constexpr auto ASYNC_EVENTS = std::to_array<NamedNumber>({
    {0, "cq_err"},
    {1, "qp_fatal"},
    {2, "qp_req_err"},
    {3, "qp_access_err"},
    {4, "comm_est"},
    {5, "sq_drained"},
    {6, "path_mig"},
    {7, "path_mig_err"},
    {8, "device_fatal"},
    {9, "port_active"},
    {10, "port_err"},
    {11, "lid_change"},
    {12, "pkey_change"},
    {13, "sm_change"},
    {14, "srq_err"},
    {15, "srq_limit_reached"},
    {16, "qp_last_wqe_reached"},
    {17, "client_reregister"},
    {18, "gid_change"},
    {19, "wq_fatal"},
});

constexpr auto WIRE_CLASSES = std::to_array<NamedNumber>({
    {CW_WIRE_REQUEST, "request"},
    {CW_WIRE_RESPONSE, "response"},
    {CW_WIRE_ACK, "ack"},
    {CW_WIRE_RETRANSMIT, "retransmit"},
});
static_assert(WIRE_CLASSES.size() == CW_WIRE_CLASSES);

constexpr auto POST_CLASSES = std::to_array<NamedNumber>({
    {CW_POST_SEND, "send"},
    {CW_POST_SEND_IMM, "send_imm"},
    {CW_POST_SEND_INV, "send_inv"},
    {CW_POST_WRITE, "write"},
    {CW_POST_WRITE_IMM, "write_imm"},
    {CW_POST_READ, "read"},
    {CW_POST_ATOMIC, "atomic"},
    {CW_POST_ATOMIC_WRITE, "atomic_write"},
    {CW_POST_FLUSH, "flush"},
    {CW_POST_LOCAL, "local"},
    {CW_POST_OTHER, "other"},
});
static_assert(POST_CLASSES.size() == CW_POST_CLASSES);

constexpr auto MTU_CLASSES = std::to_array<NamedNumber>({
    {0, "256"},
    {1, "512"},
    {2, "1024"},
    {3, "2048"},
    {4, "4096"},
});
static_assert(MTU_CLASSES.size() == CW_MTU_CLASSES);

constexpr auto MODULE_STATUSES = std::to_array<NamedNumber>({
    {1, "plugged"},
    {2, "unplugged"},
    {3, "error"},
    {4, "disabled"},
});

constexpr auto COUNTER_UNITS = std::to_array<NamedNumber>({
    {CW_UNIT_UNKNOWN, "unknown"},
    {CW_UNIT_LINK_BYTES, "link_bytes"},
    {CW_UNIT_OCTETS_4, "octets_4"},
    {CW_UNIT_BYTES, "bytes"},
    {CW_UNIT_PACKETS, "packets"},
    {CW_UNIT_EVENTS, "events"},
    {CW_UNIT_TICKS, "ticks"},
});

constexpr auto POSTS_COUNTED = std::to_array<NamedNumber>({
    {CW_POSTS_ALL, "all"},
    {CW_POSTS_SLICE, "slice"},
    {CW_POSTS_PAUSED, "paused"},
});

constexpr auto COUNTER_SOURCES = std::to_array<NamedNumber>({
    {CW_COUNTER_NETDEV, "netdev"},
    {CW_COUNTER_PORT, "port"},
    {CW_COUNTER_HW, "hw"},
    {CW_COUNTER_ETHTOOL, "ethtool"},
});

constexpr auto LOSS_CLASSES = std::to_array<NamedNumber>({
    {CW_LOSS_QP_EVENT, "qp_event"},
    {CW_LOSS_PORT_EVENT, "port_event"},
    {CW_LOSS_VERBS_QP, "verbs_qp"},
    {CW_LOSS_QP_TABLE, "qp_table"},
    {CW_LOSS_WIRE_TABLE, "wire_table"},
    {CW_LOSS_WIRE_FRAME, "wire_frame"},
    {CW_LOSS_POST_TABLE, "post_table"},
    {CW_LOSS_POST_TRUNCATED, "post_truncated"},
    {CW_LOSS_POST_FAULT, "post_fault"},
    {CW_LOSS_CALL_TABLE, "call_table"},
    {CW_LOSS_PROBE_MISSED, "probe_missed"},
    {CW_LOSS_RECORD_WRITE, "record_write"},
    {CW_LOSS_UD_PEER_TABLE, "ud_peer_table"},
    {CW_LOSS_NCCL_COMM, "nccl_comm"},
    {CW_LOSS_NCCL_CALL, "nccl_call"},
    {CW_LOSS_NCCL_LAUNCH, "nccl_launch"},
    {CW_LOSS_NCCL_SHAPE, "nccl_shape"},
    {CW_LOSS_NCCL_CONNECTION, "nccl_connection"},
    {CW_LOSS_NCCL_OPS_TRUNCATED, "nccl_ops_truncated"},
    {CW_LOSS_NCCL_FAULT, "nccl_fault"},
    {CW_LOSS_NCCL_PROGRESS, "nccl_progress"},
    {CW_LOSS_NCCL_SOCKET, "nccl_socket"},
    {CW_LOSS_RING_UNREAD, "ring_unread"},
    {CW_LOSS_NCCL_WARNING, "nccl_warning"},
    {CW_LOSS_GPU, "gpu"},
    {CW_LOSS_GPU_BATCH, "gpu_batch"},
    {CW_LOSS_STANDSTILL, "standstill"},
});
static_assert(LOSS_CLASSES.size() == CW_LOSS_CLASSES);

constexpr auto NODE_FLAGS = std::to_array<NamedNumber>({
    {CW_NODE_FIRST_SEGMENT, "first_segment"},
    {CW_NODE_WIRE, "wire"},
    {CW_NODE_POSTS, "posts"},
    {CW_NODE_NCCL, "nccl"},
    {CW_NODE_SOCKETS, "sockets"},
    {CW_NODE_GPU, "gpu"},
});

constexpr auto DEVICE_FLAGS = std::to_array<NamedNumber>({
    {CW_DEVICE_FOREIGN_MODULE, "foreign_module"},
    {CW_DEVICE_SOFTWARE, "software"},
});

constexpr auto PROCESS_FLAGS = std::to_array<NamedNumber>({
    {CW_PROCESS_GONE, "gone"},
    {CW_PROCESS_PARTIAL, "partial"},
    {CW_PROCESS_START_ROUNDED, "start_rounded"},
});

constexpr auto PROBE_FLAGS = std::to_array<NamedNumber>({
    {CW_PROBE_PLACED, "placed"},
    {CW_PROBE_EMULATED, "emulated"},
    {CW_PROBE_TAKEN_OFF, "taken_off"},
});

constexpr auto POST_OPERATIONS_FLAGS = std::to_array<NamedNumber>({
    {CW_POST_OPERATIONS_FAULT, "fault"},
});

constexpr auto QP_FLAGS = std::to_array<NamedNumber>({
    {CW_QP_KERNEL, "kernel"},
    {CW_QP_PREEXISTING, "preexisting"},
    {CW_QP_ADDRESS, "address"},
    {CW_QP_GRH, "grh"},
    {CW_QP_SGID, "sgid"},
    {CW_QP_DEST, "dest"},
    {CW_QP_PATH_MTU, "path_mtu"},
    {CW_QP_PSN_RQ, "psn_rq"},
    {CW_QP_PSN_SQ, "psn_sq"},
    {CW_QP_UDP_SPORT, "udp_sport"},
    {CW_QP_DEVX, "devx"},
    {CW_QP_FROM_NETLINK, "from_netlink"},
    {CW_QP_FROM_VERBS, "from_verbs"},
    {CW_QP_FROM_NCCL, "from_nccl"},
});

std::string_view find(Names names, std::uint64_t number) {
    for (const NamedNumber &entry : names)
        if (entry.number == number)
            return entry.name;
    return {};
}

} // namespace

std::string_view kind_name(std::uint64_t kind) {
    return find(KINDS, kind);
}
std::string_view link_layer_name(std::uint64_t value) {
    return find(LINK_LAYERS, value);
}
std::string_view port_state_name(std::uint64_t value) {
    return find(PORT_STATES, value);
}
std::string_view gid_type_name(std::uint64_t value) {
    return find(GID_TYPES, value);
}
std::string_view probe_kind_name(std::uint64_t value) {
    return find(PROBE_KINDS, value);
}
std::string_view source_state_name(std::uint64_t value) {
    return find(SOURCE_STATES, value);
}
std::string_view end_reason_name(std::uint64_t value) {
    return find(END_REASONS, value);
}
std::string_view qp_type_name(std::uint64_t value) {
    return find(QP_TYPES, value);
}
std::string_view qp_state_name(std::uint64_t value) {
    return find(QP_STATES, value);
}
std::string_view async_event_name(std::uint64_t value) {
    return find(ASYNC_EVENTS, value);
}
std::string_view wire_class_name(std::uint64_t value) {
    return find(WIRE_CLASSES, value);
}
std::string_view post_class_name(std::uint64_t value) {
    return find(POST_CLASSES, value);
}
std::string_view mtu_class_name(std::uint64_t value) {
    return find(MTU_CLASSES, value);
}
std::string_view module_status_name(std::uint64_t value) {
    return find(MODULE_STATUSES, value);
}
std::string_view posts_counted_name(std::uint64_t value) {
    return find(POSTS_COUNTED, value);
}
std::string_view counter_unit_name(std::uint64_t value) {
    return find(COUNTER_UNITS, value);
}
std::string_view counter_source_name(std::uint64_t value) {
    return find(COUNTER_SOURCES, value);
}
std::string_view loss_class_name(std::uint64_t value) {
    return find(LOSS_CLASSES, value);
}

std::span<const NamedNumber> node_flag_names() {
    return NODE_FLAGS;
}
std::span<const NamedNumber> device_flag_names() {
    return DEVICE_FLAGS;
}
std::span<const NamedNumber> process_flag_names() {
    return PROCESS_FLAGS;
}
std::span<const NamedNumber> probe_flag_names() {
    return PROBE_FLAGS;
}
std::span<const NamedNumber> qp_flag_names() {
    return QP_FLAGS;
}
std::span<const NamedNumber> post_operations_flag_names() {
    return POST_OPERATIONS_FLAGS;
}
std::span<const NamedNumber> kind_names() {
    return KINDS;
}

bool is_known_kind(std::uint64_t kind) {
    return !kind_name(kind).empty();
}

std::uint32_t path_mtu_bytes(std::uint64_t path_mtu) {
    return path_mtu >= 1 && path_mtu <= 5 ? 128U << path_mtu : 0;
}

} // namespace collwire::capture
