// SPDX-License-Identifier: Apache-2.0
// Writes captures of a made-up cluster: RC queue pairs between nodes, whose counters agree with
// each other, with the port counters and with the NCCL collectives, if any. For scale tests and as
// fuzzing seeds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace collwire::trace_gen {

struct SyntheticOptions {
    std::uint32_t nodes = 2;
    std::uint32_t qps = 16;        // per node; nodes x qps is rounded up to even
    std::uint32_t duration_s = 10; // one sample of every counter per second
    // In one communicator with a rank per node and a ring in each of qps / 2 channels. In fours.
    std::uint32_t collectives_a_second = 0;
    std::uint64_t seed = 1;
    std::string directory = ".";
};

// node.tool_version of these captures.
inline constexpr const char *TOOL_VERSION = "SYNTHETIC collwire-trace-gen";

// Writes one capture per node and returns their paths.
[[nodiscard]] Result<std::vector<std::string>> write_synthetic(const SyntheticOptions &options);

} // namespace collwire::trace_gen
