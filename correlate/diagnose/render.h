// SPDX-License-Identifier: Apache-2.0
// A diagnosis for people, and as JSON (docs/diagnose.md).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "correlate/diagnose/diagnosis.h"

namespace collwire::diagnose {

inline constexpr int diagnose_schema_version = 1;

[[nodiscard]] std::string render_text(const Diagnosis &diagnosis);
[[nodiscard]] std::string render_json(const Diagnosis &diagnosis, std::string_view tool_version);

} // namespace collwire::diagnose
