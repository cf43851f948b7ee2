// SPDX-License-Identifier: Apache-2.0
// One cause of a wait, with its sentence and evidence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "correlate/diagnose/diagnosis.h"

namespace collwire::diagnose {

// With more, a node was not inspected, rather than that processes exited.
constexpr std::size_t MOST_MISSING_NAMED = 4;

// "ranks 1, 2 and 7 more"
[[nodiscard]] std::string numbers_text(const std::vector<std::int32_t> &ranks);

// Operations that the rank lags by; 0: none, or not known.
[[nodiscard]] std::uint64_t behind_by(const Communicator &comm, std::int32_t rank);

// For a rank that others wait for and that waits for no other rank.
[[nodiscard]] Cause cause_of(const Communicator &comm, const Rank &rank,
                             const std::set<std::int32_t> &waiting);

[[nodiscard]] Cause cause_of_missing(const Communicator &comm, std::int32_t rank,
                                     const std::set<std::int32_t> &waiting);

// The proxy thread keeps its error; NCCL passes it on only to callers that ask.
[[nodiscard]] bool has_failed(const Rank &rank);
[[nodiscard]] Cause cause_of_error(const Communicator &comm, const Rank &rank);

} // namespace collwire::diagnose
