// SPDX-License-Identifier: Apache-2.0
// Circles of ranks that wait for each other, each in another communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "correlate/diagnose/diagnosis.h"

namespace collwire::diagnose {

// A rank of a process: its GPU tells the ranks of one process apart.
using Place = std::tuple<std::string, std::uint32_t, std::int32_t>; // host, pid, device
[[nodiscard]] Place place_of(const Rank &rank);

// It has an operation in flight, and waits for others.
[[nodiscard]] bool waits_in_operation(const Rank &rank);

// `from` waits in `comm` for `to`. Nodes are ranks of a process, numbered by the caller.
struct WaitEdge {
    std::size_t from = 0, to = 0;
    std::size_t comm = 0;
    friend auto operator<=>(const WaitEdge &, const WaitEdge &) = default;
};

// A shortest circle through each group of nodes that wait for each other, the first edge from its
// lowest node. Circles within one communicator are left out: one wait there explains the other.
[[nodiscard]] std::vector<std::vector<WaitEdge>> find_circles(std::vector<WaitEdge> edges);

// Joins the causes of communicators whose ranks wait for each other in a circle into one.
void join_circles(Diagnosis &diagnosis);

} // namespace collwire::diagnose
