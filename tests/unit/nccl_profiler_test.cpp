// SPDX-License-Identifier: Apache-2.0
#include "cupti/nccl_profiler.h"

#include "collwire/nccl_launch_records.h"
#include "cupti/clock.h"
#include "cupti_received.h"

#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace collwire::cupti {
namespace {

constexpr uint64_t GPU_AHEAD_NS = 1'700'000'000'000'000'000;

// NCCL in the process: a communicator, and its events in NCCL's order.
class NcclProfilerTest : public testing::TestWithParam<int> {
protected:
    void SetUp() override { take_received(); }

    void begin_comm() {
        profiler_.note_use();
        profiler_.poll(wants_, CW_GPU_YIELDED);
        profiler_.init(version(), &context_, &mask_, 0xabcd, 3);
    }
    void want(bool wants) {
        wants_ = wants;
        profiler_.poll(wants_, CW_GPU_YIELDED);
    }
    void poll() { profiler_.poll(wants_, CW_GPU_YIELDED); }
    // The guest holds records for half a second.
    Received poll_until_channels(size_t n) {
        Received all;
        const uint64_t limit_ns = monotonic_ns() + 30'000'000'000;
        while (all.channels.size() < n && monotonic_ns() < limit_ns) {
            std::this_thread::yield();
            poll();
            const Received more = take_received();
            all.channels.insert(all.channels.end(), more.channels.begin(), more.channels.end());
            all.profilers.insert(all.profilers.end(), more.profilers.begin(), more.profilers.end());
        }
        return all;
    }
    static int version() { return GetParam(); }
    static bool is_old() { return version() == 3; }

    void *start(uint64_t type, void *parent, nccl::Description event = {}) {
        event.type = type;
        event.parent = parent;
        event.rank = 3;
        void *handle = &event; // of the event before
        profiler_.start(version(), context_, &handle, event);
        return handle;
    }

    // An operation on two channels. Returns the handles of its channels.
    std::vector<void *> launch(uint64_t count) {
        void *group_api = version() >= 5 ? start(nccl::GROUP_API, nullptr) : nullptr;
        if (version() >= 5)
            start(nccl::KERNEL_LAUNCH, group_api);
        void *group = start(nccl::GROUP, nullptr);
        EXPECT_EQ(group != nullptr, version() < 5 && mask_ != 0);
        nccl::Description event = {};
        if (is_old()) {
            event.collective_v3.comm_hash = 0xabcd;
            event.collective_v3.function = "AllReduce";
            event.collective_v3.count = count;
            event.collective_v3.sequence = 11;
        } else {
            event.collective = {11, "AllReduce", nullptr, nullptr, count, 0, "ncclFloat32", 2};
        }
        void *task = start(nccl::COLLECTIVE, group, event);
        profiler_.stop(task);
        if (group)
            profiler_.stop(group);
        if (group_api)
            profiler_.stop(group_api);
        std::vector<void *> channels;
        for (uint8_t channel = 0; channel < 2; ++channel) {
            nccl::Description kernel = {};
            kernel.kernel = {channel, monotonic_ns() + GPU_AHEAD_NS};
            channels.push_back(start(nccl::KERNEL_CHANNEL, task, kernel));
        }
        return channels;
    }
    void end(const std::vector<void *> &channels) {
        for (void *channel : channels) {
            const nccl::StateArguments arguments = {monotonic_ns() + GPU_AHEAD_NS};
            profiler_.record(version(), channel, nccl::KERNEL_CHANNEL_STOP, &arguments);
            profiler_.stop(channel);
        }
    }

    std::unique_ptr<NcclProfiler> owned_ = std::make_unique<NcclProfiler>();
    NcclProfiler &profiler_ = *owned_;
    void *context_ = nullptr;
    int mask_ = 99;
    bool wants_ = false;
};

TEST_P(NcclProfilerTest, HandsOverEachChannelWithItsOperation) {
    wants_ = true;
    const uint64_t before_ns = monotonic_ns();
    begin_comm();
    EXPECT_NE(mask_ & static_cast<int>(nccl::KERNEL_CHANNEL), 0) << "not armed for the first one";
    poll();
    end(launch(1000));
    end(launch(2000));
    const Received received = poll_until_channels(4);
    ASSERT_EQ(received.profilers.size(), 1U);
    EXPECT_EQ(received.profilers[0].state, CW_GPU_ARMED);
    EXPECT_EQ(received.profilers[0].cupti_state, CW_GPU_YIELDED);
    EXPECT_EQ(received.profilers[0].api_version, static_cast<uint32_t>(version()));
    ASSERT_EQ(received.channels.size(), 4U);
    std::set<uint64_t> plans;
    for (size_t i = 0; i < 4; ++i) {
        const cw_gpu_channel_item &item = received.channels[i];
        EXPECT_EQ(item.comm_hash, 0xabcdU);
        EXPECT_EQ(item.rank, 3U);
        EXPECT_EQ(item.channel, i % 2);
        EXPECT_EQ(item.count, i < 2 ? 1000U : 2000U);
        EXPECT_EQ(item.sequence, 11U);
        EXPECT_EQ(item.func, CW_NCCL_ALL_REDUCE);
        EXPECT_EQ(item.source, CW_GPU_SOURCE_PROFILER);
        EXPECT_EQ(item.flags, is_old() ? CW_GPU_CHANNEL_SEEN : 0);
        EXPECT_EQ(item.launch_ns != 0, version() >= 5);
        EXPECT_GE(item.start_ns, before_ns);
        EXPECT_LE(item.start_ns, item.end_ns);
        EXPECT_LE(item.end_ns, monotonic_ns());
        EXPECT_LE(item.posted_ns, item.end_ns);
        plans.insert(item.plan);
    }
    EXPECT_EQ(plans.size(), 2U);
}

TEST_P(NcclProfilerTest, IgnoresEventsWithoutATrace) {
    begin_comm();
    EXPECT_EQ(mask_, 0);
    // A graph that was captured in an earlier trace goes on with its events.
    for (void *channel : launch(1))
        EXPECT_EQ(channel, nullptr);
    poll();
    const Received received = take_received();
    EXPECT_TRUE(received.batches.empty());
}

TEST_P(NcclProfilerTest, AKernelThatRunsOnIsHandedOverWithoutAnEnd) {
    wants_ = true;
    begin_comm();
    poll();
    const std::vector<void *> running = launch(5);
    want(false);
    // Nothing is issued any more: the mask changes by itself.
    for (int i = 0; i < 300 && profiler_.is_active(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        poll();
    }
    ASSERT_FALSE(profiler_.is_active());
    EXPECT_EQ(mask_, 0);
    end(running);
    poll();
    const Received received = take_received();
    ASSERT_EQ(received.channels.size(), 2U);
    for (const cw_gpu_channel_item &item : received.channels) {
        EXPECT_EQ(item.end_ns, 0U);
        EXPECT_NE(item.flags & CW_GPU_CHANNEL_RUNNING, 0);
    }
    EXPECT_EQ(received.profilers.back().state, CW_GPU_DISARMED);
    EXPECT_EQ(received.profilers.back().memory_bytes, 0U);
}

TEST_P(NcclProfilerTest, AFullTableDropsAndCounts) {
    wants_ = true;
    begin_comm();
    poll();
    constexpr size_t MORE = 100;
    for (size_t i = 0; i < NcclProfiler::KERNELS / 2 + MORE; ++i)
        end(launch(i));
    poll();
    profiler_.at_exit();
    const Received received = take_received();
    EXPECT_EQ(received.channels.size(), NcclProfiler::KERNELS);
    EXPECT_EQ(received.profilers.back().state, CW_GPU_EXITING);
    EXPECT_EQ(received.profilers.back().dropped, 2 * MORE);
    EXPECT_EQ(received.profilers.back().orphans, 0U);
}

TEST_P(NcclProfilerTest, ThreadsStartAndStopWhileTheGuestHandsOver) {
    wants_ = true;
    begin_comm();
    poll();
    constexpr int THREADS = 4, LAUNCHES = 2000;
    std::atomic<int> running = THREADS;
    std::vector<std::thread> threads;
    threads.reserve(THREADS);
    for (int i = 0; i < THREADS; ++i)
        threads.emplace_back([&] {
            for (int n = 0; n < LAUNCHES; ++n)
                end(launch(static_cast<uint64_t>(n)));
            --running;
        });
    while (running != 0)
        poll();
    for (std::thread &thread : threads)
        thread.join();
    poll();
    poll();
    profiler_.at_exit();
    const Received received = take_received();
    EXPECT_EQ(received.channels.size() + received.profilers.back().dropped,
              size_t{2} * THREADS * LAUNCHES);
    for (const cw_gpu_channel_item &item : received.channels)
        ASSERT_LE(item.start_ns, item.end_ns);
}

INSTANTIATE_TEST_SUITE_P(Versions, NcclProfilerTest, testing::Range(3, 8));

} // namespace
} // namespace collwire::cupti
