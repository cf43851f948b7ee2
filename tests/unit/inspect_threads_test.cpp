// SPDX-License-Identifier: Apache-2.0
// Threads and cgroups, from /proc and from texts.
#include <sys/syscall.h>
#include <unistd.h>

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <semaphore>
#include <thread>

#include <gtest/gtest.h>

#include "userspace/inspect/thread_number.h"
#include "userspace/inspect/threads.h"

namespace collwire::inspect {
namespace {

TEST(Threads, Schedstat) {
    const auto times = parse_schedstat("123456 789 42\n");
    ASSERT_TRUE(times);
    EXPECT_EQ(times->run_ns, 123456U);
    EXPECT_EQ(times->runnable_ns, 789U);
    for (const char *text : {"", "1", "x 2 3", "-1 2 3"})
        EXPECT_FALSE(parse_schedstat(text)) << text;
}

TEST(Threads, KernelStack) {
    const auto stack = parse_kernel_stack("[<0>] nfs_wait_bit_killable+0x1e/0x90 [nfs]\n"
                                          "[<0>] out_of_line_wait_on_bit+0x91/0xb0\n\n");
    EXPECT_EQ(stack,
              (std::vector<std::string>{"nfs_wait_bit_killable", "out_of_line_wait_on_bit"}));
    EXPECT_TRUE(parse_kernel_stack("").empty());
}

TEST(Threads, CpuStat) {
    const auto second = parse_cpu_stat("usage_usec 5\nnr_periods 9\nnr_throttled 3\n"
                                       "throttled_usec 20\n");
    ASSERT_TRUE(second);
    EXPECT_EQ(second->periods, 3U);
    EXPECT_EQ(second->throttled_ns, 20'000U);
    const auto first = parse_cpu_stat("nr_periods 9\nnr_throttled 3\nthrottled_time 77\n");
    ASSERT_TRUE(first);
    EXPECT_EQ(first->throttled_ns, 77U);
    EXPECT_FALSE(parse_cpu_stat("usage_usec 5\nuser_usec 5\n"));
}

TEST(Threads, ThrottlingIsThatOfTheMostThrottledCgroup) {
    const auto most =
        throttling_between({{"/a", {1, 100}}, {"/a/b", {1, 100}}, {"/gone", {0, 0}}},
                           {{"/a", {4, 900}}, {"/a/b", {2, 200}}, {"/new", {9, 9999}}});
    ASSERT_TRUE(most);
    EXPECT_EQ(most->cgroup, "/a");
    EXPECT_EQ(most->periods, 3U);
    EXPECT_EQ(most->throttled_ns, 800U);
    EXPECT_FALSE(throttling_between({}, {{"/a", {1, 1}}}));
}

// A thread that sits still until the test is over.
class Sitting {
public:
    Sitting()
        : thread_([this] {
              tid_ = static_cast<std::uint32_t>(syscall(SYS_gettid));
              ready_.release();
              end_.acquire();
          }) {
        ready_.acquire();
    }
    ~Sitting() {
        end_.release();
        thread_.join();
    }
    [[nodiscard]] std::uint32_t tid() const { return tid_; }
    [[nodiscard]] std::uint64_t pthread() {
        return static_cast<std::uint64_t>(thread_.native_handle());
    }

private:
    std::uint32_t tid_ = 0;
    std::binary_semaphore ready_{0}, end_{0};
    std::thread thread_;
};

TEST(Threads, NumberOfAPthread) {
    Sitting sitting;
    const process::ProcessView self{getpid()};
    const auto numbers = thread_numbers(getpid());
    EXPECT_EQ(thread_number(self, numbers, sitting.pthread()), sitting.tid());
    EXPECT_EQ(thread_number(self, numbers, static_cast<std::uint64_t>(pthread_self())),
              static_cast<std::uint32_t>(syscall(SYS_gettid)));
    EXPECT_EQ(thread_number(self, numbers, 0), 0U);
    EXPECT_EQ(thread_number(self, numbers, 8), 0U);
    const std::uint64_t other = 0;
    EXPECT_EQ(thread_number(self, numbers, reinterpret_cast<std::uint64_t>(&other)), 0U);
}

// In a pid namespace that has started 32,000 tasks, upper halves of pointers are numbers of
// threads.
TEST(Threads, NumberOfAnotherThreadInAStructPthread) {
    constexpr std::size_t WORDS = 576;
    Sitting sitting;
    const process::ProcessView self{getpid()};
    std::array<std::uint32_t, WORDS> words{};
    words.fill(sitting.tid());
    const auto pthread = reinterpret_cast<std::uint64_t>(words.data());
    std::memcpy(&words[4], &pthread, sizeof(pthread));
    auto numbers = thread_numbers(getpid());
    ASSERT_FALSE(numbers.by_robust_list.empty());
    EXPECT_EQ(thread_number(self, numbers, pthread), 0U) << "no thread has its list in there";
    const auto first = words.begin() + 176;
    std::fill(first, first + 4, sitting.tid());
    words[180] = 1;
    numbers.by_robust_list.clear(); // not permitted
    numbers.by_inner.erase(1);
    EXPECT_EQ(thread_number(self, numbers, pthread), 0U) << "it is not at its place";
    EXPECT_EQ(thread_number(self, numbers, sitting.pthread()), sitting.tid());
}

TEST(Threads, OwnThreads) {
    Sitting sitting;
    const auto pid = static_cast<std::uint32_t>(getpid());
    const auto before = thread_times("", pid);
    std::uint32_t n = 0;
    const auto threads = read_threads("", pid, {{sitting.tid(), "progress"}}, before, n);
    EXPECT_GE(n, 2U);
    ASSERT_GE(threads.size(), 2U);
    EXPECT_EQ(threads[0].tid, pid);
    EXPECT_EQ(threads[0].role, "main");
    const auto found = std::ranges::find(threads, sitting.tid(), &Thread::tid);
    ASSERT_NE(found, threads.end());
    EXPECT_EQ(found->role, "progress");
    EXPECT_TRUE(found->state == 'S' || found->state == 'R') << found->state;
}

TEST(Threads, ExitedProcessHasNoThreads) {
    std::uint32_t n = 7;
    EXPECT_TRUE(read_threads("", 4'194'305, {}, {}, n).empty());
    EXPECT_EQ(n, 0U);
    EXPECT_TRUE(thread_times("", 4'194'305).empty());
    EXPECT_TRUE(throttled_times("", 4'194'305).empty());
}

} // namespace
} // namespace collwire::inspect
