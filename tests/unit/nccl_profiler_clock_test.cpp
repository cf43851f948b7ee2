// SPDX-License-Identifier: Apache-2.0
#include "cupti/nccl_profiler_clock.h"

#include <gtest/gtest.h>
#include <random>

namespace collwire::cupti {
namespace {

constexpr uint64_t MS = 1'000'000;

// A GPU's timer that is ahead of the node's clock, and gains or loses.
struct Gpu {
    int64_t ahead_ns;
    double gain = 0;
    uint64_t began_ns = 1'000 * MS;
    uint64_t at(uint64_t monotonic_ns) const {
        const auto passed = static_cast<double>(monotonic_ns - began_ns);
        return monotonic_ns + static_cast<uint64_t>(ahead_ns + static_cast<int64_t>(passed * gain));
    }
};

// Kernels that start 3 to 40 us after their launch, and are seen 1 to 30 us late.
void check_bounds(const Gpu &gpu) {
    std::mt19937 random(7);
    GpuClock clock;
    uint64_t now_ns = gpu.began_ns, worst_ns = 0;
    for (int i = 0; i < 20'000; ++i) {
        const uint64_t launch_ns = now_ns, start_ns = launch_ns + 3'000 + random() % 37'000;
        const uint64_t seen_ns = start_ns + 1'000 + random() % 29'000;
        clock.add_launch(launch_ns, gpu.at(start_ns));
        clock.add_seen(gpu.at(start_ns), seen_ns);
        uint64_t error_ns = 0;
        const uint64_t told_ns = clock.to_monotonic(gpu.at(start_ns), seen_ns, error_ns);
        const uint64_t off_ns = told_ns < start_ns ? start_ns - told_ns : told_ns - start_ns;
        ASSERT_NE(error_ns, 0U);
        ASSERT_LE(off_ns, error_ns) << "kernel " << i;
        if (i > 1'000)
            worst_ns = std::max(worst_ns, error_ns);
        now_ns = seen_ns + random() % 200'000;
    }
    EXPECT_LT(worst_ns, 20'000U);
    EXPECT_EQ(clock.breaks(), 0U);
}

TEST(GpuClock, BoundsItsErrorBetweenTheLaunchAndTheMomentOfSight) {
    check_bounds({123'456'789'012'345});
    check_bounds({-999'000});
}

TEST(GpuClock, FollowsATimerThatGainsOrLoses) {
    check_bounds({5'000'000, 50e-6});
    check_bounds({5'000'000, -50e-6});
}

TEST(GpuClock, WithoutLaunchesItsErrorIsNotKnown) {
    GpuClock clock;
    uint64_t error_ns = 1;
    EXPECT_EQ(clock.to_monotonic(5, 10, error_ns), 0U);
    clock.add_seen(1'000, 501'000);
    clock.add_seen(2'000, 503'000);
    EXPECT_EQ(clock.to_monotonic(2'000, 503'000, error_ns), 502'000U);
    EXPECT_EQ(error_ns, 0U);
}

TEST(GpuClock, AClockThatWasSetShowsAndIsFollowed) {
    GpuClock clock;
    clock.add_launch(100 * MS, 200 * MS);
    clock.add_seen(200 * MS, 100 * MS + 20'000);
    // The GPU's timer was set back by 50 ms.
    clock.add_launch(110 * MS, 160 * MS);
    clock.add_seen(160 * MS, 110 * MS + 20'000);
    EXPECT_EQ(clock.breaks(), 1U);
    uint64_t error_ns = 0;
    EXPECT_NEAR(static_cast<double>(clock.to_monotonic(160 * MS, 110 * MS, error_ns)), 110e6, 20e3);
    EXPECT_NE(error_ns, 0U);
}

} // namespace
} // namespace collwire::cupti
