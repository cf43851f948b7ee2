// SPDX-License-Identifier: Apache-2.0
// Names of the numbers in records of NVLink, under the rules of kinds.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "correlate/capture/kinds.h"

namespace collwire::capture {

[[nodiscard]] std::string_view nvlink_gap_name(std::uint64_t value); // enum cw_nvlink_gap_reason
[[nodiscard]] std::span<const NamedNumber> xid_flag_names();         // enum cw_xid_flags
// NVML_FI_DEV_NVLINK_*, without the prefix and in lower case; only those that are recorded.
[[nodiscard]] std::string_view nvml_field_name(std::uint64_t value);
[[nodiscard]] std::string_view nvml_result_name(std::uint64_t value); // nvmlReturn_t

} // namespace collwire::capture
