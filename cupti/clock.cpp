// SPDX-License-Identifier: Apache-2.0
#include "clock.h"

#include <ctime>

namespace collwire::cupti {
namespace {

constexpr int READINGS = 5;
// CUPTI's default clock and CLOCK_MONOTONIC run at the same rate: both are steered alike. A larger
// difference over a second is a clock of another tool, whose ticks are no nanoseconds.
constexpr double SAME_RATE = 0.001;
constexpr uint64_t MIN_SPAN_NS = 50'000'000;

} // namespace

uint64_t monotonic_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

bool Clock::read_pair(const Functions &functions) {
    uint64_t best_ns = UINT64_MAX, best_cupti = 0, best_monotonic = 0;
    for (int i = 0; i < READINGS; ++i) {
        uint64_t cupti = 0;
        const uint64_t before = monotonic_ns();
        if (functions.get_timestamp(&cupti) != SUCCESS)
            return false;
        const uint64_t took = monotonic_ns() - before;
        if (took >= best_ns)
            continue;
        best_ns = took;
        best_cupti = cupti;
        best_monotonic = before + took / 2;
    }
    const uint64_t last_cupti = last_cupti_ns_.load(std::memory_order_relaxed),
                   last_monotonic = last_monotonic_ns_.load(std::memory_order_relaxed);
    uint64_t error = best_ns / 2 + 1;
    if (last_cupti != 0) {
        const auto drift =
            static_cast<int64_t>((best_cupti - last_cupti) - (best_monotonic - last_monotonic));
        const auto size = static_cast<uint64_t>(drift < 0 ? -drift : drift);
        if (static_cast<double>(size) <
            SAME_RATE * static_cast<double>(best_monotonic - last_monotonic))
            error += size;
    } else {
        first_cupti_ns_.store(best_cupti, std::memory_order_relaxed);
        first_monotonic_ns_.store(best_monotonic, std::memory_order_relaxed);
    }
    if (error > error_ns_.load(std::memory_order_relaxed))
        error_ns_.store(error, std::memory_order_relaxed);
    last_cupti_ns_.store(best_cupti, std::memory_order_relaxed);
    last_monotonic_ns_.store(best_monotonic, std::memory_order_relaxed);
    return true;
}

void Clock::reset() {
    last_cupti_ns_.store(0, std::memory_order_relaxed);
    error_ns_.store(0, std::memory_order_relaxed);
}

uint64_t Clock::to_monotonic(uint64_t cupti_ns) const {
    const uint64_t cupti = last_cupti_ns_.load(std::memory_order_relaxed),
                   monotonic = last_monotonic_ns_.load(std::memory_order_relaxed);
    const auto distance = static_cast<int64_t>(cupti_ns - cupti);
    const uint64_t cupti_span = cupti - first_cupti_ns_.load(std::memory_order_relaxed);
    const uint64_t span_ns = monotonic - first_monotonic_ns_.load(std::memory_order_relaxed);
    if (span_ns < MIN_SPAN_NS || cupti_span == 0)
        return monotonic + static_cast<uint64_t>(distance);
    const double rate = static_cast<double>(span_ns) / static_cast<double>(cupti_span);
    if (rate > 1 - SAME_RATE && rate < 1 + SAME_RATE)
        return monotonic + static_cast<uint64_t>(distance);
    return monotonic +
           static_cast<uint64_t>(static_cast<int64_t>(static_cast<double>(distance) * rate));
}

} // namespace collwire::cupti
