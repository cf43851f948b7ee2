// SPDX-License-Identifier: Apache-2.0
// Whether a reader that keeps everything of captures fits into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "correlate/capture/window_filter.h"
#include "tools/cli/read_captures.h"

namespace collwire::cli {

// The records that a reader of `window` needs (null: of everything), from the headers of blocks;
// those of blocks that are needed in part count whole. Captures that cannot be read have none.
[[nodiscard]] std::uint64_t count_records(const ChosenCaptures &chosen,
                                          const capture::Window *window);

// What this process may take: the least of the available memory (/proc/meminfo), the limits of its
// control groups, and RLIMIT_AS. 0: not known.
[[nodiscard]] std::uint64_t free_memory_bytes();

// One line if so many records may not fit into `free_bytes` (0: not known).
[[nodiscard]] std::optional<std::string> memory_warning(std::uint64_t records,
                                                        std::uint64_t free_bytes);

// Likewise, for a reader of one of so many intervals of them.
[[nodiscard]] std::optional<std::string> memory_warning_of_interval(std::uint64_t records,
                                                                    std::size_t n_intervals,
                                                                    std::uint64_t free_bytes);

// How many intervals to read at once: one for each CPU, eight at most, as far as memory is free.
[[nodiscard]] std::size_t intervals_at_once(std::uint64_t records, std::size_t n_intervals,
                                            std::uint64_t free_bytes, std::size_t cpus);

} // namespace collwire::cli
