// SPDX-License-Identifier: Apache-2.0
#include "cupti/clock.h"

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace collwire::cupti {
namespace {

// CUPTI's clock: a test double that counts `units_per_ns` from the monotonic clock on.
struct FakeTime {
    double units_per_ns = 1;
    std::atomic<int64_t> offset = 0;
    bool is_silent = false;

    uint64_t at(uint64_t monotonic) const {
        const auto units =
            units_per_ns == 1
                ? monotonic
                : static_cast<uint64_t>(static_cast<double>(monotonic) * units_per_ns);
        return units + static_cast<uint64_t>(offset.load());
    }
};
FakeTime *fake_time = nullptr;

Result get_timestamp(uint64_t *time) {
    if (fake_time->is_silent)
        return INVALID_OPERATION;
    *time = fake_time->at(monotonic_ns());
    return SUCCESS;
}

class CuptiClock : public testing::Test {
protected:
    void SetUp() override {
        fake_time = &time_;
        functions_.get_timestamp = get_timestamp;
    }

    // How far the clock converts a time of now away from now.
    uint64_t off_by(uint64_t monotonic) const {
        const uint64_t converted = clock_.to_monotonic(time_.at(monotonic));
        return converted < monotonic ? monotonic - converted : converted - monotonic;
    }

    // A trace's second is a pair's distance; here 5 ms stand for it.
    void let_pass(uint64_t ns = 5'000'000) {
        const uint64_t begin_ns = monotonic_ns();
        while (monotonic_ns() - begin_ns < ns) {
        }
    }

    FakeTime time_;
    Functions functions_ = {};
    Clock clock_;
};

constexpr uint64_t WELL_BELOW_A_PAIRS_DISTANCE_NS = 1'000'000;

TEST_F(CuptiClock, TheSystemsTimeIsConvertedWithinItsError) {
    time_.offset = 1'795'000'000'000'000'000;
    ASSERT_TRUE(clock_.read_pair(functions_));
    for (int pair = 0; pair < 3; ++pair) {
        const uint64_t before_ns = monotonic_ns();
        let_pass();
        ASSERT_TRUE(clock_.read_pair(functions_));
        for (const uint64_t ns : {before_ns, monotonic_ns(), before_ns + 1'000'000'000})
            EXPECT_LE(off_by(ns), clock_.error_ns());
    }
    EXPECT_GT(clock_.error_ns(), 0U);
    EXPECT_LT(clock_.error_ns(), WELL_BELOW_A_PAIRS_DISTANCE_NS);
}

// A tool that registers its own clock stays registered: PyTorch's counts a processor's ticks.
TEST_F(CuptiClock, AnotherToolsTicksAreConvertedFromTheFirstPairOn) {
    for (const double units_per_ns : {2.6, 0.024}) {
        time_.units_per_ns = units_per_ns;
        clock_.reset();
        ASSERT_TRUE(clock_.read_pair(functions_));
        const uint64_t first_ns = monotonic_ns();
        EXPECT_LT(off_by(first_ns), 100'000U);
        let_pass();
        const uint64_t second_ns = monotonic_ns();
        EXPECT_LT(off_by(second_ns), WELL_BELOW_A_PAIRS_DISTANCE_NS);
        ASSERT_TRUE(clock_.read_pair(functions_));
        EXPECT_LE(off_by(first_ns), clock_.error_ns());
        EXPECT_LE(off_by(second_ns), clock_.error_ns());
        EXPECT_LT(clock_.error_ns(), WELL_BELOW_A_PAIRS_DISTANCE_NS);
    }
}

TEST_F(CuptiClock, AClockThatIsSetRaisesTheError) {
    for (const int64_t step_ns : {2'000'000L, -2'000'000L, 3'600'000'000'000L, -40'000'000L}) {
        clock_.reset();
        ASSERT_TRUE(clock_.read_pair(functions_));
        let_pass();
        ASSERT_TRUE(clock_.read_pair(functions_));
        EXPECT_LT(clock_.error_ns(), WELL_BELOW_A_PAIRS_DISTANCE_NS) << step_ns;
        let_pass();
        const uint64_t before_ns = monotonic_ns();
        const uint64_t cupti_before = time_.at(before_ns);
        time_.offset += step_ns;
        ASSERT_TRUE(clock_.read_pair(functions_));
        // A record from before the step: its time is off, and the error covers it.
        const auto off_ns = static_cast<int64_t>(clock_.to_monotonic(cupti_before) - before_ns);
        EXPECT_LE(static_cast<uint64_t>(std::abs(off_ns)), clock_.error_ns()) << step_ns;
        EXPECT_NEAR(static_cast<double>(clock_.error_ns()), static_cast<double>(std::abs(step_ns)),
                    1e6);
        // Later ones are right, for as long as the next pair takes: the step is no change of rate.
        EXPECT_LT(off_by(monotonic_ns() + 1'000'000'000), WELL_BELOW_A_PAIRS_DISTANCE_NS);
    }
}

TEST_F(CuptiClock, TicksOfAClockThatIsSetKeepTheirRate) {
    time_.units_per_ns = 2.6;
    ASSERT_TRUE(clock_.read_pair(functions_));
    let_pass();
    ASSERT_TRUE(clock_.read_pair(functions_));
    time_.offset = 26'000'000'000; // 10 s
    let_pass();
    ASSERT_TRUE(clock_.read_pair(functions_));
    EXPECT_NEAR(static_cast<double>(clock_.error_ns()), 1e10, 1e7);
    EXPECT_LT(off_by(monotonic_ns()), WELL_BELOW_A_PAIRS_DISTANCE_NS);
    let_pass();
    ASSERT_TRUE(clock_.read_pair(functions_));
    EXPECT_LT(off_by(monotonic_ns() + 5'000'000), WELL_BELOW_A_PAIRS_DISTANCE_NS);
}

TEST_F(CuptiClock, ANewTraceForgetsTheErrorOfTheLast) {
    ASSERT_TRUE(clock_.read_pair(functions_));
    time_.offset = 1'000'000'000;
    ASSERT_TRUE(clock_.read_pair(functions_));
    EXPECT_GT(clock_.error_ns(), 900'000'000U);
    clock_.reset();
    EXPECT_EQ(clock_.error_ns(), 0U);
    ASSERT_TRUE(clock_.read_pair(functions_));
    EXPECT_LT(clock_.error_ns(), WELL_BELOW_A_PAIRS_DISTANCE_NS);
}

TEST_F(CuptiClock, WithoutTimesThereIsNoPair) {
    time_.is_silent = true;
    EXPECT_FALSE(clock_.read_pair(functions_));
    time_.is_silent = false;
    EXPECT_TRUE(clock_.read_pair(functions_));
    time_.is_silent = true;
    EXPECT_FALSE(clock_.read_pair(functions_));
    EXPECT_LE(off_by(monotonic_ns()), clock_.error_ns());
}

// CUPTI's thread converts while the guest's thread reads pairs: half a pair would be off by their
// distance.
TEST_F(CuptiClock, APairIsNeverReadByHalves) {
    time_.offset = -123'456'789;
    ASSERT_TRUE(clock_.read_pair(functions_));
    std::atomic<bool> is_over = false;
    std::atomic<uint64_t> most_ns = 0;
    std::vector<std::jthread> readers;
    readers.reserve(2);
    for (int i = 0; i < 2; ++i)
        readers.emplace_back([&] {
            while (!is_over)
                most_ns = std::max(most_ns.load(), off_by(monotonic_ns()));
        });
    for (int pair = 0; pair < 40; ++pair) {
        let_pass();
        EXPECT_TRUE(clock_.read_pair(functions_));
    }
    is_over = true;
    readers.clear();
    EXPECT_LE(most_ns, clock_.error_ns());
    EXPECT_LT(clock_.error_ns(), WELL_BELOW_A_PAIRS_DISTANCE_NS);
}

} // namespace
} // namespace collwire::cupti
