// SPDX-License-Identifier: Apache-2.0
// Bounds of the clocks of nodes against clocks whose truth is known: constraints come from made-up
// events that are causally consistent, read with clocks that are apart and drift.
#include "correlate/clocks/node_clocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace collwire::clocks {
namespace {

constexpr double SECOND = 1e9;
constexpr double LENGTH = 120 * SECOND;

// A clock of straight pieces.
struct TrueClock {
    double start_ns = 0;              // what it shows at true time 0
    std::vector<double> rates_ppm{0}; // one after the other, each of PIECE
    static constexpr double PIECE = 10 * SECOND;

    [[nodiscard]] double shown(double true_ns) const {
        double shown_ns = start_ns;
        double from_ns = 0;
        for (std::size_t i = 0;; ++i) {
            const double rate = 1 + rates_ppm[std::min(i, rates_ppm.size() - 1)] * 1e-6;
            const bool is_last = i + 1 >= rates_ppm.size() || true_ns < from_ns + PIECE;
            shown_ns += rate * ((is_last ? true_ns : from_ns + PIECE) - from_ns);
            if (is_last)
                return shown_ns;
            from_ns += PIECE;
        }
    }
    [[nodiscard]] std::uint64_t reads(double true_ns) const {
        return static_cast<std::uint64_t>(std::llround(shown(true_ns)));
    }
};

struct World {
    std::vector<TrueClock> clocks;
    CausalOrder causal;
    std::mt19937_64 random;
    double latency_ns = 20'000;
    double slop_ns = 100'000; // how early causes and how late effects are read, at most

    explicit World(std::uint64_t seed) : random(seed) {}

    double between(double from, double to) {
        return std::uniform_real_distribution<double>(from, to)(random);
    }
    void message(Node from, Node to, double true_ns) {
        const double arrives_ns = true_ns + latency_ns * between(1, 2);
        causal.add({from, clocks[from].reads(true_ns - between(0, slop_ns)), to,
                    clocks[to].reads(arrives_ns + between(0, slop_ns))});
    }
    void messages(Node a, Node b, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
            message(a, b, between(0, LENGTH));
            message(b, a, between(0, LENGTH));
        }
    }
};

struct Judged {
    std::size_t windows = 0, outside = 0;
    double widest_ns = 0;
};

// The truth inside the bounds, at moments of every node that is calibrated.
Judged judge(const World &world, const NodeClocks &solved) {
    Judged judged;
    for (Node node = 0; node < world.clocks.size(); ++node) {
        const NodeClock &clock = solved.nodes[node];
        if (clock.knots.empty())
            continue;
        for (double true_ns = 0.05 * SECOND; true_ns < LENGTH; true_ns += 0.73 * SECOND) {
            const auto reference_ns =
                static_cast<std::int64_t>(world.clocks[clock.reference].reads(true_ns));
            const auto shown_ns = static_cast<std::int64_t>(world.clocks[node].reads(true_ns));
            const Interval shown = clock.shown_at(reference_ns);
            const Interval back = clock.on_reference(shown_ns);
            ++judged.windows;
            // Readings are whole nanoseconds.
            if (shown.least_ns > shown_ns + 1 || shown.most_ns < shown_ns - 1 ||
                back.least_ns > reference_ns + 1 || back.most_ns < reference_ns - 1)
                ++judged.outside;
            judged.widest_ns = std::max({judged.widest_ns, static_cast<double>(shown.width_ns()),
                                         static_cast<double>(back.width_ns())});
        }
    }
    return judged;
}

struct Claims {
    std::size_t made = 0, wrong = 0, asked = 0;
};

Claims claims(World &world, const NodeClocks &solved) {
    Claims claims;
    for (int i = 0; i < 2000; ++i) {
        const auto a = static_cast<Node>(world.random() % world.clocks.size());
        const auto b = static_cast<Node>(world.random() % world.clocks.size());
        const double a_ns = world.between(0, LENGTH);
        const double b_ns = a_ns + world.between(-3e6, 3e6);
        const Order order =
            solved.order(a, world.clocks[a].reads(a_ns), b, world.clocks[b].reads(b_ns));
        ++claims.asked;
        claims.made += order != Order::Unknown ? 1 : 0;
        if ((order == Order::Earlier && a_ns > b_ns) || (order == Order::Later && b_ns > a_ns))
            ++claims.wrong;
    }
    return claims;
}

struct Skew {
    const char *name;
    double apart_ns;
    double drift_ppm;
};

class ClocksAreApart : public testing::TestWithParam<Skew> {};

TEST_P(ClocksAreApart, TheTruthIsInsideEveryBoundAndEveryClaimIsRight) {
    World world(7);
    for (int node = 0; node < 4; ++node)
        world.clocks.push_back({1000 * SECOND + node * GetParam().apart_ns,
                                {node % 2 == 0 ? 0.0 : GetParam().drift_ppm}});
    for (Node node = 0; node < 4; ++node)
        world.messages(node, (node + 1) % 4, 600);
    world.causal.finish();
    const NodeClocks solved = solve_clocks(world.causal, 4);
    const Judged judged = judge(world, solved);
    EXPECT_GT(judged.windows, 600U);
    EXPECT_EQ(judged.outside, 0U);
    // Latency and slop in both directions, over two hops, and what clocks may drift meanwhile.
    EXPECT_LT(judged.widest_ns, 2 * 2 * 240'000.0);
    EXPECT_TRUE(solved.contradictions.empty());
    const Claims made = claims(world, solved);
    EXPECT_EQ(made.wrong, 0U);
    EXPECT_GT(made.made, made.asked / 2);
}

INSTANTIATE_TEST_SUITE_P(Skews, ClocksAreApart,
                         testing::Values(Skew{"Together", 0, 0}, Skew{"Milliseconds", 3e6, 0},
                                         Skew{"Seconds", 2e9, 0}, Skew{"AnHour", 3.6e12, 0},
                                         Skew{"Drift", 2e9, 50}, Skew{"DriftBack", 3.6e12, -50},
                                         Skew{"MostDrift", 3e6, 499}),
                         [](const auto &skew) { return skew.param.name; });

TEST(Clocks, RandomGraphsOfClocksThatChangeTheirRateKeepTheTruthInside) {
    std::size_t calibrated = 0, windows = 0;
    for (std::uint64_t seed = 1; seed <= 16; ++seed) {
        World world(seed);
        const std::size_t n = 2 + world.random() % 12;
        for (std::size_t node = 0; node < n; ++node) {
            TrueClock clock{world.between(1, 1e6) * SECOND, {}};
            for (int piece = 0; piece < 12; ++piece)
                clock.rates_ppm.push_back(world.between(-249, 249));
            world.clocks.push_back(clock);
        }
        world.slop_ns = world.between(0, 1) < 0.5 ? 50'000 : 50'000'000;
        for (std::size_t i = 0; i < 2 * n; ++i) {
            const auto a = static_cast<Node>(world.random() % n);
            const auto b = static_cast<Node>(world.random() % n);
            if (a == b)
                continue;
            if (world.random() % 4 == 0) // in one direction alone
                for (int message = 0; message < 40; ++message)
                    world.message(a, b, world.between(0, LENGTH));
            else
                world.messages(a, b, 1 + world.random() % 500);
        }
        world.causal.finish();
        const NodeClocks solved = solve_clocks(world.causal, n, 500'000'000);
        const Judged judged = judge(world, solved);
        EXPECT_EQ(judged.outside, 0U) << seed;
        EXPECT_TRUE(solved.contradictions.empty()) << seed;
        EXPECT_EQ(claims(world, solved).wrong, 0U) << seed;
        windows += judged.windows;
        for (const NodeClock &clock : solved.nodes)
            calibrated += clock.knots.empty() ? 0 : 1;
    }
    EXPECT_GT(calibrated, 48U);
    EXPECT_GT(windows, 6'000U);
}

TEST(Clocks, StaysTieAllNodesTogetherWithinTheirLength) {
    World world(3);
    for (int node = 0; node < 32; ++node)
        world.clocks.push_back({world.between(1, 1e5) * SECOND, {world.between(-40, 40)}});
    for (int i = 0; i < 500; ++i) {
        const double meets_ns = world.between(0, LENGTH);
        std::vector<CausalOrder::Stay> stays;
        for (Node node = 0; node < 32; ++node)
            stays.push_back({node,
                             world.clocks[node].reads(meets_ns - world.between(10'000, 2'000'000)),
                             world.clocks[node].reads(meets_ns + world.between(10'000, 200'000))});
        world.causal.add(stays);
    }
    world.causal.finish();
    const NodeClocks solved = solve_clocks(world.causal, 32);
    const Judged judged = judge(world, solved);
    EXPECT_EQ(judged.outside, 0U);
    EXPECT_LT(judged.widest_ns, 4'400'000.0);
    EXPECT_EQ(claims(world, solved).wrong, 0U);
}

TEST(Clocks, NodesThatNothingTiesInBothDirectionsAreNotCalibrated) {
    World world(5);
    world.clocks.resize(5, {1000 * SECOND, {0}});
    world.messages(0, 1, 50);
    for (int i = 0; i < 50; ++i)
        world.message(1, 2, i * SECOND);
    world.messages(3, 4, 50);
    world.causal.finish();
    const NodeClocks solved = solve_clocks(world.causal, 5);
    EXPECT_EQ(solved.nodes[2].calibration, Calibration::None);
    EXPECT_TRUE(solved.nodes[2].knots.empty());
    EXPECT_NE(solved.nodes[0].group, solved.nodes[3].group);
    EXPECT_EQ(solved.nodes[3].group, solved.nodes[4].group);
    EXPECT_EQ(solved.order(0, 1001 * 1'000'000'000ULL, 3, 1100 * 1'000'000'000ULL), Order::Unknown);
    EXPECT_EQ(solved.order(2, 5, 2, 6), Order::Earlier); // of one clock
}

TEST(Clocks, AFalseConstraintIsReportedAndItsNodesAreSetApart) {
    for (const double false_by_ns : {-50e6, -5e9}) {
        World world(11);
        for (int node = 0; node < 6; ++node)
            world.clocks.push_back({(1000 + node) * SECOND, {node * 5.0}});
        for (Node node = 1; node < 6; ++node)
            world.messages(0, node, 400);
        world.messages(4, 5, 400);
        world.causal.add({4, world.clocks[4].reads(60 * SECOND), 5,
                          world.clocks[5].reads(60 * SECOND + false_by_ns)});
        world.causal.finish();
        const NodeClocks solved = solve_clocks(world.causal, 6);
        ASSERT_FALSE(solved.contradictions.empty());
        EXPECT_GT(solved.contradictions.front().by_ns, 10'000'000);
        EXPECT_EQ(solved.nodes[5].calibration, Calibration::Contradiction);
        EXPECT_TRUE(solved.nodes[5].knots.empty());
        for (Node node = 0; node < 4; ++node)
            EXPECT_FALSE(solved.nodes[node].knots.empty()) << node;
        EXPECT_EQ(judge(world, solved).outside, 0U);
        EXPECT_EQ(claims(world, solved).wrong, 0U);
    }
}

TEST(Clocks, AClockThatJumpsContradictsAndCostsTheOthersNothing) {
    World world(13);
    for (int node = 0; node < 5; ++node)
        world.clocks.push_back({(1000 + node) * SECOND, {0}});
    for (Node node = 0; node < 4; ++node)
        for (Node other = node + 1; other < 4; ++other)
            world.messages(node, other, 200);
    for (Node node = 0; node < 4; ++node)
        for (int i = 0; i < 400; ++i) {
            const double true_ns = world.between(0, LENGTH);
            const double jump_ns = true_ns > LENGTH / 2 ? 0.2 * SECOND : 0;
            const auto shifted = [&](double at_ns) {
                return world.clocks[4].reads(at_ns + jump_ns);
            };
            world.causal.add({node, world.clocks[node].reads(true_ns), 4, shifted(true_ns + 1e5)});
            world.causal.add({4, shifted(true_ns), node, world.clocks[node].reads(true_ns + 1e5)});
        }
    world.causal.finish();
    const NodeClocks solved = solve_clocks(world.causal, 5);
    EXPECT_EQ(solved.nodes[4].calibration, Calibration::Contradiction);
    for (Node node = 0; node < 4; ++node)
        EXPECT_FALSE(solved.nodes[node].knots.empty());
    EXPECT_EQ(judge(world, solved).outside, 0U);
}

TEST(Clocks, HundredsOfNodesInARingAndAStar) {
    World world(17);
    constexpr Node NODES = 96;
    for (Node node = 0; node < NODES; ++node)
        world.clocks.push_back({world.between(1, 1e5) * SECOND, {world.between(-100, 100)}});
    for (Node node = 0; node < NODES; ++node)
        world.messages(node, (node + 1) % NODES, 20);
    for (Node node = 1; node < NODES; ++node)
        world.messages(0, node, 5);
    world.causal.finish();
    const NodeClocks solved = solve_clocks(world.causal, NODES);
    const Judged judged = judge(world, solved);
    EXPECT_EQ(judged.outside, 0U);
    EXPECT_GT(judged.windows, 12'000U);
    EXPECT_EQ(claims(world, solved).wrong, 0U);
}

TEST(Clocks, ManyConstraintsOfAPairAreKeptAsFew) {
    World world(19);
    world.clocks.resize(2, {1000 * SECOND, {0}});
    world.clocks[1].rates_ppm = {50};
    world.messages(0, 1, 50'000);
    world.causal.finish();
    for (const auto &[nodes, marks] : world.causal.pairs())
        EXPECT_LE(marks.all().size(), 512U);
    EXPECT_EQ(world.causal.added(), 100'000U);
    const NodeClocks solved = solve_clocks(world.causal, 2);
    EXPECT_EQ(judge(world, solved).outside, 0U);
    EXPECT_LT(judge(world, solved).widest_ns, 250'000.0);
}

TEST(Clocks, NoConstraintsNoClaims) {
    const NodeClocks solved = solve_clocks(CausalOrder{}, 3);
    EXPECT_EQ(solved.nodes.size(), 3U);
    EXPECT_FALSE(solved.on_reference(1, 5).has_value());
    EXPECT_EQ(solved.order(0, 1, 1, 1'000'000'000), Order::Unknown);
}

} // namespace
} // namespace collwire::clocks
