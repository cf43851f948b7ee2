// SPDX-License-Identifier: Apache-2.0
// Who may steer CUPTI: the guest's own thread, or a thread of the program that asks CUPTI for
// something. A lock that sleeps, and gives up after a time: the program must never hang on the
// guest. Never taken in a callback of CUPTI.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace collwire::cupti {

class ControlLock {
public:
    // False: not free within `limit_ms`.
    bool take(int limit_ms) {
        int expected = FREE;
        if (state_.compare_exchange_strong(expected, TAKEN, std::memory_order_acquire))
            return true;
        timespec left = {limit_ms / 1000, limit_ms % 1000 * 1'000'000L};
        const uint64_t end_ns = now_ns() + static_cast<uint64_t>(limit_ms) * 1'000'000;
        while (state_.exchange(WAITED_FOR, std::memory_order_acquire) != FREE) {
            syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, WAITED_FOR, &left, nullptr, 0);
            const uint64_t now = now_ns();
            if (now >= end_ns)
                return state_.exchange(WAITED_FOR, std::memory_order_acquire) == FREE;
            left = {static_cast<time_t>((end_ns - now) / 1'000'000'000),
                    static_cast<long>((end_ns - now) % 1'000'000'000)};
        }
        return true;
    }

    // Without waiting, and without a system call.
    bool try_take() {
        int expected = FREE;
        return state_.compare_exchange_strong(expected, TAKEN, std::memory_order_acquire);
    }

    void release() {
        if (state_.exchange(FREE, std::memory_order_release) == WAITED_FOR)
            syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }

private:
    static constexpr int FREE = 0, TAKEN = 1, WAITED_FOR = 2;

    static uint64_t now_ns() {
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 +
               static_cast<uint64_t>(now.tv_nsec);
    }

    std::atomic<int> state_ = FREE;
};

} // namespace collwire::cupti
