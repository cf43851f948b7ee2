// SPDX-License-Identifier: Apache-2.0
// From differences between clocks of two nodes each to one offset for each node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace collwire::stream {

class ClockGraph {
public:
    explicit ClockGraph(std::size_t nodes) : near_(nodes), far_(nodes) {}

    // The clock of `to` is ahead of that of `from`. Weak differences count only where no other
    // leads to a node.
    void add(std::size_t from, std::size_t to, std::int64_t ahead_ns, bool is_weak = false);
    // By how much each is ahead of the first one that differences connect it with.
    [[nodiscard]] std::vector<std::int64_t> solve() const;

private:
    struct Edge {
        std::size_t to = 0;
        std::int64_t ahead_ns = 0;
    };
    std::vector<std::vector<Edge>> near_, far_; // by node
};

} // namespace collwire::stream
