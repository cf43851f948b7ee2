// SPDX-License-Identifier: Apache-2.0
// Inspections as JSON: docs/inspect.md.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "correlate/inspect/inspection.h"

namespace collwire::inspect {

inline constexpr int inspect_schema_version = 1;
// Grows with each field that was added; readers of the same version ignore what they do not know.
inline constexpr int inspect_schema_minor = 2;

// One document.
[[nodiscard]] std::string render_json(const Inspection &inspection);
// Parses the output of render_json of this schema version. BadInput with what is wrong; the caller
// adds the file's name.
Result<Inspection> parse_inspection(std::string_view json);

} // namespace collwire::inspect
