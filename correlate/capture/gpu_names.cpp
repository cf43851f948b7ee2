// SPDX-License-Identifier: Apache-2.0
#include "correlate/capture/gpu_names.h"

#include <array>

#include "collwire/gpu_records.h"

namespace collwire::capture {
namespace {

constexpr auto STATES = std::to_array<NamedNumber>({
    {CW_GPU_OFF, "off"},
    {CW_GPU_ARMED, "armed"},
    {CW_GPU_DISARMED, "disarmed"},
    {CW_GPU_YIELDED, "yielded"},
    {CW_GPU_REFUSED, "refused"},
    {CW_GPU_FAILED, "failed"},
    {CW_GPU_EXITING, "exiting"},
    {CW_GPU_NO_CUDA, "no_cuda"},
    {CW_GPU_RUNNING, "running"},
});

constexpr auto REASONS = std::to_array<NamedNumber>({
    {CW_GPU_REASON_NONE, "none"},
    {CW_GPU_REASON_NO_CUPTI, "no_cupti"},
    {CW_GPU_REASON_OLD_CUPTI, "old_cupti"},
    {CW_GPU_REASON_SUBSCRIBED, "subscribed"},
    {CW_GPU_REASON_OTHER_ACTIVITY, "other_activity"},
    {CW_GPU_REASON_UNSEEN_CALLER, "unseen_caller"},
    {CW_GPU_REASON_NO_MEMORY, "no_memory"},
    {CW_GPU_REASON_CUPTI, "cupti"},
    {CW_GPU_REASON_THREADS, "threads"},
    {CW_GPU_REASON_LATE, "late"},
});

constexpr auto KERNEL_FLAGS = std::to_array<NamedNumber>({
    {CW_GPU_KERNEL_RUNNING, "running"},
    {CW_GPU_KERNEL_ODD_TIME, "odd_time"},
    {CW_GPU_KERNEL_QUEUED, "queued"},
});

constexpr auto CHANNEL_FLAGS = std::to_array<NamedNumber>({
    {CW_GPU_CHANNEL_RUNNING, "running"},
    {CW_GPU_CHANNEL_ODD_TIME, "odd_time"},
    {CW_GPU_CHANNEL_SEEN, "seen"},
    {CW_GPU_CHANNEL_NO_TASK, "no_task"},
    {CW_GPU_CHANNEL_OUT_OF_STEP, "out_of_step"},
});

constexpr auto SOURCES = std::to_array<NamedNumber>({
    {CW_GPU_SOURCE_CUPTI, "cupti"},
    {CW_GPU_SOURCE_PROFILER, "nccl_profiler"},
});

} // namespace

std::string_view gpu_state_name(std::uint64_t value) {
    return name_in(STATES, value);
}
std::string_view gpu_reason_name(std::uint64_t value) {
    return name_in(REASONS, value);
}
std::string_view gpu_source_name(std::uint64_t value) {
    return name_in(SOURCES, value);
}
std::span<const NamedNumber> gpu_kernel_flag_names() {
    return KERNEL_FLAGS;
}
std::span<const NamedNumber> gpu_channel_flag_names() {
    return CHANNEL_FLAGS;
}

} // namespace collwire::capture
