// SPDX-License-Identifier: Apache-2.0
#include "correlate/stream/clock_graph.h"

#include <deque>

namespace collwire::stream {
namespace {

// A capture may claim any time.
std::int64_t sum(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

} // namespace

void ClockGraph::add(std::size_t from, std::size_t to, std::int64_t ahead_ns, bool is_weak) {
    std::vector<std::vector<Edge>> &edges = is_weak ? far_ : near_;
    edges[from].push_back({to, ahead_ns});
    edges[to].push_back(
        {from, static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(ahead_ns))});
}

std::vector<std::int64_t> ClockGraph::solve() const {
    std::vector<std::int64_t> all(near_.size());
    std::vector<bool> is_known(near_.size());
    for (std::size_t start = 0; start < all.size(); ++start) {
        std::deque<Edge> near{{start, 0}}, far;
        if (is_known[start])
            continue;
        while (!near.empty() || !far.empty()) {
            std::deque<Edge> &from = near.empty() ? far : near;
            const Edge next = from.front();
            from.pop_front();
            if (is_known[next.to])
                continue;
            is_known[next.to] = true;
            all[next.to] = next.ahead_ns;
            for (const Edge &edge : near_[next.to])
                near.push_back({edge.to, sum(next.ahead_ns, edge.ahead_ns)});
            for (const Edge &edge : far_[next.to])
                far.push_back({edge.to, sum(next.ahead_ns, edge.ahead_ns)});
        }
    }
    return all;
}

} // namespace collwire::stream
