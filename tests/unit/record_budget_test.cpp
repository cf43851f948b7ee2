// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <gtest/gtest.h>

#include "userspace/record/probe_budget.h"

namespace collwire::record {
namespace {

using enum source::ProbeUse;
using Indices = std::vector<std::size_t>;

constexpr double MS = 1e6, SECOND = 1e9, SHARE = 0.003;
constexpr double WINDOW_NS = 100 * MS, ALLOWED_NS = SHARE * WINDOW_NS; // 0.3 ms

Indices next_of(std::vector<GroupTime> window, double credit_ns = 0, double granted_ns = 0) {
    return groups_to_take_off(window, {ALLOWED_NS, credit_ns, granted_ns});
}

TEST(GroupsToTakeOff, AreNoneWhileTheNextWindowIsAllowed) {
    EXPECT_EQ(next_of({{Operations, ALLOWED_NS}}), Indices{});
    EXPECT_EQ(next_of({{Operations, 5 * MS}}, 5 * MS), Indices{});
}

TEST(GroupsToTakeOff, BeginWithTheDearest) {
    EXPECT_EQ(next_of({{Operations, 0.1 * MS}, {Operations, 0.25 * MS}, {Operations, 0.05 * MS}}),
              Indices{1});
    EXPECT_EQ(next_of({{Operations, 2 * MS}, {Operations, 5 * MS}, {Operations, 0.1 * MS}}),
              (Indices{1, 0}));
}

TEST(GroupsToTakeOff, EndWithTheControlPath) {
    EXPECT_EQ(next_of({{Control, 9 * MS}, {Operations, 0.1 * MS}}), (Indices{1, 0}));
    EXPECT_EQ(next_of({{Control, 0.2 * MS}, {Operations, 0.2 * MS}}), Indices{1});
}

TEST(GroupsToTakeOff, TookTime) {
    EXPECT_EQ(next_of({{Operations, 0}, {Control, 0}, {Kept, 9 * MS}}), Indices{});
}

TEST(GroupsToTakeOff, DoNotIncludeWhatIsInNoBudget) {
    EXPECT_EQ(next_of({{Everywhere, 9 * MS}, {Operations, ALLOWED_NS / 2}}), Indices{});
}

TEST(GroupsToTakeOff, PayBackADebtAboveATwentieth) {
    const std::vector<GroupTime> window{{Operations, 0.6 * ALLOWED_NS},
                                        {Operations, 0.1 * MS / 10}};
    EXPECT_EQ(next_of(window, -1 * MS, 100 * MS), Indices{});
    EXPECT_EQ(next_of(window, -1 * MS, 10 * MS), Indices{0});
}

// Windows until something is taken off; the whole of the recording, and its share.
struct Recording {
    ProbeBudget budget{SHARE};
    int n_windows = 0, taken_after = -1;

    void run(double share_of_probes, double until_s, std::size_t n_processes = 1) {
        for (; n_windows * WINDOW_NS < until_s * SECOND; ++n_windows) {
            const double taken_ns =
                taken_after < 0 ? share_of_probes * WINDOW_NS * static_cast<double>(n_processes)
                                : 0;
            const GroupTime window[] = {{Operations, taken_ns}};
            if (!budget.add_window(WINDOW_NS, n_processes, window).empty())
                taken_after = n_windows;
        }
    }
};

TEST(ProbeBudget, KeepsEveryLoadWithinATenthAfterTenSeconds) {
    for (const double load : {0.0031, 0.0032, 0.004, 0.006, 0.02, 0.075, 0.3}) {
        for (const double until_s : {10.0, 20.0, 60.0, 600.0}) {
            Recording recording;
            recording.run(load, until_s);
            EXPECT_LE(recording.budget.taken_share(), 1.1 * SHARE) << load << " for " << until_s;
        }
    }
}

TEST(ProbeBudget, TakesNothingBelowIt) {
    Recording recording;
    recording.run(0.0029, 600);
    EXPECT_EQ(recording.taken_after, -1);
    EXPECT_NEAR(recording.budget.taken_share(), 0.0029, 1e-9);
}

TEST(ProbeBudget, IsOfEachProcess) {
    Recording recording;
    recording.run(0.0029, 100, 8);
    EXPECT_EQ(recording.taken_after, -1);
    Recording one;
    one.run(8 * 0.0029, 100, 1);
    EXPECT_GE(one.taken_after, 0);
}

// A job of hours must not pay for days without one.
TEST(ProbeBudget, KeepsUnusedTimeForAMinuteOnly) {
    Recording recording;
    recording.run(0, 3600);
    recording.run(0.03, 3600 + 60);
    ASSERT_GE(recording.taken_after, 36000);
    EXPECT_LE(recording.taken_after, 36000 + 67); // 60 s x 0.3% at 2.7% above it
}

} // namespace
} // namespace collwire::record
