// SPDX-License-Identifier: Apache-2.0
#include "correlate/capture/record_class.h"

#include "collwire/record_kinds.h"

namespace collwire::capture {

RecordClass record_class(std::uint32_t kind) {
    switch (kind) {
    case CW_KIND_QP_WIRE:
    case CW_KIND_UD_PEER:
    case CW_KIND_QP_POST:
    case CW_KIND_COUNTER_SAMPLES:
    case CW_KIND_NCCL_STEPS:
    case CW_KIND_TCP_SOCKET:
    case CW_KIND_NVLINK_SAMPLE:
        return RecordClass::Counter;
    case CW_KIND_QP_ERROR:
    case CW_KIND_ASYNC_EVENT:
    case CW_KIND_CARRIER:
    case CW_KIND_MODULE_EVENT:
    case CW_KIND_POST_OPERATIONS:
    case CW_KIND_SAMPLE_GAP:
    case CW_KIND_NCCL_CALL:
    case CW_KIND_NCCL_LAUNCH:
    case CW_KIND_NCCL_LAUNCH_TASKS:
    case CW_KIND_NCCL_RETURN:
    case CW_KIND_NCCL_PROGRESS:
    case CW_KIND_NCCL_SOCKET:
    case CW_KIND_NCCL_WARNING:
    case CW_KIND_GPU_KERNEL:
    case CW_KIND_GPU_WINDOW:
    case CW_KIND_GPU_CHANNEL:
    case CW_KIND_NVLINK_GAP:
    case CW_KIND_XID:
        return RecordClass::Event;
    default:
        return RecordClass::State;
    }
}

bool describes_earlier(std::uint32_t kind) {
    switch (kind) {
    case CW_KIND_PORT:
    case CW_KIND_DEVICE_GONE:
    case CW_KIND_QP_CREATE:
    case CW_KIND_QP_STATE:
    case CW_KIND_QP_DESTROY:
    case CW_KIND_NCCL_PROCESS:
    case CW_KIND_NCCL_COMM:
    case CW_KIND_NCCL_COMM_END:
    case CW_KIND_NCCL_RESULT:
    case CW_KIND_NCCL_LAST_ERROR:
        return false;
    default:
        return record_class(kind) == RecordClass::State;
    }
}

} // namespace collwire::capture
