// SPDX-License-Identifier: Apache-2.0
// An inspection for people.
#pragma once

#include <cstddef>
#include <string>

#include "correlate/inspect/inspection.h"

namespace collwire::inspect {

struct TextOptions {
    std::size_t width = 120;
    std::size_t rows = 16; // of each table; 0: all
};
[[nodiscard]] std::string render_text(const Inspection &inspection, const TextOptions &options);

} // namespace collwire::inspect
