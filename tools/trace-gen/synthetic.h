// SPDX-License-Identifier: Apache-2.0
// Captures of a cluster that does not exist: RC queue pairs in pairs between nodes, whose counters
// agree with each other, with the ports and with NCCL's collectives, where there are any. For tests
// of scale and as seeds of fuzzing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace collwire::trace_gen {

struct SyntheticOptions {
    std::uint32_t nodes = 2;
    std::uint32_t qps = 16;        // of each node (nodes x qps is rounded up to even)
    std::uint32_t duration_s = 10; // one sample of every counter a second
    // Of one communicator with a rank on each node, a ring in each of qps / 2 channels; in fours.
    std::uint32_t collectives_a_second = 0;
    std::uint64_t seed = 1;
    std::string directory = ".";
};

// node.tool_version of every capture made here.
inline constexpr const char *TOOL_VERSION = "SYNTHETIC collwire-trace-gen";

// Writes one capture for each node and returns their paths.
[[nodiscard]] Result<std::vector<std::string>> write_synthetic(const SyntheticOptions &options);

} // namespace collwire::trace_gen
