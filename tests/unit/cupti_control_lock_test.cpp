// SPDX-License-Identifier: Apache-2.0
#include "cupti/control_lock.h"

#include "cupti/clock.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>

namespace collwire::cupti {
namespace {

constexpr int FOREVER_MS = 20'000;

// Both come at the same moment, again and again.
TEST(CuptiControlLock, OneThreadAtATimeHasIt) {
    constexpr int ROUNDS = 20'000;
    ControlLock lock;
    int count = 0; // not atomic: the lock guards it
    std::atomic<int> inside = 0, together = 0, arrived = 0;
    const auto add = [&] {
        for (int round = 1; round <= ROUNDS; ++round) {
            ++arrived;
            for (int spins = 1; arrived < 2 * round; ++spins)
                if (spins % 1'000 == 0)
                    std::this_thread::yield();
            if (!lock.take(FOREVER_MS))
                continue;
            together += inside++ != 0 ? 1 : 0;
            ++count;
            --inside;
            lock.release();
        }
    };
    { std::jthread first(add), second(add); }
    EXPECT_EQ(count, 2 * ROUNDS);
    EXPECT_EQ(together, 0);
}

TEST(CuptiControlLock, AThreadThatWaitsIsWoken) {
    ControlLock lock;
    for (int round = 0; round < 200; ++round) {
        ASSERT_TRUE(lock.take(FOREVER_MS));
        std::atomic<bool> is_started = false, has_taken = false;
        const uint64_t begin_ns = monotonic_ns();
        {
            std::jthread waiter([&] {
                is_started = true;
                has_taken = lock.take(FOREVER_MS);
                if (has_taken)
                    lock.release();
            });
            while (!is_started)
                std::this_thread::yield();
            // Half of the rounds: time to fall asleep.
            for (int i = 0; round % 2 == 1 && i < 2'000; ++i)
                std::this_thread::yield();
            EXPECT_FALSE(has_taken);
            lock.release();
        }
        EXPECT_TRUE(has_taken);
        ASSERT_LT(monotonic_ns() - begin_ns, uint64_t{FOREVER_MS} * 1'000'000 / 2);
    }
}

TEST(CuptiControlLock, AThreadGivesUpAfterItsLimit) {
    ControlLock lock;
    ASSERT_TRUE(lock.take(FOREVER_MS));
    bool has_taken = true;
    uint64_t took_ns = 0;
    std::jthread([&] {
        const uint64_t begin_ns = monotonic_ns();
        has_taken = lock.take(30);
        took_ns = monotonic_ns() - begin_ns;
    }).join();
    EXPECT_FALSE(has_taken);
    EXPECT_GE(took_ns, 30'000'000U);
    EXPECT_LT(took_ns, 20'000'000'000U);
    // It is free for the next one, although a thread waited and left.
    lock.release();
    EXPECT_TRUE(lock.take(0));
    EXPECT_FALSE(lock.take(0));
    lock.release();
    EXPECT_TRUE(lock.take(0));
    lock.release();
}

} // namespace
} // namespace collwire::cupti
