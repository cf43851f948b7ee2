// SPDX-License-Identifier: Apache-2.0
// Verdicts for people, and as JSON (docs/diagnose.md).
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "correlate/verdict/verdict.h"

namespace collwire::verdict {

[[nodiscard]] std::string render_text(const std::vector<Verdict> &verdicts);
[[nodiscard]] nlohmann::ordered_json to_json(const std::vector<Verdict> &verdicts);

} // namespace collwire::verdict
