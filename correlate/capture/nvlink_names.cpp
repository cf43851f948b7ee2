// SPDX-License-Identifier: Apache-2.0
#include "correlate/capture/nvlink_names.h"

#include <array>

#include "collwire/nvlink_records.h"

namespace collwire::capture {
namespace {

constexpr auto GAP_REASONS = std::to_array<NamedNumber>({
    {CW_NVLINK_NO_ANSWER, "no_answer"},
    {CW_NVLINK_FAILED, "failed"},
    {CW_NVLINK_EXITED, "exited"},
    {CW_NVLINK_LOG_OVERRUN, "log_overrun"},
});

constexpr auto XID_FLAGS = std::to_array<NamedNumber>({
    {CW_XID_BEFORE, "before"},
    {CW_XID_FATAL, "fatal"},
    {CW_XID_NONFATAL, "nonfatal"},
    {CW_XID_CUT, "cut"},
});

// Numbers of nvml.h, which are fixed for ever: driver and library may differ in age.
constexpr auto NVML_FIELDS = std::to_array<NamedNumber>({
    {91, "link_count"},
    {138, "throughput_data_tx"},
    {139, "throughput_data_rx"},
    {140, "throughput_raw_tx"},
    {141, "throughput_raw_rx"},
    {161, "error_dl_replay"},
    {162, "error_dl_recovery"},
    {163, "error_dl_crc"},
    {164, "get_speed"},
    {165, "get_state"},
    {166, "get_version"},
    {202, "count_xmit_bytes"},
    {204, "count_rcv_bytes"},
    {206, "count_malformed_packet_errors"},
    {207, "count_buffer_overrun_errors"},
    {208, "count_rcv_errors"},
    {209, "count_rcv_remote_errors"},
    {210, "count_rcv_general_errors"},
    {211, "count_local_link_integrity_errors"},
    {212, "count_xmit_discards"},
    {213, "count_link_recovery_successful_events"},
    {214, "count_link_recovery_failed_events"},
    {215, "count_link_recovery_events"},
    {219, "count_effective_errors"},
    {221, "count_symbol_errors"},
});

constexpr auto NVML_RESULTS = std::to_array<NamedNumber>({
    {0, "success"},
    {1, "uninitialized"},
    {2, "invalid_argument"},
    {3, "not_supported"},
    {4, "no_permission"},
    {5, "already_initialized"},
    {6, "not_found"},
    {7, "insufficient_size"},
    {8, "insufficient_power"},
    {9, "driver_not_loaded"},
    {10, "timeout"},
    {11, "irq_issue"},
    {12, "library_not_found"},
    {13, "function_not_found"},
    {14, "corrupted_inforom"},
    {15, "gpu_is_lost"},
    {16, "reset_required"},
    {17, "operating_system"},
    {18, "lib_rm_version_mismatch"},
    {19, "in_use"},
    {20, "memory"},
    {21, "no_data"},
    {22, "vgpu_ecc_not_supported"},
    {23, "insufficient_resources"},
    {24, "freq_not_supported"},
    {25, "argument_version_mismatch"},
    {26, "deprecated"},
    {27, "not_ready"},
    {28, "gpu_not_found"},
    {29, "invalid_state"},
    {30, "reset_type_not_supported"},
    {999, "unknown"},
});

} // namespace

std::string_view nvlink_gap_name(std::uint64_t value) {
    return name_in(GAP_REASONS, value);
}
std::span<const NamedNumber> xid_flag_names() {
    return XID_FLAGS;
}
std::string_view nvml_field_name(std::uint64_t value) {
    return name_in(NVML_FIELDS, value);
}
std::string_view nvml_result_name(std::uint64_t value) {
    return name_in(NVML_RESULTS, value);
}

} // namespace collwire::capture
