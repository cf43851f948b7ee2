// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/window_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "correlate/report/units.h"

namespace collwire::report {

std::vector<std::string> window_lines(const model::WindowFacts &window) {
    std::vector<std::string> lines = {
        fmt::format("{} to {} ({})", utc(window.from_ns), utc(window.to_ns), window.local),
        fmt::format("recorded: {} to {}; {} of {} blocks and {} capture(s) were left out unread",
                    utc(window.recorded_from_ns), utc(window.recorded_to_ns),
                    grouped(window.blocks_left_out), grouped(window.blocks),
                    grouped(window.segments_left_out))};
    if (window.from_ns > window.recorded_from_ns)
        lines.emplace_back("bytes of queue pairs, sockets and ports count from their last sample "
                           "before the window");
    if (window.to_ns < window.recorded_to_ns)
        lines.emplace_back("they count up to the first sample after it; operations that had not "
                           "ended by then are partial");
    if (window.counters_without_start != 0)
        lines.push_back(fmt::format("{} counter(s) have no sample shortly before the window: what "
                                    "they counted up to their first sample in it is in no sum",
                                    grouped(window.counters_without_start)));
    return lines;
}

nlohmann::ordered_json window_facts_json(const model::WindowFacts &window) {
    return {{"from_realtime_ns", window.from_ns},
            {"to_realtime_ns", window.to_ns},
            {"recorded_from_realtime_ns", window.recorded_from_ns},
            {"recorded_to_realtime_ns", window.recorded_to_ns},
            {"blocks", window.blocks},
            {"blocks_left_out", window.blocks_left_out},
            {"captures_left_out", window.segments_left_out},
            {"counters_without_start", window.counters_without_start}};
}

} // namespace collwire::report
