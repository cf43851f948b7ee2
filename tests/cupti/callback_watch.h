// SPDX-License-Identifier: Apache-2.0
// What a client of CUPTI does in CUPTI's buffer callbacks.
#pragma once

#include <cstdint>

struct CallbackCounts {
    uint64_t callbacks, allocations, locks, system_calls;
};
CallbackCounts callback_counts();

// While it lives, this thread's acts are not the client's.
struct PauseOfWatch {
    PauseOfWatch();
    ~PauseOfWatch();
    PauseOfWatch(const PauseOfWatch &) = delete;
    PauseOfWatch &operator=(const PauseOfWatch &) = delete;
};
