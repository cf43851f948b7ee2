// SPDX-License-Identifier: Apache-2.0
// The clock of each node against that of a reference node, as bounds over time. Between and beyond
// the knots the bounds widen by the most that clocks drift (rate.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "correlate/clocks/causal_order.h"

namespace collwire::clocks {

inline constexpr std::uint32_t NO_GROUP = UINT32_MAX;

enum class Calibration : std::uint8_t {
    None,      // no constraints in both directions tie it to another node
    Reference, // the others of its group are held against it
    Bounded,
    Contradiction, // its constraints, or those of its neighbours, cannot all be true
};

struct Interval {
    std::int64_t least_ns = 0;
    std::int64_t most_ns = 0;

    [[nodiscard]] std::int64_t width_ns() const { return most_ns - least_ns; }
    [[nodiscard]] std::int64_t middle_ns() const { return least_ns + width_ns() / 2; }
};

// When the clock of the reference shows `reference_ns`, that of the node is in `shown`.
struct Knot {
    std::int64_t reference_ns = 0;
    Interval shown;
};

// Two constraints, or chains of them, between two nodes that cannot both be true.
struct ClockContradiction {
    Node a = 0;
    Node b = 0;
    std::int64_t reference_ns = 0;
    std::int64_t by_ns = 0; // how far the bounds miss each other
};

enum class Order : std::uint8_t {
    Earlier,
    Later,
    Unknown, // inside the error, or on clocks that nothing ties together
};

class NodeClock {
public:
    Calibration calibration = Calibration::None;
    std::uint32_t group = NO_GROUP; // nodes with one reference
    Node reference = 0;
    std::uint64_t constraints = 0; // that it has a part in
    std::vector<Knot> knots;       // by time; empty for None and Contradiction

    // What the node's clock can show when the reference's shows this.
    [[nodiscard]] Interval shown_at(std::int64_t reference_ns) const;
    // What the reference's clock can show when the node's shows this.
    [[nodiscard]] Interval on_reference(std::int64_t shown_ns) const;
};

struct NodeClocks {
    std::vector<NodeClock> nodes;
    std::vector<ClockContradiction> contradictions;

    // On the reference of the node's group. Absent: the node is not calibrated.
    [[nodiscard]] std::optional<Interval> on_reference(Node node, std::uint64_t time_ns) const;
    // Readings of one clock are compared as they are.
    [[nodiscard]] Order order(Node a, std::uint64_t a_ns, Node b, std::uint64_t b_ns) const;
};

// `spacing_ns` between knots: 0 lets it follow from the length of time and the number of pairs.
[[nodiscard]] NodeClocks solve_clocks(const CausalOrder &causal, std::size_t n_nodes,
                                      std::int64_t spacing_ns = 0);

} // namespace collwire::clocks
