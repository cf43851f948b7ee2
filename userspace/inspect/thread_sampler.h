// SPDX-License-Identifier: Apache-2.0
// The registers of threads that run, sampled by the kernel's clock (perf_event_open(2), software
// cpu-clock). Threads are not stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "userspace/inspect/thread_stack.h"

namespace collwire::inspect {

class ThreadSampler {
public:
    // Samples a thread each time that it has run for this long.
    explicit ThreadSampler(std::uint64_t period_ns) : period_ns_(period_ns) {}
    ThreadSampler(const ThreadSampler &) = delete;
    ThreadSampler &operator=(const ThreadSampler &) = delete;
    ~ThreadSampler();

    // Samples the thread from now on. False: not permitted, or the thread has exited.
    bool add(std::uint32_t tid);
    // The registers of a thread at its samples, of some 150 at most: the last first, none twice.
    [[nodiscard]] std::vector<StackTop> tops(std::uint32_t tid) const;
    [[nodiscard]] std::size_t size() const { return events_.size(); }

private:
    struct Event {
        int fd = -1;
        void *ring = nullptr;
    };
    std::uint64_t period_ns_;
    std::map<std::uint32_t, Event> events_; // by thread
};

} // namespace collwire::inspect
