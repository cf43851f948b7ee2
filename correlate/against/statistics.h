// SPDX-License-Identifier: Apache-2.0
// Whether a time of one run is larger than that of another, by blocks of each run's values. The
// rule is in docs/against.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace collwire::against {

inline constexpr std::size_t MOST_BLOCKS = 16;
inline constexpr std::size_t MOST_TRIMMED = 2;
inline constexpr double FALSE_CLAIMS = 0.01; // of a whole comparison
inline constexpr double LEAST_CHANGE = 0.05;

// A time in ns with its bounds, at a moment of its run.
struct BoundedTime {
    double least = 0;
    double most = 0;
    std::uint64_t at_ns = 0;
};

struct Block {
    double least = 0;        // mean of lower bounds
    double most = 0;         // of upper bounds
    std::uint64_t at_ns = 0; // of its first value
};

// `times` in the order of time. Blocks of equal count, MOST_BLOCKS or, of fewer, one for each.
[[nodiscard]] std::vector<Block> blocks_of(const std::vector<BoundedTime> &times);

// Of two equal runs of `n_a` and `n_b` independent blocks: that A's lowest one after `trimmed`
// others is above B's highest one before `trimmed` others. 1: there are too few.
[[nodiscard]] double chance_above(std::size_t n_a, std::size_t n_b, std::size_t trimmed);

enum class CompareState : std::uint8_t { Unknown, TooFew, Alike, Smaller, Larger };
[[nodiscard]] std::string_view state_name(CompareState state);

struct ClaimRule {
    std::size_t comparisons = 1; // in the whole
    double least_difference = 0; // ns, in addition to LEAST_CHANGE
};

// Of A by B.
struct TimeComparison {
    CompareState state = CompareState::Unknown;
    std::size_t n_a = 0, n_b = 0; // values
    // Of upper bounds. Usual: the median of the blocks' means.
    double usual_a = 0, usual_b = 0;
    double median_a = 0, median_b = 0, p95_a = 0, p95_b = 0;
    bool is_bound = false; // a lower bound is below its upper bound
    // What the blocks allow; absent: one divides by 0, or there are too few.
    std::optional<double> ratio, ratio_least, ratio_most;
    std::optional<std::uint64_t> since_ns; // A changed then; absent: it was so from its start
};

// Both in the order of time.
[[nodiscard]] TimeComparison compare_times(const std::vector<BoundedTime> &a,
                                           const std::vector<BoundedTime> &b,
                                           const ClaimRule &rule);

} // namespace collwire::against
