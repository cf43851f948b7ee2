// SPDX-License-Identifier: Apache-2.0
// The stretch of time that a report or a diagnosis is about.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "correlate/model/model.h"

namespace collwire::report {

// The first line is the window; the others say what is not known in it.
[[nodiscard]] std::vector<std::string> window_lines(const model::WindowFacts &window);
[[nodiscard]] nlohmann::ordered_json window_facts_json(const model::WindowFacts &window);

} // namespace collwire::report
