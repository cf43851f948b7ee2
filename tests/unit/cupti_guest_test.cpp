// SPDX-License-Identifier: Apache-2.0
// The traces of a guest: armed, disarmed, drained, and what is left of them.
#include "cupti_guest_fixture.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <sys/mman.h>

namespace collwire::cupti {

// In the place of injection.cpp's.
void on_request(uint8_t **buffer, size_t *bytes, size_t *max_records) {
    guest_of_callbacks->lend(buffer, bytes, max_records);
}

void on_completed(void *, uint32_t, uint8_t *buffer, size_t, size_t valid_bytes) {
    guest_of_callbacks->take_back(buffer, valid_bytes);
}

void on_exit_of_process() {}

namespace {

bool is_mapped(uint8_t *page) {
    unsigned char is_resident = 0;
    return mincore(page, 1, &is_resident) == 0 || errno != ENOMEM;
}

uint64_t virtual_bytes() {
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    EXPECT_TRUE(file &&
                fscanf(file, "%lu", &pages) == 1); // NOLINT(cert-err34-c): the kernel's number
    fclose(file);
    return pages * 4096;
}

TEST_F(CuptiGuest, TouchesNothingWhileNoRecorderWantsATrace) {
    for (int i = 0; i < 100; ++i)
        guest_->poll();
    take();
    EXPECT_TRUE(received_.states.empty());
    EXPECT_EQ(cupti_.subscriptions + cupti_.registrations + cupti_.enables, 0);
    EXPECT_TRUE(guest_->is_alive());
}

TEST_F(CuptiGuest, ArmsAndDisarmsWithTheTimesOfTheCalls) {
    const uint64_t before_ns = monotonic_ns();
    arm();
    EXPECT_TRUE(cupti_.is_enabled());
    EXPECT_EQ(last().result, SUCCESS);
    EXPECT_EQ(last().reason, static_cast<__u32>(CW_GPU_REASON_NONE));
    EXPECT_EQ(last().cupti_version, 130001U);
    EXPECT_EQ(last().memory_bytes, static_cast<__u64>(CW_GPU_BUFFER_BYTES));
    EXPECT_LE(before_ns, last().begin_ns);
    EXPECT_LE(last().begin_ns, last().end_ns);
    EXPECT_LE(last().end_ns, monotonic_ns());
    EXPECT_EQ(cupti_.period_ms, 50U);
    guest_->poll();
    EXPECT_EQ(cupti_.enables, 1);

    const uint64_t disarm_ns = monotonic_ns();
    cupti_.run_kernels(100, ALL_REDUCE);
    cupti_.run_kernels(20, "at_kernel");
    want_trace(false);
    poll_until(CW_GPU_DISARMED);
    EXPECT_FALSE(cupti_.is_enabled());
    EXPECT_EQ(received_.states.size(), 1U);
    EXPECT_EQ(received_.kernels.size(), 100U);
    EXPECT_EQ(last().kernels, 100U);
    EXPECT_EQ(last().other_kernels, 20U);
    EXPECT_EQ(last().memory_bytes, 0U);
    EXPECT_LE(disarm_ns, last().begin_ns);
    EXPECT_LE(last().begin_ns, last().end_ns);
    EXPECT_FALSE(received_.windows.empty());
    EXPECT_EQ(cupti_.held_buffers(), 0U);
    EXPECT_EQ(cupti_.period_ms, 0U);
    EXPECT_EQ(cupti_.finalizes, 1); // else each node of a graph goes on to cost more
    EXPECT_TRUE(guest_->is_alive());
}

TEST_F(CuptiGuest, FlushesEachSecondWhileArmed) {
    arm();
    cupti_.run_kernels(10, ALL_REDUCE);
    const uint64_t begin_ns = monotonic_ns();
    poll_until(CW_GPU_RUNNING);
    EXPECT_GE(monotonic_ns() - begin_ns, 500'000'000U);
    EXPECT_EQ(received_.kernels.size(), 10U);
    EXPECT_EQ(last().kernels, 10U);
    EXPECT_GT(last().clock_error_ns, 0U);
    EXPECT_TRUE(cupti_.is_enabled());
}

TEST_F(CuptiGuest, WaitsForKernelsThatRunWhenItDisarms) {
    arm();
    cupti_.run_kernels(5, ALL_REDUCE);
    cupti_.keeps_buffers = true;
    want_trace(false);
    guest_->poll();
    guest_->poll();
    take();
    EXPECT_EQ(received_.kernels.size(), 0U);
    EXPECT_FALSE(cupti_.is_enabled());
    cupti_.keeps_buffers = false;
    const uint64_t back_ns = monotonic_ns();
    poll_until(CW_GPU_DISARMED);
    EXPECT_EQ(received_.kernels.size(), 5U);
    // The times are those of the call that disarmed.
    EXPECT_NE(last().begin_ns, 0U);
    EXPECT_LE(last().begin_ns, last().end_ns);
    EXPECT_LT(last().end_ns, back_ns);
    EXPECT_EQ(last().memory_bytes, 0U);
}

TEST_F(CuptiGuest, FetchesKernelsThatRunOnAfterASecond) {
    arm();
    cupti_.run_kernels(5, ALL_REDUCE);
    cupti_.keeps_buffers = true;
    want_trace(false);
    const uint64_t begin_ns = monotonic_ns();
    poll_until(CW_GPU_DISARMED);
    EXPECT_GE(monotonic_ns() - begin_ns, 1'000'000'000U);
    EXPECT_EQ(received_.kernels.size(), 5U);
    EXPECT_EQ(cupti_.finalizes, 0); // it may wait for these kernels
    EXPECT_EQ(last().memory_bytes, 0U);
}

TEST_F(CuptiGuest, ARequestWhileItDrainsArmsAgainAfterwards) {
    arm();
    cupti_.run_kernels(5, ALL_REDUCE);
    cupti_.keeps_buffers = true;
    want_trace(false);
    guest_->poll();
    want_trace(true);
    guest_->poll();
    EXPECT_FALSE(cupti_.is_enabled());
    cupti_.keeps_buffers = false;
    poll_until(CW_GPU_ARMED);
    ASSERT_EQ(received_.states.size(), 2U);
    EXPECT_EQ(received_.states[0].state, static_cast<__u32>(CW_GPU_DISARMED));
    EXPECT_EQ(received_.kernels.size(), 5U);
    cupti_.run_kernels(3, ALL_REDUCE);
    want_trace(false);
    poll_until(CW_GPU_DISARMED);
    EXPECT_EQ(received_.kernels.size(), 3U);
    EXPECT_EQ(last().kernels, 8U);
}

// CUPTI holds a buffer for longer than the guest waits, and returns it late.
TEST_F(CuptiGuest, ABufferThatCuptiKeepsIsReadLateAndItsMemoryGivenBack) {
    arm();
    const uint64_t armed_bytes = virtual_bytes();
    cupti_.run_kernels(5, ALL_REDUCE, 10'000);
    cupti_.keeps_buffers_always = true;
    want_trace(false);
    poll_until(CW_GPU_DISARMED);
    EXPECT_EQ(received_.kernels.size(), 0U);
    EXPECT_EQ(last().memory_bytes, static_cast<__u64>(CW_GPU_BUFFER_BYTES));
    EXPECT_EQ(cupti_.held_buffers(), 1U);
    uint8_t *buffer = *cupti_.buffers().begin();
    EXPECT_TRUE(is_mapped(buffer));
    // The windows, too: whoever reads that buffer adds to them.
    EXPECT_GT(virtual_bytes() + Windows::bytes() / 2, armed_bytes);

    cupti_.keeps_buffers_always = false;
    arm(); // flushes at the end, and the late buffer comes along
    cupti_.run_kernels(2, ALL_REDUCE);
    want_trace(false);
    poll_until(CW_GPU_DISARMED);
    EXPECT_EQ(received_.kernels.size(), 7U);
    EXPECT_EQ(last().memory_bytes, 0U);
    EXPECT_FALSE(is_mapped(buffer));
}

TEST_F(CuptiGuest, ABufferThatComesWhileItIsDormantIsGivenBackWithTheRest) {
    arm();
    cupti_.run_kernels(5, ALL_REDUCE, 10'000);
    cupti_.keeps_buffers_always = true;
    want_trace(false);
    poll_until(CW_GPU_DISARMED);
    uint8_t *buffer = *cupti_.buffers().begin();
    cupti_.keeps_buffers_always = false;
    Functions functions = {};
    uint32_t api_version = 0;
    ASSERT_TRUE(FakeCupti::load(functions, api_version, false));
    functions.flush_all(FLUSH_FORCED); // another tool's
    take();
    EXPECT_EQ(received_.kernels.size(), 5U);
    EXPECT_TRUE(is_mapped(buffer));
    guest_->poll();
    EXPECT_FALSE(is_mapped(buffer));
}

TEST_F(CuptiGuest, AFullTableOfBuffersIsCountedAsLackingAndDropped) {
    arm();
    constexpr int HELD = 64 * static_cast<int>(Buffers::BUFFER_BYTES / 216);
    cupti_.run_kernels(HELD + 7, ALL_REDUCE);
    want_trace(false);
    poll_until(CW_GPU_DISARMED);
    EXPECT_EQ(received_.kernels.size(), static_cast<size_t>(HELD));
    EXPECT_EQ(last().buffers_lacking, 7U);
    EXPECT_EQ(last().dropped, 7U);
}

TEST_F(CuptiGuest, ARecorderThatComesLaterGetsTheNames) {
    arm();
    cupti_.run_kernels(4, ALL_REDUCE);
    poll_until(CW_GPU_RUNNING);
    ASSERT_EQ(received_.names.size(), 1U);
    const cw_gpu_name_item name = received_.names.front();
    guest_->poll();
    take();
    EXPECT_EQ(received_.names.size(), 1U);
    want_traces(2);
    guest_->poll();
    take();
    ASSERT_EQ(received_.names.size(), 2U);
    EXPECT_EQ(received_.names.back().name, name.name);
    EXPECT_STREQ(received_.names.back().text, ALL_REDUCE);
    want_traces(1);
    guest_->poll();
    take();
    EXPECT_EQ(received_.names.size(), 2U);
}

TEST_F(CuptiGuest, HandsOverEverythingWhenTheProcessExits) {
    arm();
    cupti_.run_kernels(9, ALL_REDUCE);
    cupti_.keeps_buffers = true;
    guest_->at_exit();
    take();
    EXPECT_EQ(last().state, static_cast<__u32>(CW_GPU_EXITING));
    EXPECT_EQ(last().kernels, 9U);
    EXPECT_EQ(received_.kernels.size(), 9U);
    EXPECT_FALSE(received_.windows.empty());
    EXPECT_FALSE(guest_->is_alive());
    const int calls = cupti_.enables + cupti_.disables + cupti_.subscriptions;
    want_trace(false);
    for (int i = 0; i < 10; ++i)
        guest_->poll();
    want_trace(true);
    guest_->poll();
    guest_->yield("cuptiFinalize");
    EXPECT_EQ(cupti_.enables + cupti_.disables + cupti_.subscriptions, calls);
    EXPECT_EQ(cupti_.finalizes, 0);
}

TEST_F(CuptiGuest, SaysNothingAtTheEndOfAProcessThatWasNeverTraced) {
    guest_->at_exit();
    take();
    EXPECT_TRUE(received_.states.empty());
    EXPECT_FALSE(guest_->is_alive());
}

TEST_F(CuptiGuest, AThousandTracesLeaveNoMemoryMapped) {
    const auto trace = [&] {
        arm();
        cupti_.run_kernels(3, ALL_REDUCE);
        want_trace(false);
        poll_until(CW_GPU_DISARMED);
        ASSERT_EQ(last().memory_bytes, 0U);
        ASSERT_EQ(received_.kernels.size(), 3U);
        guest_->poll(); // sees that no trace is wanted: the next one comes at once
    };
    trace();
    const uint64_t before = virtual_bytes();
    for (int i = 1; i < 1'000; ++i)
        ASSERT_NO_FATAL_FAILURE(trace()) << i;
    EXPECT_EQ(last().kernels, 3'000U);
    EXPECT_EQ(cupti_.enables, 1'000);
    EXPECT_EQ(cupti_.disables, 1'000);
    // Less than the buffers of a single trace.
    EXPECT_LT(virtual_bytes(), before + Buffers::BUFFER_BYTES * Buffers::COUNT / 2);
    for (uint8_t *buffer : cupti_.buffers())
        EXPECT_FALSE(is_mapped(buffer));
}

// The program launches kernels and another tool asks for records, both while traces come and go.
TEST_F(CuptiGuest, ThreadsOfTheProgramGoOnWhileTracesComeAndGo) {
    std::atomic<bool> is_over = false;
    uint64_t kernels = 0;
    {
        std::jthread program([&] {
            while (!is_over)
                cupti_.run_kernels(5, ALL_REDUCE);
        });
        std::jthread other([&] {
            while (!is_over) {
                guest_->yield("cuptiActivityEnable");
                for (int i = 0; i < 100; ++i)
                    std::this_thread::yield();
            }
        });
        received_ = {};
        for (int round = 0; round < 300; ++round) {
            want_trace(true);
            guest_->poll();
            want_trace(false);
            guest_->poll();
            guest_->poll();
            const Received received = take_received();
            kernels += received.kernels.size();
            received_.states.insert(received_.states.end(), received.states.begin(),
                                    received.states.end());
        }
        is_over = true;
    }
    guest_->poll();
    const Received received = take_received();
    kernels += received.kernels.size();
    received_.states.insert(received_.states.end(), received.states.begin(), received.states.end());
    EXPECT_FALSE(cupti_.is_enabled());
    EXPECT_EQ(cupti_.enables, cupti_.disables);
    EXPECT_GT(cupti_.enables, 10);
    EXPECT_TRUE(guest_->is_alive());
    guest_->poll();
    EXPECT_EQ(cupti_.held_buffers(), 0U);
    ASSERT_FALSE(received_.states.empty());
    EXPECT_EQ(last().kernels, kernels);
}

} // namespace
} // namespace collwire::cupti
