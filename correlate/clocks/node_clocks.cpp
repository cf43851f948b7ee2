// SPDX-License-Identifier: Apache-2.0
#include "correlate/clocks/node_clocks.h"

#include <algorithm>
#include <limits>

#include "correlate/clocks/rate.h"

namespace collwire::clocks {

namespace {

template <typename Visit>
void with_neighbours(const std::vector<Knot> &knots, auto at, Visit visit) {
    if (at != knots.end())
        visit(*at);
    if (at != knots.begin())
        visit(*std::prev(at));
}

// Bounds that miss each other between two knots, where nothing was solved: both are kept.
Interval in_order(const Interval &interval) {
    return {std::min(interval.least_ns, interval.most_ns),
            std::max(interval.least_ns, interval.most_ns)};
}

} // namespace

Interval NodeClock::shown_at(std::int64_t reference_ns) const {
    if (calibration == Calibration::Reference)
        return {reference_ns, reference_ns};
    Interval shown{std::numeric_limits<std::int64_t>::min(),
                   std::numeric_limits<std::int64_t>::max()};
    const auto at = std::lower_bound(
        knots.begin(), knots.end(), reference_ns,
        [](const Knot &knot, std::int64_t time_ns) { return knot.reference_ns < time_ns; });
    with_neighbours(knots, at, [&](const Knot &knot) {
        const std::int64_t elapsed_ns = reference_ns - knot.reference_ns;
        const std::int64_t drift_ns = most_drift_ns(elapsed_ns);
        shown.least_ns = std::max(shown.least_ns, knot.shown.least_ns + elapsed_ns - drift_ns);
        shown.most_ns = std::min(shown.most_ns, knot.shown.most_ns + elapsed_ns + drift_ns);
    });
    return in_order(shown);
}

// The node's clock has not passed `most_ns` at a knot, so it is later where that is exceeded; and
// the other way round. Either bound of all knots grows with time.
Interval NodeClock::on_reference(std::int64_t shown_ns) const {
    if (calibration == Calibration::Reference)
        return {shown_ns, shown_ns};
    Interval when{std::numeric_limits<std::int64_t>::min(),
                  std::numeric_limits<std::int64_t>::max()};
    const auto by_most = std::lower_bound(
        knots.begin(), knots.end(), shown_ns,
        [](const Knot &knot, std::int64_t time_ns) { return knot.shown.most_ns < time_ns; });
    with_neighbours(knots, by_most, [&](const Knot &knot) {
        const std::int64_t elapsed_ns = shown_ns - knot.shown.most_ns;
        when.least_ns =
            std::max(when.least_ns, knot.reference_ns + elapsed_ns - most_drift_ns(elapsed_ns));
    });
    const auto by_least = std::lower_bound(
        knots.begin(), knots.end(), shown_ns,
        [](const Knot &knot, std::int64_t time_ns) { return knot.shown.least_ns < time_ns; });
    with_neighbours(knots, by_least, [&](const Knot &knot) {
        const std::int64_t elapsed_ns = shown_ns - knot.shown.least_ns;
        when.most_ns =
            std::min(when.most_ns, knot.reference_ns + elapsed_ns + most_drift_ns(elapsed_ns));
    });
    return in_order(when);
}

std::optional<Interval> NodeClocks::on_reference(Node node, std::uint64_t time_ns) const {
    if (node >= nodes.size() || nodes[node].knots.empty())
        return std::nullopt;
    return nodes[node].on_reference(static_cast<std::int64_t>(time_ns));
}

Order NodeClocks::order(Node a, std::uint64_t a_ns, Node b, std::uint64_t b_ns) const {
    if (a == b)
        return a_ns < b_ns ? Order::Earlier : a_ns > b_ns ? Order::Later : Order::Unknown;
    const auto a_at = on_reference(a, a_ns);
    const auto b_at = on_reference(b, b_ns);
    if (!a_at || !b_at || nodes[a].group != nodes[b].group)
        return Order::Unknown;
    if (a_at->most_ns < b_at->least_ns)
        return Order::Earlier;
    return b_at->most_ns < a_at->least_ns ? Order::Later : Order::Unknown;
}

} // namespace collwire::clocks
