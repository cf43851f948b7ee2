// SPDX-License-Identifier: Apache-2.0
// CUPTI's time as the node's CLOCK_MONOTONIC. The guest registers no time callback with CUPTI: it
// would stay, and change the times of every other tool. Instead both clocks are read as a pair, and
// record times are converted between the pairs.
#pragma once

#include "abi.h"

#include <atomic>
#include <cstdint>

namespace collwire::cupti {

uint64_t monotonic_ns();

class Clock {
public:
    // Reads both clocks, several times, and keeps the closest pair. False: CUPTI gives no time.
    bool read_pair(const Functions &functions);

    // Forgets all pairs: a new trace.
    void reset();

    // A record's time in CLOCK_MONOTONIC.
    uint64_t to_monotonic(uint64_t cupti_ns) const;

    // How far a converted time may be off by the reading of the pairs, and by a clock that was set
    // between them.
    uint64_t error_ns() const { return error_ns_.load(std::memory_order_relaxed); }

private:
    // Written by the thread that holds the control lock, read in CUPTI's callbacks.
    std::atomic<uint64_t> first_cupti_ns_ = 0, first_monotonic_ns_ = 0, last_cupti_ns_ = 0,
                          last_monotonic_ns_ = 0;
    std::atomic<uint64_t> error_ns_ = 0;
};

} // namespace collwire::cupti
