// SPDX-License-Identifier: Apache-2.0
// --from, --to and --last against the times that captures cover.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "correlate/capture/survey.h"
#include "correlate/capture/window_filter.h"
#include "correlate/model/model.h"
#include "tools/cli/read_captures.h"

namespace collwire::cli {

struct SurveyedCapture {
    std::string path;
    capture::Survey survey;
};

struct Selected {
    capture::Window window;
    model::WindowFacts facts;
    std::vector<SurveyedCapture> surveyed;
    // Captures of which nothing is needed: each later segment has the whole state at its start.
    std::set<std::string> left_out;
};

// When a window that ends at `to_ns` may begin; 0: with the captures. CLOCK_REALTIME.
using FindStart = std::function<std::uint64_t(std::uint64_t to_ns)>;

// `files` that cannot be read are passed over. Usage: a text is no time, or the window is empty.
// BadInput: no recording is in it. With `find_start` it begins where that says, if not later.
[[nodiscard]] Result<Selected> select_window(const Selection &selection,
                                             const std::vector<std::string> &files,
                                             const FindStart &find_start = {});

// Of the same captures a part of the window.
[[nodiscard]] Selected narrowed(const Selected &selected, const capture::Window &part);

// One line with the window and the times that the captures cover.
[[nodiscard]] Error nothing_inside(const Selected &selected);

} // namespace collwire::cli
