// SPDX-License-Identifier: Apache-2.0
#include "correlate/against/statistics.h"

#include <algorithm>
#include <numeric>

namespace collwire::against {
namespace {

// The value with `share` of the others below it. `values` is not empty.
double quantile(std::vector<double> values, double share) {
    const auto place = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
    const auto nth = values.begin() + static_cast<std::ptrdiff_t>(place);
    std::nth_element(values.begin(), nth, values.end());
    return *nth;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double mean(const std::vector<double> &values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

template <typename Value, typename Member>
std::vector<double> column(const std::vector<Value> &values, Member member) {
    std::vector<double> of;
    of.reserve(values.size());
    for (const Value &value : values)
        of.push_back(value.*member);
    return of;
}

std::vector<double> sorted(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values;
}

double choose(std::size_t n, std::size_t k) {
    double value = 1;
    for (std::size_t i = 1; i <= k; ++i)
        value *= static_cast<double>(n - k + i) / static_cast<double>(i);
    return value;
}

struct Sides {
    std::vector<double> least, most; // of blocks, sorted
};

Sides sides_of(const std::vector<Block> &blocks) {
    return {.least = sorted(column(blocks, &Block::least)),
            .most = sorted(column(blocks, &Block::most))};
}

bool is_above(double high, double low, const ClaimRule &rule) {
    return high > low * (1 + LEAST_CHANGE) && high - low > rule.least_difference;
}

// Blocks may be left out at both ends; absent: even with none left out a claim would be too bold.
std::optional<std::size_t> trimmed_of(std::size_t n_a, std::size_t n_b, double allowed) {
    for (std::size_t trimmed = MOST_TRIMMED + 1; trimmed-- > 0;)
        if (chance_above(n_a, n_b, trimmed) <= allowed)
            return trimmed;
    return std::nullopt;
}

// The number of A's last blocks that are all on the one side of B's; 0: they are too few for a
// claim. `is_above_b`: above them.
std::size_t last_blocks_beyond(const std::vector<Block> &a, const Sides &b, bool is_above_b,
                               double allowed, const ClaimRule &rule) {
    std::size_t n = 0;
    while (n < a.size() && (is_above_b ? is_above(a[a.size() - 1 - n].least, b.most.back(), rule)
                                       : is_above(b.least.front(), a[a.size() - 1 - n].most, rule)))
        ++n;
    // Each number of last blocks is one more comparison.
    const double chance = static_cast<double>(a.size()) * chance_above(n, b.most.size(), 0);
    return n != 0 && chance <= allowed ? n : 0;
}

std::optional<double> ratio(double above, double below) {
    return below > 0 ? std::optional(above / below) : std::nullopt;
}

void set_ratios(TimeComparison &result, const std::vector<Block> &a, const Sides &b,
                std::size_t trimmed) {
    const Sides of_a = sides_of(a);
    const std::size_t left_a = std::min(trimmed, (a.size() - 1) / 2);
    const std::size_t left_b = std::min(trimmed, (b.least.size() - 1) / 2);
    const auto at = [](const std::vector<double> &values, std::size_t from_end) {
        return values[values.size() - 1 - from_end];
    };
    result.ratio_least = ratio(of_a.least[left_a], at(b.most, left_b));
    result.ratio_most = ratio(at(of_a.most, left_a), b.least[left_b]);
    if (!result.is_bound)
        result.ratio = ratio(median(of_a.most), median(b.most));
}

// Where A's blocks leave those of B for good; absent: they were never among them.
std::optional<std::uint64_t> since_of(const std::vector<Block> &a, const Sides &b, bool is_above_b,
                                      std::size_t trimmed, const ClaimRule &rule) {
    const double edge = is_above_b ? b.most[b.most.size() - 1 - trimmed] : b.least[trimmed];
    std::size_t inside = 0;
    std::size_t first = a.size();
    while (first > 0) {
        const Block &block = a[first - 1];
        const bool is_beyond =
            is_above_b ? is_above(block.least, edge, rule) : is_above(edge, block.most, rule);
        inside += is_beyond ? 0 : 1;
        if (inside > trimmed)
            break;
        --first;
    }
    while (first < a.size() && !(is_above_b ? is_above(a[first].least, edge, rule)
                                            : is_above(edge, a[first].most, rule)))
        ++first; // the blocks that were let pass are not its beginning
    // As many blocks inside as may be let pass are no change.
    return first <= trimmed || first == a.size() ? std::nullopt : std::optional(a[first].at_ns);
}

} // namespace

std::vector<Block> blocks_of(const std::vector<BoundedTime> &times) {
    const std::size_t n = std::min(times.size(), MOST_BLOCKS);
    std::vector<Block> blocks;
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t begin = times.size() * i / n;
        const std::size_t end = times.size() * (i + 1) / n;
        const std::vector<BoundedTime> of(times.begin() + static_cast<std::ptrdiff_t>(begin),
                                          times.begin() + static_cast<std::ptrdiff_t>(end));
        blocks.push_back({.least = mean(column(of, &BoundedTime::least)),
                          .most = mean(column(of, &BoundedTime::most)),
                          .at_ns = of.front().at_ns});
    }
    return blocks;
}

double chance_above(std::size_t n_a, std::size_t n_b, std::size_t trimmed) {
    if (n_a <= trimmed || n_b <= trimmed)
        return 1;
    // Arrangements of A and B with j of A's below B's highest one that counts.
    double favourable = 0;
    for (std::size_t j = 0; j <= trimmed; ++j)
        favourable += choose(n_b - trimmed - 1 + j, j) * choose(n_a - j + trimmed, trimmed);
    return favourable / choose(n_a + n_b, n_b);
}

std::string_view state_name(CompareState state) {
    switch (state) {
    case CompareState::TooFew:
        return "too_few";
    case CompareState::Alike:
        return "alike";
    case CompareState::Smaller:
        return "smaller";
    case CompareState::Larger:
        return "larger";
    case CompareState::Unknown:
        break;
    }
    return "unknown";
}

TimeComparison compare_times(const std::vector<BoundedTime> &a, const std::vector<BoundedTime> &b,
                             const ClaimRule &rule) {
    TimeComparison result;
    result.n_a = a.size();
    result.n_b = b.size();
    for (const auto *times : {&a, &b})
        for (const BoundedTime &time : *times)
            result.is_bound = result.is_bound || time.least < time.most;
    if (!a.empty()) {
        result.median_a = median(column(a, &BoundedTime::most));
        result.p95_a = quantile(column(a, &BoundedTime::most), 0.95);
    }
    if (!b.empty()) {
        result.median_b = median(column(b, &BoundedTime::most));
        result.p95_b = quantile(column(b, &BoundedTime::most), 0.95);
    }
    const std::vector<Block> blocks_a = blocks_of(a);
    const Sides of_a = sides_of(blocks_a);
    const Sides of_b = sides_of(blocks_of(b));
    if (!a.empty())
        result.usual_a = median(of_a.most);
    if (!b.empty())
        result.usual_b = median(of_b.most);
    if (a.empty() || b.empty())
        return result;
    // Above and below, the whole and the last blocks.
    const double allowed =
        FALSE_CLAIMS / 4 / static_cast<double>(std::max<std::size_t>(1, rule.comparisons));
    const std::size_t n_b = of_b.least.size();
    const auto trimmed = trimmed_of(blocks_a.size(), n_b, allowed);
    if (!trimmed) {
        result.state = CompareState::TooFew;
        return result;
    }
    result.state = CompareState::Alike;
    set_ratios(result, blocks_a, of_b, *trimmed);
    const std::size_t high_a = blocks_a.size() - 1 - *trimmed;
    const std::size_t high_b = n_b - 1 - *trimmed;
    if (is_above(of_a.least[*trimmed], of_b.most[high_b], rule)) {
        result.state = CompareState::Larger;
        result.since_ns = since_of(blocks_a, of_b, true, *trimmed, rule);
        return result;
    }
    if (is_above(of_b.least[*trimmed], of_a.most[high_a], rule)) {
        result.state = CompareState::Smaller;
        result.since_ns = since_of(blocks_a, of_b, false, *trimmed, rule);
        return result;
    }
    for (const bool is_above_b : {true, false})
        if (const std::size_t n = last_blocks_beyond(blocks_a, of_b, is_above_b, allowed, rule);
            n != 0) {
            result.state = is_above_b ? CompareState::Larger : CompareState::Smaller;
            const std::vector<Block> last(blocks_a.end() - static_cast<std::ptrdiff_t>(n),
                                          blocks_a.end());
            set_ratios(result, last, of_b, *trimmed);
            result.since_ns = last.front().at_ns;
            return result;
        }
    return result;
}

} // namespace collwire::against
