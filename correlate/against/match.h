// SPDX-License-Identifier: Apache-2.0
// Which communicator of one run is which of the other: hashes and host names differ between runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "correlate/against/run_rows.h"

namespace collwire::against {

enum class MatchedBy : std::uint8_t { Layout, Shape, Name, Gpus };
[[nodiscard]] std::string_view matched_by_name(MatchedBy by);
[[nodiscard]] inline bool is_guess(MatchedBy by) {
    return by == MatchedBy::Shape || by == MatchedBy::Gpus;
}

struct CommPair {
    std::uint64_t a = 0, b = 0; // communicators.comm of each run
    MatchedBy by = MatchedBy::Layout;
    std::int64_t n_ranks_a = 0, n_ranks_b = 0;
    std::string name; // empty: none
    // Of those without a name (docs/roles.md); empty: none.
    std::string guessed_role_a, guessed_role_b;
};

// A rank's place in its job: of its node, and of its GPU in the node.
struct RankPlace {
    std::size_t node = 0;
    std::size_t gpu = 0;
    auto operator<=>(const RankPlace &) const = default;
};

// By communicator and rank.
using RankPlaces = std::map<std::pair<std::uint64_t, std::int64_t>, RankPlace>;

struct Matches {
    std::vector<CommPair> pairs; // by A's communicator
    std::vector<std::uint64_t> only_a, only_b;
    RankPlaces places_a, places_b;
};

// "data0", "tp?"; empty: neither, or the two runs have different ones.
[[nodiscard]] std::string label_of(const CommPair &pair);

[[nodiscard]] Matches match_communicators(const RunRows &a, const RunRows &b);

} // namespace collwire::against
