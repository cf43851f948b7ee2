// SPDX-License-Identifier: Apache-2.0
// Where the part of captures begins that shows where each rank stood.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace collwire::cli {

// CLOCK_REALTIME of the nodes; 0: with the captures. `files`: segments in order; records from
// `to_ns` on do not count. Files that cannot be read are passed over.
// `margin_ns`: as TailFinder::from_ns has it.
[[nodiscard]] std::uint64_t find_tail(const std::vector<std::string> &files, std::uint64_t to_ns,
                                      std::uint64_t margin_ns);

} // namespace collwire::cli
