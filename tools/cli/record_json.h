// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "collwire/record.h"

namespace collwire::cli {

// Every field of a record by its name in collwire/records.h. A named number gets a second member
// FIELD_name, flags get a list FIELD_names. A field beyond the end of a short record is omitted.
// `cpu` is null for records made by the recorder.
[[nodiscard]] nlohmann::ordered_json record_json(const cw_header &header,
                                                 std::span<const std::byte> record);

} // namespace collwire::cli
