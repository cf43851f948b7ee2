// SPDX-License-Identifier: Apache-2.0
// Reads captures interval by interval, several at once: of each a model that lives no longer.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "correlate/intervals/interval.h"
#include "correlate/intervals/sequence.h"
#include "correlate/topology/topology.h"
#include "tools/cli/read_captures.h"

namespace collwire::cli {

struct IntervalsToRead {
    ChosenCaptures chosen; // windowed
    std::vector<intervals::Bounds> bounds;
    std::string job;                              // empty: all
    const topology::Topology *topology = nullptr; // null: none
    std::size_t at_once = 1;
};

// Calls `take` in this thread, in the order of time, until it returns false. An interval in which
// nothing was recorded has hosts = 0. `complain` gets one message of each capture, from any thread.
// False: some file was refused.
[[nodiscard]] bool read_intervals(const IntervalsToRead &to_read, const Complain &complain,
                                  const std::function<bool(intervals::Interval &)> &take);

} // namespace collwire::cli
