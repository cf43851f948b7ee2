// SPDX-License-Identifier: Apache-2.0
// The fields of records of GPU kernels.
#include <array>

#include "collwire/gpu_records.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/field_builder.h"
#include "correlate/capture/gpu_names.h"
#include "correlate/capture/nccl_names.h"

namespace collwire::capture {
namespace {

constexpr auto KERNEL_ITEM = std::to_array<Field>({
    FIELD(cw_gpu_kernel_item, start_ns),
    FIELD(cw_gpu_kernel_item, end_ns),
    FIELD(cw_gpu_kernel_item, graph_node),
    FIELD(cw_gpu_kernel_item, correlation),
    FIELD(cw_gpu_kernel_item, graph),
    FIELD(cw_gpu_kernel_item, context),
    FIELD(cw_gpu_kernel_item, stream),
    FIELD(cw_gpu_kernel_item, blocks),
    FIELD(cw_gpu_kernel_item, threads),
    FIELD(cw_gpu_kernel_item, cluster),
    FIELD(cw_gpu_kernel_item, device),
    FIELD(cw_gpu_kernel_item, name),
    FIELD(cw_gpu_kernel_item, flags).flags(gpu_kernel_flag_names),
    FIELD(cw_gpu_kernel_item, reserved).as(FieldType::Reserved),
});

constexpr auto NAME_ITEM = std::to_array<Field>({
    FIELD(cw_gpu_name_item, name),
    FIELD(cw_gpu_name_item, is_truncated),
    FIELD(cw_gpu_name_item, reserved).as(FieldType::Reserved),
    FIELD(cw_gpu_name_item, text),
});

constexpr auto WINDOW_ITEM = std::to_array<Field>({
    FIELD(cw_gpu_window_item, start_ns),
    FIELD(cw_gpu_window_item, busy_ns),
    FIELD(cw_gpu_window_item, nccl_ns),
    FIELD(cw_gpu_window_item, overlap_ns),
    FIELD(cw_gpu_window_item, kernels),
    FIELD(cw_gpu_window_item, nccl_kernels),
    FIELD(cw_gpu_window_item, window_ns),
    FIELD(cw_gpu_window_item, device),
    FIELD(cw_gpu_window_item, reserved).as(FieldType::Reserved),
});

constexpr auto STATE_ITEM = std::to_array<Field>({
    FIELD(cw_gpu_state_item, state).named(gpu_state_name),
    FIELD(cw_gpu_state_item, reason).named(gpu_reason_name),
    FIELD(cw_gpu_state_item, result),
    FIELD(cw_gpu_state_item, cupti_version),
    FIELD(cw_gpu_state_item, begin_ns),
    FIELD(cw_gpu_state_item, end_ns),
    FIELD(cw_gpu_state_item, kernels),
    FIELD(cw_gpu_state_item, unknown_names),
    FIELD(cw_gpu_state_item, unnamed),
    FIELD(cw_gpu_state_item, other_kernels),
    FIELD(cw_gpu_state_item, before_armed),
    FIELD(cw_gpu_state_item, dropped),
    FIELD(cw_gpu_state_item, buffers_lacking),
    FIELD(cw_gpu_state_item, memory_bytes),
    FIELD(cw_gpu_state_item, clock_error_ns),
    FIELD(cw_gpu_state_item, yields),
    FIELD(cw_gpu_state_item, owner),
    FIELD(cw_gpu_state_item, not_summed),
});

constexpr auto CHANNEL_ITEM = std::to_array<Field>({
    FIELD(cw_gpu_channel_item, start_ns),
    FIELD(cw_gpu_channel_item, end_ns),
    FIELD(cw_gpu_channel_item, comm_hash),
    FIELD(cw_gpu_channel_item, plan),
    FIELD(cw_gpu_channel_item, posted_ns),
    FIELD(cw_gpu_channel_item, launch_ns),
    FIELD(cw_gpu_channel_item, sequence),
    FIELD(cw_gpu_channel_item, count),
    FIELD(cw_gpu_channel_item, rank),
    FIELD(cw_gpu_channel_item, channel),
    FIELD(cw_gpu_channel_item, flags).flags(gpu_channel_flag_names),
    FIELD(cw_gpu_channel_item, func).named(nccl_func_name),
    FIELD(cw_gpu_channel_item, n_channels),
    FIELD(cw_gpu_channel_item, api_version),
    FIELD(cw_gpu_channel_item, source).named(gpu_source_name),
    FIELD(cw_gpu_channel_item, peer),
});

constexpr auto PROFILER_ITEM = std::to_array<Field>({
    FIELD(cw_gpu_profiler_item, state).named(gpu_state_name),
    FIELD(cw_gpu_profiler_item, reason).named(gpu_reason_name),
    FIELD(cw_gpu_profiler_item, cupti_state).named(gpu_state_name),
    FIELD(cw_gpu_profiler_item, api_version),
    FIELD(cw_gpu_profiler_item, begin_ns),
    FIELD(cw_gpu_profiler_item, end_ns),
    FIELD(cw_gpu_profiler_item, channels),
    FIELD(cw_gpu_profiler_item, orphans),
    FIELD(cw_gpu_profiler_item, dropped),
    FIELD(cw_gpu_profiler_item, tasks),
    FIELD(cw_gpu_profiler_item, calls),
    FIELD(cw_gpu_profiler_item, memory_bytes),
    FIELD(cw_gpu_profiler_item, clock_error_ns),
    FIELD(cw_gpu_profiler_item, clock_breaks),
    FIELD(cw_gpu_profiler_item, communicators),
    FIELD(cw_gpu_profiler_item, out_of_step),
});

constexpr auto KERNEL = std::to_array<Field>({
    FIELD(cw_gpu_kernel, tgid),
    FIELD(cw_gpu_kernel, reserved).as(FieldType::Reserved),
    STRUCT_FIELD(cw_gpu_kernel, kernel, KERNEL_ITEM),
});

constexpr auto NAME = std::to_array<Field>({
    FIELD(cw_gpu_name, tgid),
    FIELD(cw_gpu_name, reserved).as(FieldType::Reserved),
    STRUCT_FIELD(cw_gpu_name, name, NAME_ITEM),
});

constexpr auto WINDOW = std::to_array<Field>({
    FIELD(cw_gpu_window, tgid),
    FIELD(cw_gpu_window, reserved).as(FieldType::Reserved),
    STRUCT_FIELD(cw_gpu_window, window, WINDOW_ITEM),
});

constexpr auto TRACE = std::to_array<Field>({
    FIELD(cw_gpu_trace, tgid),
    FIELD(cw_gpu_trace, reserved).as(FieldType::Reserved),
    STRUCT_FIELD(cw_gpu_trace, state, STATE_ITEM),
});

constexpr auto CHANNEL = std::to_array<Field>({
    FIELD(cw_gpu_channel, tgid),
    FIELD(cw_gpu_channel, reserved).as(FieldType::Reserved),
    STRUCT_FIELD(cw_gpu_channel, channel, CHANNEL_ITEM),
});

constexpr auto PROFILER = std::to_array<Field>({
    FIELD(cw_gpu_profiler, tgid),
    FIELD(cw_gpu_profiler, reserved).as(FieldType::Reserved),
    STRUCT_FIELD(cw_gpu_profiler, profiler, PROFILER_ITEM),
});

} // namespace

const RecordLayout *gpu_layout_of(std::uint64_t kind) {
    switch (kind) {
    case CW_KIND_GPU_KERNEL:
        return layout<cw_gpu_kernel, KERNEL>("cw_gpu_kernel");
    case CW_KIND_GPU_NAME:
        return layout<cw_gpu_name, NAME>("cw_gpu_name");
    case CW_KIND_GPU_WINDOW:
        return layout<cw_gpu_window, WINDOW>("cw_gpu_window");
    case CW_KIND_GPU_TRACE:
        return layout<cw_gpu_trace, TRACE>("cw_gpu_trace");
    case CW_KIND_GPU_CHANNEL:
        return layout<cw_gpu_channel, CHANNEL>("cw_gpu_channel");
    case CW_KIND_GPU_PROFILER:
        return layout<cw_gpu_profiler, PROFILER>("cw_gpu_profiler");
    default:
        return nullptr;
    }
}

} // namespace collwire::capture
