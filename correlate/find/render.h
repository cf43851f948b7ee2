// SPDX-License-Identifier: Apache-2.0
// What was found for a line of PyTorch's watchdog, as text and as JSON.
#pragma once

#include <string>
#include <string_view>

#include "correlate/find/find_operations.h"
#include "correlate/find/watchdog_line.h"
#include "correlate/model/model.h"

namespace collwire::find {

[[nodiscard]] std::string render_text(const model::Model &model, const WatchdogLine &line,
                                      const FindResult &result);
[[nodiscard]] std::string render_json(const model::Model &model, const WatchdogLine &line,
                                      const FindResult &result, std::string_view tool_version);

} // namespace collwire::find
