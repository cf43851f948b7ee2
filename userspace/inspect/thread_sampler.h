// SPDX-License-Identifier: Apache-2.0
// The registers and stacks of threads that run, sampled by the kernel's clock (perf_event_open(2),
// software cpu-clock). Threads are not stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "userspace/inspect/thread_stack.h"

namespace collwire::inspect {

class ThreadSampler {
public:
    ThreadSampler() = default;
    ThreadSampler(const ThreadSampler &) = delete;
    ThreadSampler &operator=(const ThreadSampler &) = delete;
    ~ThreadSampler();

    // Samples the thread three times, 0.2 ms of its CPU time apart. False: not permitted, or the
    // thread has exited.
    bool add(std::uint32_t tid);
    struct Sample {
        StackTop top;
        std::vector<std::uint64_t> words; // of the stack from sp up, 16 KiB at most
    };
    // Of a thread, the last one first.
    [[nodiscard]] std::vector<Sample> samples(std::uint32_t tid) const;
    [[nodiscard]] std::size_t size() const { return events_.size(); }

private:
    struct Event {
        int fd = -1;
        void *ring = nullptr;
    };
    std::map<std::uint32_t, Event> events_; // by thread
};

} // namespace collwire::inspect
