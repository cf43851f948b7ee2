// SPDX-License-Identifier: Apache-2.0
// When posts were counted, against the times of a process that posts without a pause.
#include <atomic>

#include <sys/mman.h>

#include "base/clock.h"
#include "tests/root/posts_chains.h"

namespace collwire::test {
namespace {

// As many as it takes until there are enough records: the recorder may wait for a CPU.
constexpr std::uint64_t LEAST_POSTS = 20'000, MOST_POSTS = 2'000'000;

struct PostTimes {
    std::atomic<std::uint64_t> begun = 0;
    std::atomic<bool> is_enough = false;
    std::uint64_t begun_ns[MOST_POSTS] = {};
};
PostTimes *times = nullptr; // shared with the child

std::uint64_t make_one_qp(ChildState &state, std::uint64_t qpn) {
    return reinterpret_cast<std::uint64_t>(&state.add_qp(static_cast<std::uint32_t>(qpn), false));
}

std::uint64_t post_without_pause(ChildState &state, std::uint64_t) {
    for (std::uint64_t i = 0; i < MOST_POSTS && (i < LEAST_POSTS || !times->is_enough); ++i) {
        times->begun_ns[i] = monotonic_ns();
        times->begun.store(i + 1, std::memory_order_release);
        post_chain(state, *state.qps[0], CHAINS[1]);
    }
    return state.qps[0]->posts;
}

// Bytes in a record that were posted after its time would seem to be of no operation.
TEST(PostTimes, NothingIsCountedThatWasPostedAfterTheTimeOfItsRecord) {
    if (const std::string reason = no_bpf_because(); !reason.empty())
        GTEST_SKIP() << reason;
    void *shared =
        mmap(nullptr, sizeof(PostTimes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    times = new (shared) PostTimes;
    {
        Child child{FAKE_PROVIDER_1};
        PostsRecorder recorder{sources::PostsOptions{}};
        recorder.see_qp(child.pid(), child.run(make_one_qp, 5));
        child.start(post_without_pause);
        for (std::uint64_t begun = 0;
             begun < MOST_POSTS && (begun < LEAST_POSTS || recorder.n_post_records <= 10);
             begun = times->begun.load(std::memory_order_acquire))
            recorder.sample();
        times->is_enough = true;
        const std::uint64_t posts = child.result();
        EXPECT_GE(posts, LEAST_POSTS);
        recorder.sample();
        EXPECT_EQ(recorder.counters(child.pid(), 5).posts, posts);
        EXPECT_GT(recorder.n_post_records, 10u);
        for (const auto &[time_ns, counters] : recorder.counted) {
            ASSERT_GT(counters.posts, 0u);
            EXPECT_GE(time_ns, times->begun_ns[counters.posts - 1]) << counters.posts;
            EXPECT_GE(counters.last_ns, times->begun_ns[counters.posts - 1]) << counters.posts;
        }
    }
    munmap(shared, sizeof(PostTimes));
}

} // namespace
} // namespace collwire::test
