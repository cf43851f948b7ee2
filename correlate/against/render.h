// SPDX-License-Identifier: Apache-2.0
// A comparison of two runs as text and as JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "correlate/against/comparison.h"

namespace collwire::against {

struct RenderOptions {
    std::size_t rows = 20; // of the table of operations
    std::size_t width = 120;
};

[[nodiscard]] std::string render_text(const Comparison &comparison, const RenderOptions &options);
[[nodiscard]] std::string render_json(const Comparison &comparison, std::string_view tool_version);

} // namespace collwire::against
