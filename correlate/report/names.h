// SPDX-License-Identifier: Apache-2.0
// The words of the outputs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "correlate/model/model.h"

namespace collwire::report {

[[nodiscard]] std::string_view rung_name(model::BytesRung rung); // "none", "posted", "wire"
[[nodiscard]] std::string_view pairing_name(model::Pairing pairing);
[[nodiscard]] std::string_view capture_end_name(model::CaptureEnd end);
[[nodiscard]] std::string qp_type_text(std::uint8_t type); // "RC", "UD", ...; "unknown"
// "python3 train.py": what a person calls the process.
[[nodiscard]] std::string process_title(const model::Process &process);

// By name; ports by host, device and number.
[[nodiscard]] std::vector<model::Index> hosts_in_order(const model::Model &model);
[[nodiscard]] std::vector<model::Index> ports_in_order(const model::Model &model);

} // namespace collwire::report
