// SPDX-License-Identifier: Apache-2.0
// A guest that yields to another tool, or cannot trace: it says why.
#include "cupti_guest_fixture.h"

#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <utility>

namespace collwire::cupti {
namespace {

TEST_F(CuptiGuest, YieldsBeforeAnotherToolsCallReturns) {
    arm();
    cupti_.run_kernels(4, ALL_REDUCE);
    std::jthread([&] {
        guest_->yield("cuptiActivityEnable");
        EXPECT_FALSE(cupti_.is_enabled());
        EXPECT_EQ(cupti_.held_buffers(), 0U);
    }).join();
    take();
    EXPECT_EQ(last().state, static_cast<__u32>(CW_GPU_YIELDED));
    EXPECT_EQ(last().reason, static_cast<__u32>(CW_GPU_REASON_OTHER_ACTIVITY));
    EXPECT_STREQ(last().owner, "cuptiActivityEnable");
    EXPECT_EQ(last().yields, 1U);
    EXPECT_EQ(last().memory_bytes, 0U);
    EXPECT_EQ(last().kernels, 4U);
    EXPECT_LE(last().begin_ns, last().end_ns);
    EXPECT_NE(last().begin_ns, 0U);
    EXPECT_TRUE(guest_->is_alive());
    guest_->yield("cuptiActivityEnable"); // dormant: nothing to say
    take();
    EXPECT_EQ(received_.states.size(), 2U);
    poll_until(CW_GPU_ARMED); // a second later, if the other tool is idle
    EXPECT_EQ(last().yields, 1U);
}

TEST_F(CuptiGuest, YieldsWhileItDrains) {
    arm();
    cupti_.run_kernels(4, ALL_REDUCE);
    cupti_.keeps_buffers = true;
    want_trace(false);
    guest_->poll();
    guest_->yield("cuptiActivityRegisterCallbacks");
    take();
    EXPECT_EQ(last().state, static_cast<__u32>(CW_GPU_YIELDED));
    EXPECT_EQ(last().kernels, 4U);
    EXPECT_EQ(cupti_.disables, 1);
    EXPECT_NE(last().begin_ns, 0U);
    EXPECT_EQ(last().memory_bytes, 0U);
}

TEST_F(CuptiGuest, YieldsToAnotherSubscriberByName) {
    cupti_.subscribe_result = MULTIPLE_SUBSCRIBERS;
    cupti_.owner = "debugger";
    want_trace(true);
    poll_until(CW_GPU_YIELDED);
    EXPECT_EQ(last().reason, static_cast<__u32>(CW_GPU_REASON_SUBSCRIBED));
    EXPECT_EQ(last().result, MULTIPLE_SUBSCRIBERS);
    EXPECT_STREQ(last().owner, "debugger");
    EXPECT_EQ(cupti_.enables + cupti_.registrations, 0);
    cupti_.subscribe_result = SUCCESS;
    poll_until(CW_GPU_ARMED);
}

// The guest tries again each second.
TEST_F(CuptiGuest, StatesOnceToEachRecorderWhyItDoesNotTrace) {
    cupti_.subscribe_result = MULTIPLE_SUBSCRIBERS;
    cupti_.owner = "debugger";
    want_trace(true);
    poll_until(CW_GPU_YIELDED);
    const auto polls_that_try_again = [&] {
        const int before = cupti_.subscriptions;
        const uint64_t begin_ns = monotonic_ns();
        while (cupti_.subscriptions == before && monotonic_ns() - begin_ns < PATIENCE_NS)
            guest_->poll();
        EXPECT_EQ(cupti_.subscriptions, before + 1);
        received_ = {};
        take();
    };
    polls_that_try_again();
    EXPECT_TRUE(received_.states.empty());
    cupti_.owner = "profiler"; // another reason
    polls_that_try_again();
    ASSERT_EQ(received_.states.size(), 1U);
    EXPECT_STREQ(last().owner, "profiler");
    want_traces(2);
    polls_that_try_again();
    ASSERT_EQ(received_.states.size(), 1U);
    EXPECT_EQ(last().state, static_cast<__u32>(CW_GPU_YIELDED));
    want_traces(1);
    polls_that_try_again();
    EXPECT_TRUE(received_.states.empty());
}

TEST_F(CuptiGuest, AnOldCuptiWithoutNamedSubscribersIsAskedToo) {
    cupti_.api_version = 18;
    arm();
    EXPECT_EQ(last().cupti_version, 18U);
    EXPECT_EQ(cupti_.subscriptions, 1);
    want_trace(false);
    poll_until(CW_GPU_DISARMED);
    EXPECT_EQ(cupti_.finalizes, 0); // with graphs it crashes there
}

// CUPTI before 12.9 crashes where it gets no buffer.
TEST_F(CuptiGuest, AnOldCuptiAlwaysGetsABufferAndWhatIsTooMuchIsNotRead) {
    cupti_.api_version = 18;
    arm();
    constexpr int HELD = 64 * static_cast<int>(Buffers::BUFFER_BYTES / 216);
    cupti_.run_kernels(HELD + 7, ALL_REDUCE);
    EXPECT_EQ(cupti_.dropped, 0U);
    want_trace(false);
    poll_until(CW_GPU_DISARMED);
    EXPECT_EQ(received_.kernels.size(), static_cast<size_t>(HELD));
    EXPECT_EQ(last().buffers_lacking, 1U);
    EXPECT_EQ(last().memory_bytes, 0U);
}

TEST_F(CuptiGuest, RefusesWithoutCuptiAndWithATooOldOne) {
    cupti_.is_missing = true;
    want_trace(true);
    poll_until(CW_GPU_REFUSED);
    EXPECT_EQ(last().reason, static_cast<__u32>(CW_GPU_REASON_NO_CUPTI));
    EXPECT_TRUE(guest_->is_alive());
    cupti_.is_missing = false;
    cupti_.api_version = 17;
    poll_until(CW_GPU_REFUSED);
    EXPECT_EQ(last().reason, static_cast<__u32>(CW_GPU_REASON_OLD_CUPTI));
    EXPECT_EQ(cupti_.subscriptions + cupti_.enables, 0);
}

TEST_F(CuptiGuest, RefusesWhereCuptiHasACallerThatCannotBeSeen) {
    void *library = dlopen(FAKE_LIBCUPTI, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    want_trace(true);
    poll_until(CW_GPU_REFUSED);
    EXPECT_EQ(last().reason, static_cast<__u32>(CW_GPU_REASON_UNSEEN_CALLER));
    EXPECT_EQ(cupti_.subscriptions + cupti_.enables, 0);
    setenv("COLLWIRE_CUPTI_FORCE", "1", 1);
    poll_until(CW_GPU_ARMED);
    unsetenv("COLLWIRE_CUPTI_FORCE");
    dlclose(library);
}

TEST_F(CuptiGuest, WaitsUntilCudaIsReady) {
    cupti_.subscribe_result = 15; // CUPTI_ERROR_NOT_INITIALIZED
    want_trace(true);
    poll_until(CW_GPU_NO_CUDA);
    EXPECT_EQ(last().result, 15);
    EXPECT_TRUE(guest_->is_alive());
    cupti_.subscribe_result = SUCCESS;
    poll_until(CW_GPU_ARMED);
}

TEST_F(CuptiGuest, IsOffForGoodAfterAnErrorOfCupti) {
    cupti_.enable_result = 999;
    want_trace(true);
    poll_until(CW_GPU_FAILED);
    EXPECT_EQ(last().reason, static_cast<__u32>(CW_GPU_REASON_CUPTI));
    EXPECT_EQ(last().result, 999);
    EXPECT_FALSE(guest_->is_alive());
    cupti_.enable_result = SUCCESS;
    for (int i = 0; i < 10; ++i)
        guest_->poll();
    take();
    EXPECT_EQ(received_.states.size(), 1U);
    EXPECT_EQ(cupti_.enables, 1);

    guest_ = std::make_unique<Guest>(FakeCupti::load);
    guest_of_callbacks = guest_.get();
    cupti_.register_result = 1;
    poll_until(CW_GPU_FAILED);
    EXPECT_EQ(last().result, 1);
    EXPECT_EQ(cupti_.enables, 1);
}

TEST_F(CuptiGuest, AnErrorWithinATraceEndsItForGood) {
    for (std::atomic<Result> *result : {&cupti_.flush_result, &cupti_.disable_result}) {
        guest_ = std::make_unique<Guest>(FakeCupti::load);
        guest_of_callbacks = guest_.get();
        arm();
        cupti_.run_kernels(3, ALL_REDUCE);
        *result = 999;
        want_trace(false);
        poll_until(CW_GPU_FAILED);
        EXPECT_EQ(last().result, 999);
        EXPECT_EQ(last().reason, static_cast<__u32>(CW_GPU_REASON_CUPTI));
        EXPECT_FALSE(guest_->is_alive());
        EXPECT_FALSE(cupti_.is_enabled());
        EXPECT_EQ(received_.kernels.size(), 3U);
        EXPECT_EQ(last().memory_bytes, 0U);
        *result = SUCCESS;
    }
}

} // namespace
} // namespace collwire::cupti
