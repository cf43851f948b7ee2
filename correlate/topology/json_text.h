// SPDX-License-Identifier: Apache-2.0
// Parses JSON text without exceptions; errors name the place.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "correlate/topology/problems.h"

namespace collwire::topology {

// Accepts a leading byte-order mark. The error names line, column and byte offset. A key that
// occurs twice in one object is an error in `problems` if that is given (the last one counts
// otherwise).
Result<nlohmann::json> parse_json_text(std::string_view text, Problems *repeated_keys);

// Line, column and byte offset of `key` in the outermost object of `text`, which is valid JSON;
// empty if it is absent or written with escapes.
std::string place_of_key(std::string_view text, std::string_view key);

} // namespace collwire::topology
