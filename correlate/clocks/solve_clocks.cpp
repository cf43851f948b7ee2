// SPDX-License-Identifier: Apache-2.0
// Bounds along the shortest paths from a reference. At each knot of its clock, the latest reading
// of every other clock follows marks from cause to effect, the earliest one from effect to cause.
// Every step is a bound by itself, so stopping early costs tightness alone. Where the earliest
// reading of a node passes the latest one, some mark on the two paths is wrong: their nodes are set
// apart, and the others are solved without them.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "correlate/clocks/node_clocks.h"
#include "correlate/clocks/rate.h"

namespace collwire::clocks {

namespace {

constexpr std::int64_t NEVER = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t ALWAYS = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t LEAST_SPACING_NS = 20'000'000;
constexpr std::size_t LEAST_KNOTS = 64, MOST_KNOTS = 2048;
constexpr std::size_t MOST_STEPS = 4'000'000; // knots times pairs, about
constexpr std::size_t MOST_ROUNDS = 24;       // more only until every member has bounds
// More contradictions than that in one group: nothing in it is to be trusted.
constexpr std::size_t MOST_RESTARTS = 64;
constexpr std::size_t MOST_REFERENCES = 3; // tried for one group

struct Edge {
    Node from = 0;
    const Marks *marks = nullptr;
};

struct Group {
    Node reference = 0;
    std::vector<Node> members; // by distance from the reference, which is the first
    std::vector<std::vector<Knot>> knots;
    std::vector<ClockContradiction> contradictions;
    std::vector<Node> apart;
};

class ClockSolver {
public:
    ClockSolver(const CausalOrder &causal, std::size_t n_nodes, std::int64_t spacing_ns)
        : causal_(causal), spacing_ns_(spacing_ns), causes_(n_nodes), effects_(n_nodes),
          is_open_(n_nodes, true), most_(n_nodes), least_(n_nodes), most_from_(n_nodes),
          least_from_(n_nodes) {
        for (const auto &[nodes, marks] : causal.pairs()) {
            const auto &[cause, effect] = nodes;
            if (cause >= n_nodes || effect >= n_nodes || marks.all().empty())
                continue;
            causes_[effect].push_back({cause, &marks});
            effects_[cause].push_back({effect, &marks});
        }
    }

    NodeClocks run() {
        NodeClocks result;
        result.nodes.resize(causes_.size());
        for (Node node = 0; node < result.nodes.size(); ++node)
            result.nodes[node].constraints = causal_.added_of(node);
        std::uint32_t groups = 0;
        for (;;) {
            const std::vector<Node> candidates = next_candidates();
            if (candidates.empty())
                break;
            Group best = solve_group(candidates.front());
            for (std::size_t i = 1; i < candidates.size() && !best.apart.empty(); ++i) {
                Group other = solve_group(candidates[i]);
                if (other.members.size() > best.members.size())
                    best = std::move(other);
            }
            take(result, best, groups);
        }
        return result;
    }

private:
    // The best reference among the nodes without a group, and others near it to try instead.
    std::vector<Node> next_candidates() {
        Node first = 0;
        std::size_t most = 0;
        for (Node node = 0; node < causes_.size(); ++node)
            if (is_open_[node]) {
                if (const std::size_t ties = ties_of(node); ties > most) {
                    most = ties;
                    first = node;
                }
            }
        if (most == 0)
            return {};
        const std::vector<Node> reached = reachable(first, is_open_);
        std::vector<Node> candidates = reached;
        std::stable_sort(candidates.begin(), candidates.end(),
                         [&](Node a, Node b) { return ties_of(a) > ties_of(b); });
        if (candidates.size() > MOST_REFERENCES)
            candidates.resize(MOST_REFERENCES);
        return candidates;
    }

    // Neighbours with marks in both directions.
    [[nodiscard]] std::size_t ties_of(Node node) const {
        std::size_t ties = 0;
        for (const Edge &edge : causes_[node])
            ties += is_open_[edge.from] ? 1 : 0;
        std::size_t back = 0;
        for (const Edge &edge : effects_[node])
            back += is_open_[edge.from] ? 1 : 0;
        return std::min(ties, back);
    }

    // Along causes as well as effects: only those have bounds on both sides.
    [[nodiscard]] std::vector<Node> reachable(Node reference, const std::vector<bool> &open) const {
        std::vector<std::uint8_t> seen(causes_.size());
        const auto walk = [&](const auto &edges, std::uint8_t bit) {
            std::vector<Node> order{reference};
            seen[reference] |= bit;
            for (std::size_t i = 0; i < order.size(); ++i)
                for (const Edge &edge : edges[order[i]])
                    if (open[edge.from] && (seen[edge.from] & bit) == 0) {
                        seen[edge.from] |= bit;
                        order.push_back(edge.from);
                    }
            return order;
        };
        std::vector<Node> order = walk(effects_, 1);
        walk(causes_, 2);
        std::erase_if(order, [&](Node node) { return seen[node] != 3; });
        return order;
    }

    Group solve_group(Node reference) {
        Group group;
        group.reference = reference;
        std::vector<bool> open = is_open_;
        for (;;) {
            group.members = reachable(reference, open);
            place_knots(group);
            const std::optional<ClockContradiction> found = solve(group);
            if (!found)
                return group;
            group.contradictions.push_back(*found);
            const bool gives_up = group.contradictions.size() > MOST_RESTARTS;
            for (const Node node : gives_up ? group.members : on_paths_of(found->b, reference))
                if (node != reference && open[node]) {
                    open[node] = false;
                    group.apart.push_back(node);
                }
        }
    }

    // From the first to the last mark of any member with another one, by the reference's clock as
    // far as its own marks go: beyond them bounds hold, and widen.
    void place_knots(Group &group) {
        std::int64_t from_ns = NEVER, to_ns = ALWAYS;
        const auto stretch = [&](std::int64_t time_ns) {
            from_ns = std::min(from_ns, time_ns);
            to_ns = std::max(to_ns, time_ns);
        };
        for (const Edge &edge : causes_[group.reference])
            for (const Mark &mark : edge.marks->all())
                stretch(mark.effect_ns);
        for (const Edge &edge : effects_[group.reference])
            for (const Mark &mark : edge.marks->all())
                stretch(mark.cause_ns);
        group.knots.assign(group.members.size(), {});
        if (group.members.size() < 2)
            return;
        std::size_t edges = 0;
        std::int64_t longest_ns = to_ns - from_ns;
        for (const Node node : group.members) {
            edges += causes_[node].size() + effects_[node].size();
            for (const Edge &edge : causes_[node])
                longest_ns = std::max(longest_ns, edge.marks->all().back().effect_ns -
                                                      edge.marks->all().front().effect_ns);
        }
        // Others may have been recorded before and after the reference.
        const std::int64_t around_ns = longest_ns - (to_ns - from_ns);
        from_ns -= around_ns;
        to_ns += around_ns;
        const std::size_t most =
            std::clamp(MOST_STEPS / std::max<std::size_t>(edges, 1), LEAST_KNOTS, MOST_KNOTS);
        const std::int64_t spacing_ns =
            spacing_ns_ != 0 ? spacing_ns_
                             : std::max(LEAST_SPACING_NS,
                                        (to_ns - from_ns) / static_cast<std::int64_t>(most) + 1);
        for (auto &knots : group.knots)
            for (std::int64_t at_ns = from_ns;; at_ns += spacing_ns) {
                knots.push_back({std::min(at_ns, to_ns), {}});
                if (at_ns >= to_ns)
                    break;
            }
    }

    std::optional<ClockContradiction> solve(Group &group) {
        for (std::size_t at = 0; at < group.knots.front().size(); ++at) {
            const std::int64_t reference_ns = group.knots.front()[at].reference_ns;
            if (const auto found = solve_at(group, reference_ns))
                return found;
            for (std::size_t i = 0; i < group.members.size(); ++i) {
                const Node node = group.members[i];
                group.knots[i][at].shown = {least_[node], most_[node]};
            }
        }
        return std::nullopt;
    }

    // Rounds in the order of distance, there and back, as long as something gets tighter.
    std::optional<ClockContradiction> solve_at(const Group &group, std::int64_t reference_ns) {
        std::fill(most_.begin(), most_.end(), NEVER);
        std::fill(least_.begin(), least_.end(), ALWAYS);
        most_[group.reference] = least_[group.reference] = reference_ns;
        std::optional<ClockContradiction> found;
        for (std::size_t round = 0;; ++round) {
            if (round >= MOST_ROUNDS && (round > group.members.size() || all_are_bounded(group)))
                return std::nullopt;
            bool is_tighter = false;
            const auto visit = [&](Node node) {
                if (found || node == group.reference)
                    return;
                is_tighter = relax(node) || is_tighter;
                if (most_[node] != NEVER && least_[node] != ALWAYS && most_[node] < least_[node])
                    found = {most_from_[node], node, reference_ns, least_[node] - most_[node]};
            };
            if (round % 2 == 0)
                std::for_each(group.members.begin(), group.members.end(), visit);
            else
                std::for_each(group.members.rbegin(), group.members.rend(), visit);
            if (found || !is_tighter)
                return found;
        }
    }

    [[nodiscard]] bool all_are_bounded(const Group &group) const {
        return std::all_of(group.members.begin(), group.members.end(), [&](Node node) {
            return most_[node] != NEVER && least_[node] != ALWAYS;
        });
    }

    bool relax(Node node) {
        bool is_tighter = false;
        for (const Edge &edge : causes_[node])
            if (most_[edge.from] != NEVER) {
                const std::int64_t most_ns = edge.marks->most_of_effect_ns(most_[edge.from]);
                if (most_ns < most_[node]) {
                    most_[node] = most_ns;
                    most_from_[node] = edge.from;
                    is_tighter = true;
                }
            }
        for (const Edge &edge : effects_[node])
            if (least_[edge.from] != ALWAYS) {
                const std::int64_t least_ns = edge.marks->least_of_cause_ns(least_[edge.from]);
                if (least_ns > least_[node]) {
                    least_[node] = least_ns;
                    least_from_[node] = edge.from;
                    is_tighter = true;
                }
            }
        return is_tighter;
    }

    [[nodiscard]] std::vector<Node> on_paths_of(Node node, Node reference) const {
        std::vector<Node> nodes{node};
        for (const std::vector<Node> *from : {&most_from_, &least_from_}) {
            Node at = node;
            for (std::size_t steps = 0; at != reference && steps < causes_.size(); ++steps) {
                at = (*from)[at];
                nodes.push_back(at);
            }
        }
        return nodes;
    }

    void take(NodeClocks &result, Group &group, std::uint32_t &groups) {
        const bool has_others = group.members.size() > 1;
        for (std::size_t i = 0; i < group.members.size(); ++i) {
            NodeClock &clock = result.nodes[group.members[i]];
            is_open_[group.members[i]] = false;
            if (!has_others)
                continue;
            clock.calibration = i == 0 ? Calibration::Reference : Calibration::Bounded;
            clock.group = groups;
            clock.reference = group.reference;
            clock.knots = std::move(group.knots[i]);
        }
        for (const Node node : group.apart) {
            result.nodes[node].calibration = Calibration::Contradiction;
            is_open_[node] = false;
        }
        groups += has_others ? 1 : 0;
        result.contradictions.insert(result.contradictions.end(), group.contradictions.begin(),
                                     group.contradictions.end());
    }

    const CausalOrder &causal_;
    std::int64_t spacing_ns_;
    std::vector<std::vector<Edge>> causes_, effects_; // by node
    std::vector<bool> is_open_;                       // not in a group yet
    std::vector<std::int64_t> most_, least_;          // what each clock shows at this knot
    std::vector<Node> most_from_, least_from_;
};

} // namespace

NodeClocks solve_clocks(const CausalOrder &causal, std::size_t n_nodes, std::int64_t spacing_ns) {
    return ClockSolver(causal, n_nodes, spacing_ns).run();
}

} // namespace collwire::clocks
