// SPDX-License-Identifier: Apache-2.0
// Processes that end while they are looked at.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "userspace/process/process_view.h"

namespace collwire::process {
namespace {

TEST(ProcessView, IsItsOwn) {
    ProcessView view{getpid()};
    ASSERT_TRUE(view.refresh());
    const auto *here = view.mapping_of(reinterpret_cast<std::uint64_t>(&rdma_processes));
    ASSERT_NE(here, nullptr);
    EXPECT_TRUE(here->executable);
    EXPECT_TRUE(start_ticks(getpid()));
}

// Linux 5.10 answers ESRCH in the middle of a file of /proc whose process has ended.
TEST(ProcessView, ThatEndsIsAnErrorAndNoMore) {
    std::atomic<pid_t> latest{getpid()};
    std::atomic<bool> over{false};
    std::size_t n_ended = 0;
    std::thread reader([&] {
        while (!over) {
            ProcessView view{latest};
            n_ended += view.refresh() ? 0 : 1;
            static_cast<void>(start_ticks(latest));
        }
    });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (std::chrono::steady_clock::now() < deadline) {
        const pid_t child = fork();
        if (child == 0)
            _exit(0);
        latest = child;
        waitpid(child, nullptr, 0);
    }
    over = true;
    reader.join();
    EXPECT_GT(n_ended, 0U);
    EXPECT_FALSE(start_ticks(latest));
}

TEST(ProcessView, AProcessThatWasNotWaitedForHasEnded) {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
        char word = 0;
        close(ends[1]);
        _exit(read(ends[0], &word, 1) == 0 ? 0 : 1);
    }
    close(ends[0]);
    const auto started = start_ticks(child);
    ASSERT_TRUE(started);
    EXPECT_FALSE(has_ended(child, *started));
    EXPECT_TRUE(has_ended(child, *started + 1));
    close(ends[1]);
    siginfo_t info{};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
    EXPECT_TRUE(has_ended(child, *started));
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(has_ended(child, *started));
}

} // namespace
} // namespace collwire::process
