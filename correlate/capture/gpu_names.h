// SPDX-License-Identifier: Apache-2.0
// Names of the numbers in records of GPU kernels, under the rules of kinds.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "correlate/capture/kinds.h"

namespace collwire::capture {

[[nodiscard]] std::string_view gpu_state_name(std::uint64_t value);  // enum cw_gpu_state
[[nodiscard]] std::string_view gpu_reason_name(std::uint64_t value); // enum cw_gpu_reason
[[nodiscard]] std::string_view gpu_source_name(std::uint64_t value); // enum cw_gpu_source
[[nodiscard]] std::span<const NamedNumber> gpu_kernel_flag_names();  // enum cw_gpu_kernel_flags
[[nodiscard]] std::span<const NamedNumber> gpu_channel_flag_names(); // enum cw_gpu_channel_flags

} // namespace collwire::capture
