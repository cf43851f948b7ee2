// SPDX-License-Identifier: Apache-2.0
// When NCCL's activation mask may change. NCCL reads it for each operation of a group, and uses a
// receive and a send of one group as a pair: if only the second of a pair has the bit for kernel
// events, NCCL's proxy thread waits for a mark that the kernel never writes, and the communicator
// cannot be destroyed (enqueue.cc addP2pToPlan, v2.26.5-1 to v2.30.7-1). So the mask first asks for
// the events of groups alone, and the rest follows where no thread has a group open.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace collwire::cupti {

class ProfilerMask {
public:
    static constexpr size_t LIBRARIES = 8;
    static constexpr size_t THREADS = 256;
    // Without any event for as long no operation was issued: then no group is open.
    static constexpr uint64_t QUIET_NS = 200'000'000;
    static constexpr uint64_t FIRST_EVENTS_NS = 50'000'000;

    // All but the events are called under the control lock.

    // A communicator of the library that owns the mask. That of the first one changes at once.
    // False: too many libraries. Its mask stays 0.
    bool add(int *mask, int version);
    void remove(int *mask);

    void want(bool is_on, uint64_t now_ns);
    // Changes the masks where no event tells when: nothing runs.
    void poll(uint64_t now_ns);
    bool is_on() const;  // of one library at least
    bool is_off() const; // of all
    uint64_t changed_ns() const { return changed_ns_.load(std::memory_order_relaxed); }
    // NCCL before 2.28 has no events of groups, and its operations come from several threads.
    bool is_refused() const { return is_refused_.load(std::memory_order_relaxed); }
    // A library has communicators that ran without the trace, and their marks would be wrong.
    bool is_late() const;

    // Events, on NCCL's threads: no lock. A mask is changed by the one that takes the lock at its
    // first try.
    void group_opened(uint64_t now_ns);
    // True: this is a place to change the masks, call change().
    bool group_closed(uint64_t now_ns);
    bool plan_started(uint64_t now_ns);
    void change(uint64_t now_ns);

private:
    struct Library {
        std::atomic<int *> mask = nullptr;
        int version = 0;
        uint32_t communicators = 0;
        std::atomic<bool> is_on = false;
        std::atomic<bool> is_late = false;
    };

    struct Thread {
        std::atomic<uintptr_t> id = 0;
        std::atomic<uint64_t> opened_ns = 0; // 0: it has no group open
    };

    static int watching(int version);
    static int all(int version);
    static void set(const Library &library, int mask);
    Thread *own_thread();
    bool is_settled() const;
    bool has_open_group(uint64_t now_ns) const;

    Library libraries_[LIBRARIES];
    Thread threads_[THREADS];
    std::atomic<uint32_t> n_threads_ = 0; // that had an event, ever
    std::atomic<uint64_t> wanted_ns_ = 0, event_ns_ = 0, changed_ns_ = 0;
    std::atomic<bool> is_wanted_ = false, is_refused_ = false, is_full_ = false;
};

} // namespace collwire::cupti
