// SPDX-License-Identifier: Apache-2.0
#include "cupti/nccl_profiler_mask.h"

#include "cupti/nccl_profiler_abi.h"

#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

namespace collwire::cupti {
namespace {

constexpr uint64_t MS = 1'000'000;
constexpr int KERNELS = nccl::KERNEL_CHANNEL;

class NcclProfilerMask : public testing::Test {
protected:
    // As NCCL's event at the end of a group, and what the plugin does then.
    void close(uint64_t now_ns) {
        if (mask_.group_closed(now_ns))
            mask_.change(now_ns);
    }
    [[nodiscard]] bool has_kernels() const { return (word_ & KERNELS) != 0; }

    std::unique_ptr<ProfilerMask> owned_ = std::make_unique<ProfilerMask>();
    ProfilerMask &mask_ = *owned_;
    int word_ = 0x1234;
    uint64_t now_ns_ = 1'000 * MS;
};

TEST_F(NcclProfilerMask, IsZeroUntilARecorderWantsATrace) {
    mask_.add(&word_, 5);
    EXPECT_EQ(word_, 0);
    mask_.poll(now_ns_ + 10'000 * MS);
    EXPECT_EQ(word_, 0);
}

TEST_F(NcclProfilerMask, TheFirstCommunicatorHasItsMaskAtOnce) {
    mask_.want(true, now_ns_);
    mask_.add(&word_, 7);
    EXPECT_TRUE(has_kernels() && mask_.is_on());
}

TEST_F(NcclProfilerMask, NeverChangesWhileAGroupIsOpen) {
    mask_.add(&word_, 5);
    mask_.want(true, now_ns_);
    EXPECT_EQ(word_, nccl::GROUP_API);
    mask_.group_opened(now_ns_ += 60 * MS);
    std::thread([&] {
        mask_.group_opened(now_ns_);
        close(now_ns_); // that of the other thread is open
    }).join();
    EXPECT_FALSE(has_kernels());
    mask_.poll(now_ns_ += 1'000 * MS);
    EXPECT_FALSE(has_kernels()) << "quiet, but a group is open";
    mask_.group_opened(now_ns_); // NCCL tells it again within a large group
    close(now_ns_ += MS);
    EXPECT_TRUE(has_kernels());
    mask_.group_opened(now_ns_);
    mask_.want(false, now_ns_);
    mask_.poll(now_ns_ += 1'000 * MS);
    EXPECT_TRUE(has_kernels());
    close(now_ns_);
    EXPECT_EQ(word_, 0);
    EXPECT_TRUE(mask_.is_off());
}

TEST_F(NcclProfilerMask, WaitsForGroupsThatWereOpenBeforeItAskedForThem) {
    mask_.add(&word_, 5);
    mask_.want(true, now_ns_);
    mask_.group_opened(now_ns_ += MS);
    close(now_ns_);
    EXPECT_FALSE(has_kernels());
    mask_.group_opened(now_ns_ += ProfilerMask::FIRST_EVENTS_NS);
    close(now_ns_);
    EXPECT_TRUE(has_kernels());
}

TEST_F(NcclProfilerMask, ChangesByItselfWhereNothingRuns) {
    mask_.add(&word_, 3);
    mask_.want(true, now_ns_);
    EXPECT_EQ(word_, nccl::GROUP);
    mask_.poll(now_ns_ + ProfilerMask::QUIET_NS - 1);
    EXPECT_FALSE(has_kernels());
    mask_.poll(now_ns_ += ProfilerMask::QUIET_NS);
    EXPECT_TRUE(has_kernels());
    mask_.want(false, now_ns_);
    mask_.poll(now_ns_ += ProfilerMask::QUIET_NS);
    EXPECT_EQ(word_, 0);
}

TEST_F(NcclProfilerMask, OldLibrariesChangeAtALaunchOfTheirOnlyThread) {
    mask_.add(&word_, 4);
    mask_.want(true, now_ns_);
    EXPECT_TRUE(mask_.plan_started(now_ns_ += MS));
    mask_.change(now_ns_);
    EXPECT_TRUE(has_kernels());
    mask_.want(false, now_ns_);
    std::thread([&] { EXPECT_FALSE(mask_.plan_started(now_ns_ += MS)); }).join();
    EXPECT_TRUE(mask_.is_refused());
    EXPECT_TRUE(has_kernels());
}

TEST_F(NcclProfilerMask, NewLibrariesAreTracedFromTheirFirstCommunicatorAlone) {
    mask_.add(&word_, 7);
    mask_.want(true, now_ns_);
    EXPECT_TRUE(mask_.is_late());
    mask_.poll(now_ns_ += 10 * ProfilerMask::QUIET_NS);
    EXPECT_EQ(word_, 0);
    EXPECT_FALSE(mask_.is_on());
    mask_.want(false, now_ns_);
    mask_.poll(now_ns_);
    EXPECT_TRUE(mask_.is_off());
    mask_.remove(&word_);
    EXPECT_FALSE(mask_.is_late());
}

TEST_F(NcclProfilerMask, AnAbandonedWishLeavesZero) {
    mask_.add(&word_, 5);
    mask_.want(true, now_ns_);
    mask_.group_opened(now_ns_);
    mask_.want(false, now_ns_);
    mask_.poll(now_ns_);
    EXPECT_EQ(word_, 0);
}

TEST_F(NcclProfilerMask, ALibraryWhoseCommunicatorsEndedIsForgotten) {
    mask_.want(true, now_ns_);
    mask_.add(&word_, 5);
    mask_.add(&word_, 5);
    mask_.remove(&word_);
    EXPECT_TRUE(mask_.is_on());
    mask_.remove(&word_);
    EXPECT_EQ(word_, 0);
    word_ = 77;
    mask_.want(false, now_ns_);
    mask_.poll(now_ns_ + 10'000 * MS);
    EXPECT_EQ(word_, 77);
}

} // namespace
} // namespace collwire::cupti
