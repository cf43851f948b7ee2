// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/align_sequences.h"

#include <algorithm>

namespace collwire::nccl {

namespace {

// Offsets tried on both sides of the one that times suggest, and pairs compared for each.
constexpr std::int64_t MAX_OFFSETS = 512;
constexpr std::int64_t MAX_PAIRS = 512;
// The best offset must be this much nearer in time than all others.
constexpr double CLEARLY_NEARER = 4;
constexpr double LEAST_APART_NS = 1e6;
// Calls after the end of the other rank's recording match only by chance. Clocks differ by up to
// this much.
constexpr std::uint64_t SLACK_NS = 2'000'000'000;

struct Fit {
    std::int64_t offset = 0;
    double apart_ns = 0; // mean
};

// Absent: an operation differs.
std::optional<double> apart(std::span<const SequenceItem> a, std::span<const SequenceItem> b,
                            std::int64_t offset) {
    const auto n_a = static_cast<std::int64_t>(a.size());
    const auto n_b = static_cast<std::int64_t>(b.size());
    const std::int64_t begin = std::max<std::int64_t>(0, -offset);
    const std::int64_t end = std::min(n_b, n_a - offset);
    if (begin >= end)
        return std::nullopt;
    const std::int64_t stride = std::max<std::int64_t>(1, (end - begin) / MAX_PAIRS);
    double sum_ns = 0;
    std::int64_t pairs = 0;
    for (std::int64_t i = begin; i < end; i += stride) {
        const SequenceItem &one = a[static_cast<std::size_t>(i + offset)];
        const SequenceItem &other = b[static_cast<std::size_t>(i)];
        if (one.signature != other.signature)
            return std::nullopt;
        const auto apart_ns = static_cast<std::int64_t>(one.time_ns - other.time_ns);
        sum_ns += apart_ns < 0 ? -static_cast<double>(apart_ns) : static_cast<double>(apart_ns);
        ++pairs;
    }
    return sum_ns / static_cast<double>(pairs);
}

bool has_times(std::span<const SequenceItem> items) {
    return items.front().time_ns != 0;
}

bool overlap(std::span<const SequenceItem> a, std::span<const SequenceItem> b) {
    return a.front().time_ns <= b.back().time_ns + SLACK_NS &&
           b.front().time_ns <= a.back().time_ns + SLACK_NS;
}

// The position in a at which b starts.
std::int64_t offset_by_time(std::span<const SequenceItem> a, std::span<const SequenceItem> b) {
    const auto nearest = [](std::span<const SequenceItem> items, std::uint64_t time_ns) {
        const auto found = std::lower_bound(
            items.begin(), items.end(), time_ns,
            [](const SequenceItem &item, std::uint64_t time) { return item.time_ns < time; });
        return static_cast<std::int64_t>(found - items.begin());
    };
    const std::uint64_t middle_ns = std::max(a.front().time_ns, b.front().time_ns) / 2 +
                                    std::min(a.back().time_ns, b.back().time_ns) / 2;
    return nearest(a, middle_ns) - nearest(b, middle_ns);
}

} // namespace

std::optional<Alignment> align_sequences(std::span<const SequenceItem> a,
                                         std::span<const SequenceItem> b) {
    if (a.empty() || b.empty())
        return std::nullopt;
    const bool by_time = has_times(a) && has_times(b);
    if (by_time && !overlap(a, b))
        return std::nullopt;
    const auto n_a = static_cast<std::int64_t>(a.size());
    const auto n_b = static_cast<std::int64_t>(b.size());
    std::int64_t first = 1 - n_b;
    std::int64_t last = n_a - 1;
    if (by_time) {
        const std::int64_t middle = offset_by_time(a, b);
        first = std::max(first, middle - MAX_OFFSETS);
        last = std::min(last, middle + MAX_OFFSETS);
    } else if (last - first > 2 * MAX_OFFSETS) {
        return std::nullopt;
    }
    std::optional<Fit> best;
    std::optional<Fit> second;
    for (std::int64_t offset = first; offset <= last; ++offset) {
        const auto apart_ns = apart(a, b, offset);
        if (!apart_ns)
            continue;
        const Fit fit{offset, *apart_ns};
        if (!best || fit.apart_ns < best->apart_ns) {
            second = best;
            best = fit;
        } else if (!second || fit.apart_ns < second->apart_ns) {
            second = fit;
        }
    }
    if (!best)
        return std::nullopt;
    if (!second)
        return Alignment{best->offset, 1};
    if (!by_time || second->apart_ns < CLEARLY_NEARER * best->apart_ns + LEAST_APART_NS)
        return std::nullopt;
    return Alignment{best->offset, 1 - best->apart_ns / second->apart_ns};
}

} // namespace collwire::nccl
