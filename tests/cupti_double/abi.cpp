// SPDX-License-Identifier: Apache-2.0
#include "tests/cupti_double/abi.h"

#include <array>

namespace collwire::cupti_double {
namespace {

// By code; 13.0 has the last, 12.x the same up to there.
constexpr std::array NAMES = {"CUPTI_SUCCESS",
                              "CUPTI_ERROR_INVALID_PARAMETER",
                              "CUPTI_ERROR_INVALID_DEVICE",
                              "CUPTI_ERROR_INVALID_CONTEXT",
                              "CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID",
                              "CUPTI_ERROR_INVALID_EVENT_ID",
                              "CUPTI_ERROR_INVALID_EVENT_NAME",
                              "CUPTI_ERROR_INVALID_OPERATION",
                              "CUPTI_ERROR_OUT_OF_MEMORY",
                              "CUPTI_ERROR_HARDWARE",
                              "CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT",
                              "CUPTI_ERROR_API_NOT_IMPLEMENTED",
                              "CUPTI_ERROR_MAX_LIMIT_REACHED",
                              "CUPTI_ERROR_NOT_READY",
                              "CUPTI_ERROR_NOT_COMPATIBLE",
                              "CUPTI_ERROR_NOT_INITIALIZED",
                              "CUPTI_ERROR_INVALID_METRIC_ID",
                              "CUPTI_ERROR_INVALID_METRIC_NAME",
                              "CUPTI_ERROR_QUEUE_EMPTY",
                              "CUPTI_ERROR_INVALID_HANDLE",
                              "CUPTI_ERROR_INVALID_STREAM",
                              "CUPTI_ERROR_INVALID_KIND",
                              "CUPTI_ERROR_INVALID_EVENT_VALUE",
                              "CUPTI_ERROR_DISABLED",
                              "CUPTI_ERROR_INVALID_MODULE",
                              "CUPTI_ERROR_INVALID_METRIC_VALUE",
                              "CUPTI_ERROR_HARDWARE_BUSY",
                              "CUPTI_ERROR_NOT_SUPPORTED",
                              "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED",
                              "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE",
                              "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES",
                              "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS",
                              "CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED",
                              "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED",
                              "CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE",
                              "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
                              "CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED",
                              "CUPTI_ERROR_OPENACC_UNDEFINED_ROUTINE",
                              "CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED",
                              "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
                              "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES",
                              "CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED",
                              "CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED",
                              "CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED",
                              "CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED",
                              "CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED",
                              "CUPTI_ERROR_INVALID_CHIP_NAME"};

} // namespace

const char *name_of(Result result) {
    if (result == Result::Unknown)
        return "CUPTI_ERROR_UNKNOWN";
    const auto code = static_cast<int>(result);
    return code >= 0 && code < static_cast<int>(NAMES.size()) ? NAMES[static_cast<unsigned>(code)]
                                                              : nullptr;
}

std::size_t kernel_record_bytes(std::uint32_t api_version) {
    return api_version >= FIRST_VERSION_OF_13 ? KERNEL10_BYTES : KERNEL9_BYTES;
}

} // namespace collwire::cupti_double
