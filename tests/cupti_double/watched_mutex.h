// SPDX-License-Identifier: Apache-2.0
// The lock that CUPTI holds around the client's buffer callbacks. A client that waits for it in a
// circle hangs in real CUPTI; here it hangs, too, and the log says who waits for whom.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>

#include "tests/cupti_double/event_log.h"

namespace collwire::cupti_double {

class WatchedMutex {
public:
    WatchedMutex(EventLog &log, std::chrono::milliseconds patience)
        : log_(log), patience_(patience) {}

    void lock();
    void unlock();
    // For the report: what the holder does.
    void holder_does(const char *what) { doing_ = what; }

    [[nodiscard]] std::chrono::milliseconds patience() const { return patience_; }

private:
    EventLog &log_;
    std::chrono::milliseconds patience_;
    std::timed_mutex mutex_;
    std::atomic<int> holder_{0};
    std::atomic<const char *> doing_{""};
};

// While it lives, this thread is in a callback of the client for buffers.
class InBufferCallback {
public:
    InBufferCallback(WatchedMutex &mutex, const char *which);
    ~InBufferCallback();
    InBufferCallback(const InBufferCallback &) = delete;
    InBufferCallback &operator=(const InBufferCallback &) = delete;

    static const char *of_this_thread(); // null: none

private:
    WatchedMutex &mutex_;
};

// While it lives, a function of CUPTI that may be called in such a callback is.
class CalledInCallback {
public:
    CalledInCallback();
    ~CalledInCallback();
    CalledInCallback(const CalledInCallback &) = delete;
    CalledInCallback &operator=(const CalledInCallback &) = delete;
};

} // namespace collwire::cupti_double
