// SPDX-License-Identifier: Apache-2.0
// When the client's buffers are asked for and returned, and to whom.
#include <atomic>
#include <future>

#include "tests/cupti_double/fixture.h"

namespace collwire::cupti_double {
namespace {

class BuffersTest : public CuptiDoubleTest {};

TEST_F(BuffersTest, AreRequestedOnTheLaunchingThreadAndCompletedOnAnother) {
    start();
    arm();
    std::thread::id launching;
    std::thread([&] {
        launching = std::this_thread::get_id();
        launch_and_run();
    }).join();
    flush();
    ASSERT_EQ(client<1>().requested_on.size(), 1U);
    EXPECT_EQ(client<1>().requested_on[0], launching);
    ASSERT_EQ(client<1>().completed_on.size(), 1U);
    EXPECT_NE(client<1>().completed_on[0], launching);
    EXPECT_NE(client<1>().completed_on[0], std::this_thread::get_id());
}

TEST_F(BuffersTest, FullOnesComeByThemselvesOnceAllKernelsHaveEnded) {
    start();
    arm();
    const std::uint64_t last = [&] {
        for (int i = 0; i < 3; i++)
            launch_and_run();
        return launch();
    }();
    launch_and_run(); // of the next buffer
    EXPECT_TRUE(records().empty());
    run(last);
    wait_for_buffers(1);
    EXPECT_EQ(records().size(), 4U);
}

TEST_F(BuffersTest, FullOnesComeWithThePeriod) {
    start();
    arm();
    ASSERT_EQ(cuptiActivityFlushPeriod(1), Result::Success);
    for (int i = 0; i < 5; i++)
        launch_and_run();
    wait_for_buffers(1);
    EXPECT_EQ(client<1>().records_of_buffers, std::vector<std::size_t>{4});
}

TEST_F(BuffersTest, AFlushReturnsThoseWhoseKernelsHaveEnded) {
    start();
    arm();
    for (int i = 0; i < 4; i++)
        launch_and_run();
    const std::uint64_t running = launch();
    launch_and_run();
    flush();
    EXPECT_EQ(records().size(), 4U);
    run(running);
    flush();
    EXPECT_EQ(records().size(), 6U);
}

TEST_F(BuffersTest, AForcedFlushReturnsARunningKernelOnceAndNeverAgain) {
    start();
    arm();
    const std::uint64_t running = launch();
    double_->activity.started(running, monotonic_ns());
    flush(FLUSH_FORCED);
    ASSERT_EQ(records().size(), 1U);
    EXPECT_NE(records()[0].start, 0U);
    EXPECT_EQ(records()[0].end, 0U);
    double_->activity.ended(running, monotonic_ns());
    flush(FLUSH_FORCED);
    EXPECT_EQ(records().size(), 1U);
}

TEST_F(BuffersTest, AForcedFlushReturnsAKernelThatHasNotBegunWithOneTime) {
    start();
    arm();
    const std::uint64_t queued = launch();
    flush(FLUSH_FORCED);
    ASSERT_EQ(records().size(), 1U);
    EXPECT_NE(records()[0].start, 0U);
    EXPECT_EQ(records()[0].end, records()[0].start);
    run(queued);
    flush(FLUSH_FORCED);
    EXPECT_EQ(records().size(), 1U);
}

TEST_F(BuffersTest, GoToTheCallbacksInForceWhenTheyComplete) {
    start();
    arm();
    const std::uint64_t id = launch();
    ASSERT_EQ(cuptiActivityRegisterCallbacks(request_of<2>, complete_of<2>), Result::Success);
    run(id);
    flush();
    EXPECT_TRUE(client<1>().records.empty());
    EXPECT_EQ(client<2>().records.size(), 1U);
    EXPECT_EQ(client<2>().foreign_buffers, 1U);
    client<1>().buffers.clear(); // the other freed it
    launch_and_run();
    flush();
    EXPECT_EQ(client<2>().records.size(), 2U);
    EXPECT_EQ(client<2>().foreign_buffers, 1U);
}

TEST_F(BuffersTest, GoToThoseWhoGaveThemIfAskedFor) {
    Settings settings;
    settings.buffer_owner = BufferOwner::RegisteredThen;
    start(settings);
    arm();
    const std::uint64_t id = launch();
    ASSERT_EQ(cuptiActivityRegisterCallbacks(request_of<2>, complete_of<2>), Result::Success);
    run(id);
    flush();
    EXPECT_EQ(client<1>().records.size(), 1U);
    EXPECT_TRUE(client<2>().records.empty());
    for (int i = 0; i < 4; i++)
        launch_and_run();
    flush();
    EXPECT_EQ(client<2>().records.size(), 4U);
    EXPECT_EQ(client<2>().foreign_buffers, 0U);
}

TEST_F(BuffersTest, HoldAtMostTheRecordsThatTheClientAsksFor) {
    start();
    client<1>().most_records = 2;
    arm();
    for (int i = 0; i < 5; i++)
        launch_and_run();
    flush();
    EXPECT_EQ(client<1>().records_of_buffers, (std::vector<std::size_t>{2, 2, 1}));
}

TEST_F(BuffersTest, RefusedOnesDropRecordsThatAreCounted) {
    Settings settings;
    settings.api_version = FIRST_VERSION_WITH_REFUSAL;
    start(settings);
    arm();
    client<1>().refuses = true;
    launch_and_run();
    launch_and_run();
    flush();
    EXPECT_TRUE(records().empty());
    std::size_t dropped = 0;
    ASSERT_EQ(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), Result::Success);
    EXPECT_EQ(dropped, 2U);
    ASSERT_EQ(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), Result::Success);
    EXPECT_EQ(dropped, 0U);
    EXPECT_EQ(misuses(), 0U);
}

TEST_F(BuffersTest, RefusedOnesCrashBeforeVersion27) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto launch_refused = [this] {
        Settings settings;
        settings.api_version = FIRST_VERSION_WITH_REFUSAL - 1;
        start(settings);
        arm();
        client<1>().refuses = true;
        launch();
    };
    EXPECT_DEATH(launch_refused(), "gave no buffer, and CUPTI of API version 26 crashes");
}

TEST_F(BuffersTest, TooSmallOnesAreMisuse) {
    start();
    client<1>().buffer_bytes = KERNEL10_BYTES - 1;
    arm();
    launch_and_run();
    EXPECT_EQ(misuses(), 1U);
}

TEST_F(BuffersTest, WritingIntoOneThatCuptiHoldsIsMisuse) {
    start();
    arm();
    const std::uint64_t id = launch();
    **client<1>().buffers.begin() = 0;
    run(id);
    flush();
    EXPECT_EQ(misuses(), 1U);
}

TEST_F(BuffersTest, FinalizeLosesWhatWasNotFlushed) {
    start();
    arm();
    launch_and_run();
    ASSERT_EQ(cuptiFinalize(), Result::Success);
    EXPECT_EQ(misuses(), 1U);
    launch_and_run();
    ASSERT_EQ(cuptiActivityRegisterCallbacks(request_of<1>, complete_of<1>), Result::Success);
    flush();
    EXPECT_TRUE(records().empty());
}

// A completion callback that does not return while this thread launches.
std::promise<void> *callback_runs = nullptr;
std::atomic<bool> may_return{false};

void complete_late(void *, std::uint32_t, std::uint8_t *buffer, std::size_t, std::size_t) {
    callback_runs->set_value();
    while (!may_return)
        std::this_thread::yield();
    client<1>().buffers.erase(buffer);
    delete[] buffer;
}

TEST_F(BuffersTest, ACallbackThatLetsALaunchWaitIsReported) {
    patience_ms_ = 500; // nothing else is held so long
    start();
    std::promise<void> runs;
    callback_runs = &runs;
    may_return = false;
    arm();
    ASSERT_EQ(cuptiActivityRegisterCallbacks(request_of<1>, complete_late), Result::Success);
    for (int i = 0; i < 4; i++)
        launch_and_run();
    runs.get_future().wait();
    std::thread waiting([this] { launch(); });
    while (misuses() == 0)
        std::this_thread::yield();
    may_return = true;
    waiting.join();
    EXPECT_EQ(misuses(), 1U);
}

} // namespace
} // namespace collwire::cupti_double
