// SPDX-License-Identifier: Apache-2.0
// The parts of a comparison, one file each. All add to `result`, whose matches are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "correlate/against/comparison.h"

namespace collwire::against {

struct TwoRuns {
    const RunRows &a;
    const RunRows &b;
};

// Fills in groups and their numbers; times without the decision what is said of them.
void group_operations(const TwoRuns &runs, Comparison &result);

void compare_ranks(const TwoRuns &runs, Comparison &result);
void compare_settings(const TwoRuns &runs, Comparison &result);
void compare_paths(const TwoRuns &runs, Comparison &result);
void compare_devices(const TwoRuns &runs, Comparison &result);
// Needs groups.
void compare_work(const TwoRuns &runs, Comparison &result);
void compare_times(const TwoRuns &runs, Comparison &result);
void compare_recordings(const TwoRuns &runs, Comparison &result);

// Whether every rank of the communicators that are known is in a capture.
[[nodiscard]] bool has_all_ranks(const RunRows &run);
[[nodiscard]] bool has_lost_operations(const RunRows &run);

// "comm 3 dp (16 ranks)"
[[nodiscard]] std::string comm_text(const CommPair &pair);
// "comm 0, 3 and 12 more"
[[nodiscard]] std::string comms_text(const std::vector<std::uint64_t> &comms);
// "AllReduce 32.0 MiB"
[[nodiscard]] std::string group_text(const OperationGroup &group);
// "a, b and 3 more"
[[nodiscard]] std::string list_text(const std::vector<std::string> &names, std::size_t most);
[[nodiscard]] std::string ns_text(double ns);

} // namespace collwire::against
