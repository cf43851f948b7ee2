// SPDX-License-Identifier: Apache-2.0
// What causality says of the clocks of nodes: each constraint is "when the clock of node A showed
// this, the clock of node B had not passed that". Kept by ordered pair of nodes, and only as many
// as make a difference. Bounds the memory, whatever the number of constraints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace collwire::clocks {

using Node = std::uint32_t;

// A cause on one node and its effect on another one. `cause_ns` is a reading of the cause's clock
// that is not later than the cause, `effect_ns` one of the effect's clock that is not earlier.
struct Before {
    Node cause = 0;
    std::uint64_t cause_ns = 0;
    Node effect = 0;
    std::uint64_t effect_ns = 0;
};

// The clock of the cause showed `cause_ns` not after that of the effect showed `effect_ns`.
struct Mark {
    std::int64_t cause_ns = 0;
    std::int64_t effect_ns = 0;

    [[nodiscard]] std::int64_t apart_ns() const { return effect_ns - cause_ns; }
};

// The marks of one ordered pair, by time. None follows from another one and the rate of clocks.
class Marks {
public:
    void add(const Mark &mark);
    // Call once, after the last add.
    void finish();

    [[nodiscard]] const std::vector<Mark> &all() const { return marks_; }
    // The latest that the effect's clock can show when that of the cause shows this.
    [[nodiscard]] std::int64_t most_of_effect_ns(std::int64_t cause_ns) const;
    // The earliest that the cause's clock can show when that of the effect shows this.
    [[nodiscard]] std::int64_t least_of_cause_ns(std::int64_t effect_ns) const;

private:
    void drop_implied();
    void thin_out();

    std::vector<Mark> marks_;
    std::int64_t bucket_ns_ = 1'000'000; // keeps one mark of each, where there are too many
};

class CausalOrder {
public:
    // Ignores constraints of a node with itself, and times of 0 or beyond 70 years.
    void add(const Before &before);
    // A moment that lies in an interval of each node's clock: every node was in something that none
    // could leave before all had entered it.
    struct Stay {
        Node node = 0;
        std::uint64_t entered_ns = 0; // not later than it was; 0: not known
        std::uint64_t left_ns = 0;    // not earlier than it was; 0: not known
    };
    void add(const std::vector<Stay> &stays);
    void finish();

    [[nodiscard]] const std::map<std::pair<Node, Node>, Marks> &pairs() const { return pairs_; }
    [[nodiscard]] std::uint64_t added() const { return added_; }
    // By node: constraints that it has a part in.
    [[nodiscard]] std::uint64_t added_of(Node node) const;

private:
    std::map<std::pair<Node, Node>, Marks> pairs_; // cause, effect
    std::map<Node, std::uint64_t> added_of_;
    std::uint64_t added_ = 0;
};

} // namespace collwire::clocks
