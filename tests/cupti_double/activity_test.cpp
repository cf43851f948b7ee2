// SPDX-License-Identifier: Apache-2.0
// Which kernels get a record, and what it says.
#include "tests/cupti_double/fixture.h"

namespace collwire::cupti_double {
namespace {

class ActivityTest : public CuptiDoubleTest {};

constexpr std::uint64_t MOST_CLOCK_ERROR_NS = 100'000;

TEST_F(ActivityTest, RecordsHaveTheTimesOfTheKernels) {
    start();
    arm();
    const std::uint64_t first = launch_and_run();
    const std::uint64_t second = launch_and_run();
    flush();
    ASSERT_EQ(records().size(), 2U);
    for (const std::uint64_t id : {first, second}) {
        const KernelRecord &record = records()[id - 1];
        EXPECT_EQ(record.kind, KIND_CONCURRENT_KERNEL);
        EXPECT_EQ(record.correlation, 100 + id);
        EXPECT_STREQ(record.name, "_Z13ncclDevKernelv");
        EXPECT_NEAR(static_cast<double>(record.start), static_cast<double>(started_[id]),
                    MOST_CLOCK_ERROR_NS);
        EXPECT_NEAR(static_cast<double>(record.end), static_cast<double>(ended_[id]),
                    MOST_CLOCK_ERROR_NS);
        EXPECT_EQ(record.end - record.start, ended_[id] - started_[id]);
        EXPECT_EQ(record.completed, record.end);
    }
    EXPECT_EQ(misuses(), 0U);
}

TEST_F(ActivityTest, TimesAreRealtimeWithoutACallback) {
    start();
    ASSERT_EQ(cuptiActivityRegisterCallbacks(request_of<1>, complete_of<1>), Result::Success);
    ASSERT_EQ(cuptiActivityEnable(KIND_CONCURRENT_KERNEL), Result::Success);
    const std::uint64_t before = realtime_ns();
    launch_and_run();
    flush();
    ASSERT_EQ(records().size(), 1U);
    EXPECT_GE(records()[0].start + MOST_CLOCK_ERROR_NS, before);
    EXPECT_LE(records()[0].end, realtime_ns());
}

TEST_F(ActivityTest, KernelsLaunchedWhileTheKindIsOffHaveNoRecord) {
    start();
    ASSERT_EQ(cuptiActivityRegisterCallbacks(request_of<1>, complete_of<1>), Result::Success);
    const std::uint64_t early = launch();
    ASSERT_EQ(cuptiActivityEnable(KIND_CONCURRENT_KERNEL), Result::Success);
    const std::uint64_t recorded = launch();
    ASSERT_EQ(cuptiActivityDisable(KIND_CONCURRENT_KERNEL), Result::Success);
    const std::uint64_t late = launch();
    for (const std::uint64_t id : {early, recorded, late})
        run(id);
    flush();
    ASSERT_EQ(records().size(), 1U);
    EXPECT_EQ(records()[0].correlation, 100 + recorded);
}

TEST_F(ActivityTest, KernelsFromBeforeCuptiComeWithoutTimes) {
    start();
    KernelLaunch before;
    before.id = ++ids_;
    double_->activity.earlier(before, 1000, 2000);
    arm();
    launch_and_run();
    flush();
    ASSERT_EQ(records().size(), 2U);
    EXPECT_EQ(records()[0].start, 0U);
    EXPECT_EQ(records()[0].end, 0U);
    EXPECT_NE(records()[1].end, 0U);
}

TEST_F(ActivityTest, KernelsFromBeforeEnablingComeWithoutTimesIfAskedFor) {
    Settings settings;
    settings.earlier = EarlierKernels::BeforeEnabled;
    start(settings);
    const std::uint64_t queued = launch();
    arm();
    launch_and_run();
    run(queued);
    flush();
    ASSERT_EQ(records().size(), 2U);
    EXPECT_EQ(records()[0].correlation, 100 + queued);
    EXPECT_EQ(records()[0].end, 0U);
}

TEST_F(ActivityTest, NoneOfThemComesIfNoneIsAskedFor) {
    Settings settings;
    settings.earlier = EarlierKernels::None;
    start(settings);
    double_->activity.earlier({}, 1000, 2000);
    arm();
    launch_and_run();
    flush();
    EXPECT_EQ(records().size(), 1U);
}

TEST_F(ActivityTest, DisablingDropsPendingRecordsIfAskedFor) {
    Settings settings;
    settings.disable_drops = true;
    start(settings);
    arm();
    launch_and_run();
    const std::uint64_t pending = launch();
    ASSERT_EQ(cuptiActivityDisable(KIND_CONCURRENT_KERNEL), Result::Success);
    run(pending);
    flush();
    EXPECT_EQ(records().size(), 1U);
    std::size_t dropped = 0;
    ASSERT_EQ(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), Result::Success);
    EXPECT_EQ(dropped, 1U);
}

TEST_F(ActivityTest, AContextsSettingComesBeforeTheProcesss) {
    start();
    arm();
    ASSERT_EQ(cuptiActivityDisableContext(&context_, KIND_CONCURRENT_KERNEL), Result::Success);
    launch_and_run();
    flush();
    EXPECT_TRUE(records().empty());
    ASSERT_EQ(cuptiActivityDisable(KIND_CONCURRENT_KERNEL), Result::Success);
    ASSERT_EQ(cuptiActivityEnableContext(&context_, KIND_CONCURRENT_KERNEL), Result::Success);
    launch_and_run();
    flush();
    EXPECT_EQ(records().size(), 1U);
}

TEST_F(ActivityTest, OneClientsDisableStopsTheOthersRecords) {
    start();
    arm();                                                                   // one client
    ASSERT_EQ(cuptiActivityEnable(KIND_CONCURRENT_KERNEL), Result::Success); // another
    ASSERT_EQ(cuptiActivityDisable(KIND_CONCURRENT_KERNEL), Result::Success);
    launch_and_run();
    flush();
    EXPECT_TRUE(records().empty());
}

TEST_F(ActivityTest, ASecondTimestampCallbackSpoilsTheNextRecords) {
    start();
    arm();
    ASSERT_EQ(cuptiActivityRegisterTimestampCallback(read_monotonic), Result::Success);
    EXPECT_EQ(misuses(), 2U); // again, and while a kind is enabled
    const std::uint64_t id = launch_and_run();
    flush();
    ASSERT_EQ(records().size(), 1U);
    EXPECT_GT(records()[0].start, started_[id] + 99'000'000'000'000U);
    launch_and_run();
    flush();
    ASSERT_EQ(records().size(), 2U);
    EXPECT_LT(records()[1].end, monotonic_ns() + MOST_CLOCK_ERROR_NS);
}

TEST_F(ActivityTest, KernelsLaunchedBeforeTheTimestampCallbackKeepTheEarlierClock) {
    start();
    ASSERT_EQ(cuptiActivityRegisterCallbacks(request_of<1>, complete_of<1>), Result::Success);
    ASSERT_EQ(cuptiActivityEnable(KIND_CONCURRENT_KERNEL), Result::Success);
    const std::uint64_t before = realtime_ns();
    const std::uint64_t id = launch();
    ASSERT_EQ(cuptiActivityRegisterTimestampCallback(read_monotonic), Result::Success);
    run(id);
    launch_and_run();
    flush();
    ASSERT_EQ(records().size(), 2U);
    EXPECT_GE(records()[0].start + MOST_CLOCK_ERROR_NS, before);
    EXPECT_LE(records()[1].start, monotonic_ns());
    EXPECT_EQ(misuses(), 1U);
}

TEST_F(ActivityTest, RecordsOfTwelveHave208Bytes) {
    Settings settings;
    settings.api_version = 28;
    start(settings);
    client<1>().buffer_bytes = 2 * KERNEL9_BYTES;
    arm();
    launch_and_run();
    launch_and_run();
    flush();
    ASSERT_EQ(records().size(), 2U);
    EXPECT_EQ(client<1>().records_of_buffers, std::vector<std::size_t>{2});
    EXPECT_EQ(records()[1].correlation, 102U);
}

TEST_F(ActivityTest, TheTimestampIsTheCallbacks) {
    start();
    std::uint64_t now = 0;
    ASSERT_EQ(cuptiGetTimestamp(&now), Result::Success);
    EXPECT_LE(now, realtime_ns());
    EXPECT_GT(now, monotonic_ns());
    ASSERT_EQ(cuptiActivityRegisterTimestampCallback([] { return std::uint64_t{42}; }),
              Result::Success);
    ASSERT_EQ(cuptiGetTimestamp(&now), Result::Success);
    EXPECT_EQ(now, 42U);
}

} // namespace
} // namespace collwire::cupti_double
