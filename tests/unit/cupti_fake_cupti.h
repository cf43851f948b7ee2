// SPDX-License-Identifier: Apache-2.0
// A test double of CUPTI within the test: kernels are "launched" by the test, and their records go
// through the guest's buffers as CUPTI's do. tests/cupti_double plays CUPTI in a process with NCCL;
// this one has results and delays that a test chooses.
#pragma once

#include "cupti/abi.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace collwire::cupti {

class FakeCupti {
public:
    FakeCupti();
    ~FakeCupti();

    // What Guest is given to load functions with: those of the one instance.
    static bool load(Functions &functions, uint32_t &api_version, bool only_mapped);

    // Runs `count` kernels of that name, each for `took_ns`, until now. Without an enabled kind
    // nothing is recorded.
    void run_kernels(int count, const char *name, uint64_t took_ns = 1'000);

    // What a test sets.
    bool is_missing = false;
    std::atomic<uint32_t> api_version = 130001;
    std::atomic<Result> subscribe_result = SUCCESS, register_result = SUCCESS,
                        enable_result = SUCCESS, disable_result = SUCCESS,
                        flush_result = SUCCESS; // of a call that has its effect all the same
    std::string owner;                          // of the subscription that is taken
    std::atomic<bool> keeps_buffers =
        false; // kernels still run: only a forced flush returns buffers
    std::atomic<bool> keeps_buffers_always = false; // not even that

    // What it saw.
    bool is_enabled() const { return is_enabled_; }
    uint64_t held_buffers() const;
    std::set<uint8_t *> buffers() const; // all that it was ever lent
    std::atomic<int> enables = 0, disables = 0, subscriptions = 0, registrations = 0, finalizes = 0;
    std::atomic<uint32_t> period_ms = 0;
    std::atomic<uint64_t> dropped = 0;

private:
    struct Held {
        uint8_t *buffer;
        size_t bytes, records;
    };

    static Result subscribe(void **subscriber, CallbackFunction, void *);
    static Result subscribe_v2(void **subscriber, CallbackFunction, void *,
                               SubscriberParams *params);
    static Result unsubscribe(void *subscriber);
    static Result register_callbacks(RequestBuffer request, BufferCompleted completed);
    static Result enable(Kind kind);
    static Result disable(Kind kind);
    static Result flush_all(uint32_t flags);
    void complete(const Held &held);

    mutable std::recursive_mutex lock_; // buffer callbacks run under CUPTI's lock, too
    std::atomic<bool> is_enabled_ = false;
    int subscribers_ = 0;
    RequestBuffer request_ = nullptr;
    BufferCompleted completed_ = nullptr;
    std::vector<Held> held_;
    std::set<uint8_t *> buffers_;
};

} // namespace collwire::cupti
