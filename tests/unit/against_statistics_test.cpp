// SPDX-License-Identifier: Apache-2.0
// When a time of one run is said to be larger than that of another.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "correlate/against/statistics.h"

namespace collwire::against {
namespace {

std::vector<BoundedTime> measured(const std::vector<double> &values) {
    std::vector<BoundedTime> times;
    for (const double value : values)
        times.push_back({.least = value, .most = value, .at_ns = 1000 * (times.size() + 1)});
    return times;
}

// Of a distribution with a long tail, as times of operations have.
std::vector<double> drawn(std::mt19937_64 &random, std::size_t n, double scale) {
    std::lognormal_distribution<double> distribution(0, 0.3);
    std::vector<double> values;
    for (std::size_t i = 0; i < n; ++i)
        values.push_back(scale * distribution(random));
    return values;
}

TEST(AgainstStatistics, ChanceIsThatOfAllArrangements) {
    EXPECT_DOUBLE_EQ(chance_above(2, 2, 0), 1.0 / 6);
    EXPECT_DOUBLE_EQ(chance_above(8, 8, 0), 1.0 / 12870);
    EXPECT_EQ(chance_above(2, 8, 2), 1);
    // Counted: arrangements of four and four in which A's second is above B's third.
    std::vector<int> order{0, 0, 0, 0, 1, 1, 1, 1};
    int favourable = 0, all = 0;
    do {
        int n_a = 0, n_b = 0;
        int second_a = 0, third_b = 0;
        for (int i = 0; i < 8; ++i) {
            if (order[static_cast<std::size_t>(i)] == 1 && ++n_a == 2)
                second_a = i;
            if (order[static_cast<std::size_t>(i)] == 0 && ++n_b == 3)
                third_b = i;
        }
        ++all;
        favourable += second_a > third_b ? 1 : 0;
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_DOUBLE_EQ(chance_above(4, 4, 1), static_cast<double>(favourable) / all);
}

TEST(AgainstStatistics, EqualRunsAreSeldomSaidToDiffer) {
    std::mt19937_64 random(1);
    int claims = 0;
    constexpr int RUNS = 20'000;
    for (int i = 0; i < RUNS; ++i) {
        const std::size_t n_a = 4 + random() % 60, n_b = 4 + random() % 60;
        const auto result = compare_times(measured(drawn(random, n_a, 1000)),
                                          measured(drawn(random, n_b, 1000)), {});
        claims += result.state == CompareState::Larger || result.state == CompareState::Smaller;
    }
    EXPECT_LE(claims, RUNS * FALSE_CLAIMS);
    RecordProperty("claims", claims);
}

TEST(AgainstStatistics, ALargerTimeIsFoundWithItsRatio) {
    std::mt19937_64 random(2);
    int found = 0, inside = 0;
    for (int i = 0; i < 200; ++i) {
        const auto result = compare_times(measured(drawn(random, 100, 1800)),
                                          measured(drawn(random, 100, 1000)), {});
        found += result.state == CompareState::Larger ? 1 : 0;
        ASSERT_TRUE(result.ratio && result.ratio_least && result.ratio_most);
        inside += *result.ratio_least <= 1.8 && 1.8 <= *result.ratio_most ? 1 : 0;
        EXPECT_FALSE(result.since_ns);
    }
    EXPECT_GE(found, 195);
    EXPECT_GE(inside, 198);
}

TEST(AgainstStatistics, FewOperationsAreTooFew) {
    EXPECT_EQ(compare_times(measured({9, 9, 9}), measured({1, 1, 1}), {}).state,
              CompareState::TooFew);
    EXPECT_EQ(compare_times({}, measured({1, 1, 1}), {}).state, CompareState::Unknown);
    const std::vector<double> eight(8, 9), before(8, 1);
    EXPECT_EQ(compare_times(measured(eight), measured(before), {}).state, CompareState::Larger);
    EXPECT_EQ(compare_times(measured(eight), measured(before), {.comparisons = 1000}).state,
              CompareState::TooFew);
}

TEST(AgainstStatistics, ASmallChangeIsNone) {
    const std::vector<double> a(40, 1040), b(40, 1000);
    EXPECT_EQ(compare_times(measured(a), measured(b), {}).state, CompareState::Alike);
    const std::vector<double> more(40, 1060);
    EXPECT_EQ(compare_times(measured(more), measured(b), {}).state, CompareState::Larger);
    EXPECT_EQ(compare_times(measured(more), measured(b), {.least_difference = 100}).state,
              CompareState::Alike);
}

TEST(AgainstStatistics, BoundsThatOverlapAreNoDifference) {
    std::vector<BoundedTime> a, b;
    for (std::uint64_t i = 0; i < 40; ++i) {
        a.push_back({.least = 1000, .most = 3000, .at_ns = i});
        b.push_back({.least = 100, .most = 2000, .at_ns = i});
    }
    const auto result = compare_times(a, b, {});
    EXPECT_EQ(result.state, CompareState::Alike);
    EXPECT_TRUE(result.is_bound);
    EXPECT_FALSE(result.ratio);
    for (BoundedTime &time : a)
        time.least = 2500;
    const auto apart = compare_times(a, b, {});
    EXPECT_EQ(apart.state, CompareState::Larger);
    EXPECT_DOUBLE_EQ(*apart.ratio_least, 1.25);
}

TEST(AgainstStatistics, TheMomentOfAChangeIsGiven) {
    std::mt19937_64 random(3);
    for (const std::size_t change : {std::size_t{40}, std::size_t{80}, std::size_t{104}}) {
        SCOPED_TRACE(change);
        std::vector<double> values = drawn(random, 160, 1000);
        for (std::size_t i = change; i < values.size(); ++i)
            values[i] *= 4;
        const auto result = compare_times(measured(values), measured(drawn(random, 160, 1000)), {});
        ASSERT_EQ(result.state, CompareState::Larger);
        ASSERT_TRUE(result.since_ns);
        // Blocks have ten operations.
        EXPECT_NEAR(static_cast<double>(*result.since_ns), 1000.0 * static_cast<double>(change + 1),
                    10'000);
    }
}

TEST(AgainstStatistics, AHiccupIsNoChange) {
    std::mt19937_64 random(4);
    std::vector<double> values = drawn(random, 160, 1000);
    for (std::size_t i = 50; i < 65; ++i)
        values[i] *= 50;
    EXPECT_EQ(compare_times(measured(values), measured(drawn(random, 160, 1000)), {}).state,
              CompareState::Alike);
}

} // namespace
} // namespace collwire::against
