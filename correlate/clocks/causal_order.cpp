// SPDX-License-Identifier: Apache-2.0
#include "correlate/clocks/causal_order.h"

#include <algorithm>

#include "correlate/clocks/rate.h"

namespace collwire::clocks {

namespace {

// Sums of such times and of drifts cannot overflow.
constexpr std::uint64_t LATEST_NS = std::uint64_t{1} << 61U;
// Of an ordered pair. Thinning out costs tightness between two marks, never correctness.
constexpr std::size_t MOST_MARKS = 512;

} // namespace

void Marks::add(const Mark &mark) {
    marks_.push_back(mark);
    if (marks_.size() >= 2 * MOST_MARKS)
        finish();
}

void Marks::finish() {
    drop_implied();
    if (marks_.size() > MOST_MARKS)
        thin_out();
    while (marks_.size() > MOST_MARKS) {
        bucket_ns_ *= 2;
        thin_out();
    }
}

// A mark says nothing more if an earlier or a later one and the most drift in between say as much.
void Marks::drop_implied() {
    std::sort(marks_.begin(), marks_.end(), [](const Mark &a, const Mark &b) {
        return std::pair(a.cause_ns, a.effect_ns) < std::pair(b.cause_ns, b.effect_ns);
    });
    const auto sweep = [](auto begin, auto end) {
        auto kept = begin;
        for (auto at = begin; at != end; ++at) {
            if (kept != begin) {
                const Mark &last = *std::prev(kept);
                if (at->apart_ns() >= last.apart_ns() + most_drift_ns(at->cause_ns - last.cause_ns))
                    continue;
            }
            *kept++ = *at;
        }
        return kept;
    };
    marks_.erase(sweep(marks_.begin(), marks_.end()), marks_.end());
    marks_.erase(marks_.begin(), sweep(marks_.rbegin(), marks_.rend()).base());
}

void Marks::thin_out() {
    std::size_t kept = 0;
    for (const Mark &mark : marks_) {
        if (kept != 0 && marks_[kept - 1].cause_ns / bucket_ns_ == mark.cause_ns / bucket_ns_) {
            if (mark.apart_ns() < marks_[kept - 1].apart_ns())
                marks_[kept - 1] = mark;
        } else {
            marks_[kept++] = mark;
        }
    }
    marks_.resize(kept);
}

// Only the marks next to a moment can be the tightest there: no mark is implied by another one.
std::int64_t Marks::most_of_effect_ns(std::int64_t cause_ns) const {
    const auto after = std::upper_bound(
        marks_.begin(), marks_.end(), cause_ns,
        [](std::int64_t time_ns, const Mark &mark) { return time_ns < mark.cause_ns; });
    const auto from = [&](const Mark &mark) {
        const std::int64_t elapsed_ns = cause_ns - mark.cause_ns;
        return mark.effect_ns + elapsed_ns + most_drift_ns(elapsed_ns);
    };
    if (after == marks_.begin())
        return from(*after);
    if (after == marks_.end())
        return from(*std::prev(after));
    return std::min(from(*after), from(*std::prev(after)));
}

std::int64_t Marks::least_of_cause_ns(std::int64_t effect_ns) const {
    const auto after = std::upper_bound(
        marks_.begin(), marks_.end(), effect_ns,
        [](std::int64_t time_ns, const Mark &mark) { return time_ns < mark.effect_ns; });
    const auto from = [&](const Mark &mark) {
        const std::int64_t elapsed_ns = effect_ns - mark.effect_ns;
        return mark.cause_ns + elapsed_ns - most_drift_ns(elapsed_ns);
    };
    if (after == marks_.begin())
        return from(*after);
    if (after == marks_.end())
        return from(*std::prev(after));
    return std::max(from(*after), from(*std::prev(after)));
}

void CausalOrder::add(const Before &before) {
    const auto is_usable = [](std::uint64_t time_ns) {
        return time_ns != 0 && time_ns < LATEST_NS;
    };
    if (before.cause == before.effect || !is_usable(before.cause_ns) ||
        !is_usable(before.effect_ns))
        return;
    pairs_[{before.cause, before.effect}].add(
        {static_cast<std::int64_t>(before.cause_ns), static_cast<std::int64_t>(before.effect_ns)});
    ++added_;
    ++added_of_[before.cause];
    ++added_of_[before.effect];
}

// Each with the lowest node alone: all pairs would be quadratic, and say little more.
void CausalOrder::add(const std::vector<Stay> &stays) {
    if (stays.empty())
        return;
    const Stay &hub = *std::min_element(
        stays.begin(), stays.end(), [](const Stay &a, const Stay &b) { return a.node < b.node; });
    for (const Stay &stay : stays) {
        add({hub.node, hub.entered_ns, stay.node, stay.left_ns});
        add({stay.node, stay.entered_ns, hub.node, hub.left_ns});
    }
}

void CausalOrder::finish() {
    for (auto &[nodes, marks] : pairs_)
        marks.finish();
}

std::uint64_t CausalOrder::added_of(Node node) const {
    const auto found = added_of_.find(node);
    return found == added_of_.end() ? 0 : found->second;
}

} // namespace collwire::clocks
