// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "collwire/nccl_launch_records.h"
#include "correlate/gpu/join_plans.h"

namespace collwire::gpu {
namespace {

constexpr std::uint64_t MS = 1'000'000;

// Plan `n` is posted at n ms, its launch recorded 5 us later, and its two channels run.
std::vector<ChannelFact> channels_of(std::uint64_t n, std::uint8_t func = CW_NCCL_ALL_REDUCE) {
    const std::uint64_t posted_ns = n * MS;
    return {{n, posted_ns, posted_ns + 20'000, posted_ns + 60'000, 0, func},
            {n, posted_ns, posted_ns + 21'000, posted_ns + 65'000, 1, func}};
}

LaunchFact launch_of(std::uint64_t n, std::uint8_t func = CW_NCCL_ALL_REDUCE) {
    return {n * MS + 5'000, 2, func, false};
}

std::vector<PlanFact> plans_from(std::initializer_list<std::uint64_t> numbers) {
    std::vector<ChannelFact> channels;
    for (const std::uint64_t n : numbers)
        for (const ChannelFact &channel : channels_of(n))
            channels.push_back(channel);
    return plans_of(channels);
}

TEST(GpuJoinPlans, AKernelGoesFromItsFirstChannelsStartToItsLastOnesEnd) {
    const auto plans = plans_from({7});
    ASSERT_EQ(plans.size(), 1U);
    EXPECT_EQ(plans[0].start_ns, 7 * MS + 20'000);
    EXPECT_EQ(plans[0].end_ns, 7 * MS + 65'000);
    EXPECT_EQ(plans[0].channels, 2U);
    EXPECT_EQ(plans[0].func, CW_NCCL_ALL_REDUCE);
}

TEST(GpuJoinPlans, AKernelWithAChannelThatRunsHasNoEnd) {
    auto channels = channels_of(1);
    channels[0].end_ns = 0;
    EXPECT_EQ(plans_of(channels)[0].end_ns, 0U);
}

TEST(GpuJoinPlans, EachPlanHasTheLaunchThatFollowsIt) {
    std::vector<LaunchFact> launches;
    for (std::uint64_t n = 1; n <= 9; ++n)
        launches.push_back(launch_of(n));
    // Armed from the 3rd to the 7th.
    const std::vector<TracedSpan> spans = {{2 * MS, 2 * MS + MS / 2, 7 * MS + MS / 2}};
    const auto plans = plans_from({3, 4, 5, 6, 7});
    const KernelJoin join = join_plans(launches, plans, spans);
    EXPECT_EQ(join.exact, 5U);
    EXPECT_EQ(join.traced_launches, 5U);
    EXPECT_EQ(join.without_kernel, 0U);
    for (std::uint32_t i = 0; i < 5; ++i)
        EXPECT_EQ(join.kernels[i].launch, i + 2);
}

TEST(GpuJoinPlans, LostPlansAndLaunchesAreCounted) {
    const std::vector<LaunchFact> launches = {launch_of(1), launch_of(2), launch_of(4)};
    const std::vector<TracedSpan> spans = {{0, 0, UINT64_MAX}};
    const KernelJoin join = join_plans(launches, plans_from({1, 3, 4}), spans);
    EXPECT_EQ(join.exact, 2U);
    EXPECT_EQ(join.without_launch, 1U);
    EXPECT_EQ(join.without_kernel, 1U);
    EXPECT_EQ(join.kernels[1].match, Match::None);
    EXPECT_EQ(join.kernels[2].launch, 2U);
}

TEST(GpuJoinPlans, AnotherFunctionContradicts) {
    const std::vector<LaunchFact> launches = {launch_of(1, CW_NCCL_ALL_GATHER)};
    const KernelJoin join = join_plans(launches, plans_from({1}), {});
    EXPECT_EQ(join.contradicted, 1U);
    EXPECT_EQ(join.exact, 0U);
}

TEST(GpuJoinPlans, ChannelsWithoutAPlanAreInNone) {
    auto channels = channels_of(1);
    channels[0].plan = channels[1].plan = 0;
    EXPECT_TRUE(plans_of(channels).empty());
}

} // namespace
} // namespace collwire::gpu
