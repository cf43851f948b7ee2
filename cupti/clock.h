// SPDX-License-Identifier: Apache-2.0
// CUPTI's time as the node's CLOCK_MONOTONIC. The guest registers no time callback with CUPTI: it
// would stay, and change the times of every other tool. Instead both clocks are read as a pair, and
// record times are converted from the last pair.
#pragma once

#include "abi.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace collwire::cupti {

uint64_t monotonic_ns();

class Clock {
public:
    // Reads both clocks, several times, and keeps the closest pair. The first call of a trace takes
    // FIRST_SPAN_NS longer, to see the unit of CUPTI's time, and up to 200 ms to measure another
    // unit than nanoseconds. For the one thread that holds the
    // control lock. False: CUPTI gives no time.
    bool read_pair(const Functions &functions);

    // Forgets all pairs: a new trace.
    void reset();

    // A record's time in CLOCK_MONOTONIC. Without a lock: called in CUPTI's callbacks.
    uint64_t to_monotonic(uint64_t cupti_time) const;

    // How far a converted time of this trace may be off: half of the slowest reading of a pair, and
    // what the pairs before said of a pair's time. A clock that was set between two pairs shows
    // there.
    uint64_t error_ns() const { return error_ns_.load(std::memory_order_relaxed); }

    static constexpr uint64_t FIRST_SPAN_NS = 1'000'000;

private:
    struct Reading {
        uint64_t cupti = 0, monotonic_ns = 0, took_ns = 0;
    };

    struct Pair {
        std::atomic<uint64_t> cupti = 0, monotonic_ns = 0;
        std::atomic<double> rate = 1; // nanoseconds for a unit of CUPTI's time
    };

    static bool read(const Functions &functions, Reading &closest);
    static double rate_of(const Reading &from, const Reading &to);
    void publish(const Reading &reading, double rate);

    // Readers take the pair of this number; the next ones are written elsewhere meanwhile.
    static constexpr size_t KEPT = 4;
    Pair pairs_[KEPT];
    std::atomic<uint64_t> newest_ = 0;
    std::atomic<uint64_t> error_ns_ = 0;
    Reading first_;
    bool has_pairs_ = false, is_other_unit_ = false;
};

} // namespace collwire::cupti
