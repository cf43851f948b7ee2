// SPDX-License-Identifier: Apache-2.0
#include "correlate/capture/fields.h"

#include <array>

#include "collwire/records.h"
#include "correlate/capture/field_builder.h"

namespace collwire::capture {
namespace {

constexpr auto QP_KEY = std::to_array<Field>({
    FIELD(cw_qp_key, dev_index),
    FIELD(cw_qp_key, qpn),
    FIELD(cw_qp_key, generation_ns),
});

constexpr auto NODE = std::to_array<Field>({
    FIELD(cw_node, session_id),
    FIELD(cw_node, segment),
    FIELD(cw_node, flags).flags(node_flag_names),
    FIELD(cw_node, realtime_ns),
    FIELD(cw_node, boottime_ns),
    FIELD(cw_node, record_start_ns),
    FIELD(cw_node, recorder_pid),
    FIELD(cw_node, n_cpus),
    FIELD(cw_node, hostname),
    FIELD(cw_node, boot_id),
    FIELD(cw_node, kernel_release),
    FIELD(cw_node, tool_version),
    FIELD(cw_node, machine_id),
    FIELD(cw_node, sample_interval_ns),
});

constexpr auto DEVICE = std::to_array<Field>({
    FIELD(cw_device, dev_index),
    FIELD(cw_device, flags).flags(device_flag_names),
    FIELD(cw_device, node_guid),
    FIELD(cw_device, numa_node),
    FIELD(cw_device, n_ports),
    FIELD(cw_device, name),
    FIELD(cw_device, driver),
    FIELD(cw_device, pci_address),
    FIELD(cw_device, firmware),
    FIELD(cw_device, board_id),
});

constexpr auto PORT = std::to_array<Field>({
    FIELD(cw_port, dev_index),
    FIELD(cw_port, port),
    FIELD(cw_port, link_layer).named(link_layer_name),
    FIELD(cw_port, state).named(port_state_name),
    FIELD(cw_port, phys_state),
    FIELD(cw_port, lid),
    FIELD(cw_port, sm_lid),
    FIELD(cw_port, active_mtu_bytes),
    FIELD(cw_port, rate_mbps),
    FIELD(cw_port, ifindex),
    FIELD(cw_port, carrier),
    FIELD(cw_port, subnet_prefix),
    FIELD(cw_port, port_guid),
    FIELD(cw_port, mac).as(FieldType::Mac),
    FIELD(cw_port, netdev),
});

constexpr auto GID = std::to_array<Field>({
    FIELD(cw_gid, dev_index),
    FIELD(cw_gid, port),
    FIELD(cw_gid, gid_index),
    FIELD(cw_gid, type).named(gid_type_name),
    FIELD(cw_gid, gid).as(FieldType::Gid),
    FIELD(cw_gid, netdev),
});

constexpr auto PCI_FUNCTION = std::to_array<Field>({
    FIELD(cw_pci_function, vendor),
    FIELD(cw_pci_function, class_code),
    FIELD(cw_pci_function, numa_node),
    FIELD(cw_pci_function, reserved).as(FieldType::Reserved),
    FIELD(cw_pci_function, pci_address),
    FIELD(cw_pci_function, path),
});

constexpr auto CLOCK = std::to_array<Field>({
    FIELD(cw_clock, realtime_ns),
    FIELD(cw_clock, boottime_ns),
    FIELD(cw_clock, uncertainty_ns),
});

constexpr auto PROCESS = std::to_array<Field>({
    FIELD(cw_process, pid),
    FIELD(cw_process, parent_pid),
    FIELD(cw_process, start_boottime_ns),
    FIELD(cw_process, uid),
    FIELD(cw_process, numa_node),
    FIELD(cw_process, flags).flags(process_flag_names),
    FIELD(cw_process, namespace_pid),
    FIELD(cw_process, comm),
    FIELD(cw_process, executable),
    FIELD(cw_process, argv0),
    FIELD(cw_process, script),
    FIELD(cw_process, slurm_job),
    FIELD(cw_process, slurm_step),
    FIELD(cw_process, pod_uid),
    FIELD(cw_process, container_id),
    FIELD(cw_process, cgroup),
    FIELD(cw_process, cmdline),
});

constexpr auto PROBE = std::to_array<Field>({
    FIELD(cw_probe, probe_kind).named(probe_kind_name),
    FIELD(cw_probe, flags).flags(probe_flag_names),
    FIELD(cw_probe, offset_bytes),
    FIELD(cw_probe, expected_cost_ns),
    FIELD(cw_probe, reserved).as(FieldType::Reserved),
    FIELD(cw_probe, source),
    FIELD(cw_probe, function),
    FIELD(cw_probe, module_or_file),
    FIELD(cw_probe, instruction),
});

constexpr auto SOURCE = std::to_array<Field>({
    FIELD(cw_source, state).named(source_state_name),
    FIELD(cw_source, dev_index),
    FIELD(cw_source, name),
    FIELD(cw_source, reason),
});

constexpr auto END = std::to_array<Field>({
    FIELD(cw_end, reason).named(end_reason_name),
    FIELD(cw_end, exit_status),
});

constexpr auto QP_EVENT = std::to_array<Field>({
    STRUCT_FIELD(cw_qp_event, key, QP_KEY),
    FIELD(cw_qp_event, tgid),
    FIELD(cw_qp_event, tid),
    FIELD(cw_qp_event, start_boottime_ns),
    FIELD(cw_qp_event, comm),
    FIELD(cw_qp_event, device),
    FIELD(cw_qp_event, user_handle),
    FIELD(cw_qp_event, flags).flags(qp_flag_names),
    FIELD(cw_qp_event, attr_mask),
    FIELD(cw_qp_event, result),
    FIELD(cw_qp_event, event).named(async_event_name),
    FIELD(cw_qp_event, qp_type).named(qp_type_name),
    FIELD(cw_qp_event, old_state).named(qp_state_name),
    FIELD(cw_qp_event, new_state).named(qp_state_name),
    FIELD(cw_qp_event, port),
    FIELD(cw_qp_event, path_mtu),
    FIELD(cw_qp_event, service_level),
    FIELD(cw_qp_event, traffic_class),
    FIELD(cw_qp_event, hop_limit),
    FIELD(cw_qp_event, gid_type).named(gid_type_name),
    FIELD(cw_qp_event, sgid_index),
    FIELD(cw_qp_event, timeout),
    FIELD(cw_qp_event, retry_count),
    FIELD(cw_qp_event, rnr_retry),
    FIELD(cw_qp_event, min_rnr_timer),
    FIELD(cw_qp_event, max_rd_atomic),
    FIELD(cw_qp_event, static_rate),
    FIELD(cw_qp_event, udp_sport),
    FIELD(cw_qp_event, pkey_index),
    FIELD(cw_qp_event, flow_label),
    FIELD(cw_qp_event, dest_qpn),
    FIELD(cw_qp_event, dlid),
    FIELD(cw_qp_event, rq_psn),
    FIELD(cw_qp_event, sq_psn),
    FIELD(cw_qp_event, qkey),
    FIELD(cw_qp_event, pdn),
    FIELD(cw_qp_event, sgid).as(FieldType::Gid),
    FIELD(cw_qp_event, dgid).as(FieldType::Gid),
    FIELD(cw_qp_event, dmac).as(FieldType::Mac),
});

constexpr auto WIRE_DIRECTION = std::to_array<Field>({
    FIELD(cw_wire_direction, frames).named(wire_class_name),
    FIELD(cw_wire_direction, wire_bytes).named(wire_class_name),
    FIELD(cw_wire_direction, payload_bytes).named(wire_class_name),
    FIELD(cw_wire_direction, first_ns),
    FIELD(cw_wire_direction, last_ns),
    FIELD(cw_wire_direction, first_psn),
    FIELD(cw_wire_direction, first_opcode),
    FIELD(cw_wire_direction, reserved).as(FieldType::Reserved),
});

constexpr auto WIRE_COUNTERS = std::to_array<Field>({
    STRUCT_FIELD(cw_wire_counters, tx, WIRE_DIRECTION),
    STRUCT_FIELD(cw_wire_counters, rx, WIRE_DIRECTION),
    FIELD(cw_wire_counters, tx_failed_frames),
});

constexpr auto QP_WIRE = std::to_array<Field>({
    STRUCT_FIELD(cw_qp_wire, key, QP_KEY),
    STRUCT_FIELD(cw_qp_wire, counters, WIRE_COUNTERS),
});

constexpr auto UD_PEER = std::to_array<Field>({
    STRUCT_FIELD(cw_ud_peer, key, QP_KEY),
    FIELD(cw_ud_peer, dgid).as(FieldType::Gid),
    FIELD(cw_ud_peer, dest_qpn),
    FIELD(cw_ud_peer, reserved).as(FieldType::Reserved),
    FIELD(cw_ud_peer, tx_frames),
    FIELD(cw_ud_peer, tx_wire_bytes),
    FIELD(cw_ud_peer, tx_payload_bytes),
});

constexpr auto POST_CLASS_COUNTERS = std::to_array<Field>({
    FIELD(cw_post_class_counters, wrs),
    FIELD(cw_post_class_counters, zero_length_wrs),
    FIELD(cw_post_class_counters, bytes),
    FIELD(cw_post_class_counters, pad_bytes),
    FIELD(cw_post_class_counters, packets).named(mtu_class_name),
});

constexpr auto POST_COUNTERS = std::to_array<Field>({
    FIELD(cw_post_counters, first_ns),
    FIELD(cw_post_counters, last_ns),
    FIELD(cw_post_counters, posts),
    FIELD(cw_post_counters, truncated_posts),
    FIELD(cw_post_counters, fault_posts),
    FIELD(cw_post_counters, aborted_wrs),
    STRUCT_FIELD(cw_post_counters, classes, POST_CLASS_COUNTERS).named(post_class_name),
    FIELD(cw_post_counters, multi_packet_reads).named(mtu_class_name),
});

constexpr auto VERBS_KEY = std::to_array<Field>({
    FIELD(cw_verbs_key, context),
    FIELD(cw_verbs_key, tgid),
    FIELD(cw_verbs_key, qpn),
    FIELD(cw_verbs_key, epoch),
    FIELD(cw_verbs_key, reserved).as(FieldType::Reserved),
});

constexpr auto QP_POST = std::to_array<Field>({
    STRUCT_FIELD(cw_qp_post, key, VERBS_KEY),
    STRUCT_FIELD(cw_qp_post, counters, POST_COUNTERS),
});

constexpr auto VERBS_QP = std::to_array<Field>({
    STRUCT_FIELD(cw_verbs_qp, key, VERBS_KEY),
    FIELD(cw_verbs_qp, qp_address),
    FIELD(cw_verbs_qp, start_boottime_ns),
    FIELD(cw_verbs_qp, qp_type).named(qp_type_name),
    FIELD(cw_verbs_qp, handle),
    FIELD(cw_verbs_qp, device),
});

constexpr auto POST_SLICE = std::to_array<Field>({
    FIELD(cw_post_slice, on_ns),
    FIELD(cw_post_slice, period_ns),
    FIELD(cw_post_slice, change_ns),
    FIELD(cw_post_slice, tgid),
    FIELD(cw_post_slice, counted).named(posts_counted_name),
    FIELD(cw_post_slice, n_connections),
    FIELD(cw_post_slice, reserved).as(FieldType::Reserved),
});

constexpr auto POST_OPERATIONS = std::to_array<Field>({
    FIELD(cw_post_operations, begin_ns),
    FIELD(cw_post_operations, connection),
    FIELD(cw_post_operations, from_steps),
    FIELD(cw_post_operations, to_steps),
    FIELD(cw_post_operations, bytes),
    FIELD(cw_post_operations, posts),
    FIELD(cw_post_operations, operations),
    FIELD(cw_post_operations, edge_bytes),
    FIELD(cw_post_operations, tgid),
    FIELD(cw_post_operations, flags).flags(post_operations_flag_names),
});

constexpr auto ASYNC_EVENT = std::to_array<Field>({
    FIELD(cw_async_event, dev_index),
    FIELD(cw_async_event, event).named(async_event_name),
    FIELD(cw_async_event, port),
    FIELD(cw_async_event, qpn),
    FIELD(cw_async_event, device),
});

constexpr auto CARRIER = std::to_array<Field>({
    FIELD(cw_carrier, ifindex),
    FIELD(cw_carrier, up),
    FIELD(cw_carrier, netns_cookie),
    FIELD(cw_carrier, netdev),
});

constexpr auto MODULE_EVENT = std::to_array<Field>({
    FIELD(cw_module_event, module),
    FIELD(cw_module_event, status).named(module_status_name),
    FIELD(cw_module_event, error_type),
    FIELD(cw_module_event, reserved).as(FieldType::Reserved),
    FIELD(cw_module_event, pci_address),
});

constexpr auto DEVICE_GONE = std::to_array<Field>({
    FIELD(cw_device_gone, dev_index),
    FIELD(cw_device_gone, reserved).as(FieldType::Reserved),
    FIELD(cw_device_gone, device),
});

constexpr auto COUNTER_DEF = std::to_array<Field>({
    FIELD(cw_counter_def, id),
    FIELD(cw_counter_def, dev_index),
    FIELD(cw_counter_def, port),
    FIELD(cw_counter_def, unit).named(counter_unit_name),
    FIELD(cw_counter_def, source).named(counter_source_name),
    FIELD(cw_counter_def, name),
});

constexpr auto COUNTER_SAMPLES = std::to_array<Field>({
    FIELD(cw_counter_samples, read_begin_ns),
    FIELD(cw_counter_samples, n),
    FIELD(cw_counter_samples, reserved).as(FieldType::Reserved),
});

constexpr auto LOSS = std::to_array<Field>({
    FIELD(cw_loss, loss_class).named(loss_class_name),
    FIELD(cw_loss, reserved).as(FieldType::Reserved),
    FIELD(cw_loss, records),
});

constexpr auto SAMPLE_GAP = std::to_array<Field>({
    FIELD(cw_sample_gap, begin_ns),
});

} // namespace

const RecordLayout *layout_of(std::uint64_t kind) {
    switch (kind) {
    case CW_KIND_NODE:
        return layout<cw_node, NODE>("cw_node");
    case CW_KIND_DEVICE:
        return layout<cw_device, DEVICE>("cw_device");
    case CW_KIND_PORT:
        return layout<cw_port, PORT>("cw_port");
    case CW_KIND_GID:
        return layout<cw_gid, GID>("cw_gid");
    case CW_KIND_CLOCK:
        return layout<cw_clock, CLOCK>("cw_clock");
    case CW_KIND_PROCESS:
        return layout<cw_process, PROCESS>("cw_process");
    case CW_KIND_PROBE:
        return layout<cw_probe, PROBE>("cw_probe");
    case CW_KIND_SOURCE:
        return layout<cw_source, SOURCE>("cw_source");
    case CW_KIND_END:
        return layout<cw_end, END>("cw_end");
    case CW_KIND_PCI_FUNCTION:
        return layout<cw_pci_function, PCI_FUNCTION>("cw_pci_function");
    case CW_KIND_QP_CREATE:
    case CW_KIND_QP_STATE:
    case CW_KIND_QP_EXISTING:
    case CW_KIND_QP_DESTROY:
    case CW_KIND_QP_ERROR:
        return layout<cw_qp_event, QP_EVENT>("cw_qp_event");
    case CW_KIND_ASYNC_EVENT:
        return layout<cw_async_event, ASYNC_EVENT>("cw_async_event");
    case CW_KIND_CARRIER:
        return layout<cw_carrier, CARRIER>("cw_carrier");
    case CW_KIND_MODULE_EVENT:
        return layout<cw_module_event, MODULE_EVENT>("cw_module_event");
    case CW_KIND_DEVICE_GONE:
        return layout<cw_device_gone, DEVICE_GONE>("cw_device_gone");
    case CW_KIND_QP_WIRE:
        return layout<cw_qp_wire, QP_WIRE>("cw_qp_wire");
    case CW_KIND_UD_PEER:
        return layout<cw_ud_peer, UD_PEER>("cw_ud_peer");
    case CW_KIND_QP_POST:
        return layout<cw_qp_post, QP_POST>("cw_qp_post");
    case CW_KIND_VERBS_QP:
        return layout<cw_verbs_qp, VERBS_QP>("cw_verbs_qp");
    case CW_KIND_POST_SLICE:
        return layout<cw_post_slice, POST_SLICE>("cw_post_slice");
    case CW_KIND_POST_OPERATIONS:
        return layout<cw_post_operations, POST_OPERATIONS>("cw_post_operations");
    case CW_KIND_COUNTER_DEF:
        return layout<cw_counter_def, COUNTER_DEF>("cw_counter_def");
    case CW_KIND_COUNTER_SAMPLES:
        return layout<cw_counter_samples, COUNTER_SAMPLES>("cw_counter_samples");
    case CW_KIND_LOSS:
        return layout<cw_loss, LOSS>("cw_loss");
    case CW_KIND_SAMPLE_GAP:
        return layout<cw_sample_gap, SAMPLE_GAP>("cw_sample_gap");
    default:
        return kind >= CW_KIND_NVLINK_GPU   ? nvlink_layout_of(kind)
               : kind >= CW_KIND_GPU_KERNEL ? gpu_layout_of(kind)
                                            : nccl_layout_of(kind);
    }
}

} // namespace collwire::capture
