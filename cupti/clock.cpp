// SPDX-License-Identifier: Apache-2.0
#include "clock.h"

#include <algorithm>
#include <ctime>

namespace collwire::cupti {
namespace {

constexpr int READINGS = 5;
// CUPTI's own clock counts nanoseconds, as steered as CLOCK_MONOTONIC: it is the system's time. One
// that differs by more than this over FIRST_SPAN_NS is another tool's, such as a processor's ticks.
constexpr double OTHER_UNIT = 0.1;
// Ticks whose rate changed by less were measured better; by more, the clock was set.
constexpr double SAME_RATE = 0.01;

constexpr double MOST_NS = 9e18;
constexpr uint64_t NS_PER_S = 1'000'000'000, MOST_FIRST_SPAN_NS = 200'000'000;
constexpr uint64_t SPAN_OF_READINGS = 1000;

uint64_t distance_of(uint64_t a, uint64_t b) {
    return a < b ? b - a : a - b;
}

} // namespace

uint64_t monotonic_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

bool Clock::read(const Functions &functions, Reading &closest) {
    closest.took_ns = UINT64_MAX;
    for (int i = 0; i < READINGS; ++i) {
        uint64_t cupti = 0;
        const uint64_t before = monotonic_ns();
        if (functions.get_timestamp(&cupti) != SUCCESS)
            return false;
        const uint64_t took_ns = monotonic_ns() - before;
        if (took_ns < closest.took_ns)
            closest = {cupti, before + took_ns / 2, took_ns};
    }
    return true;
}

double Clock::rate_of(const Reading &from, const Reading &to) {
    if (to.cupti <= from.cupti || to.monotonic_ns <= from.monotonic_ns)
        return 1;
    return static_cast<double>(to.monotonic_ns - from.monotonic_ns) /
           static_cast<double>(to.cupti - from.cupti);
}

void Clock::publish(const Reading &reading, double rate) {
    const uint64_t number = newest_.load(std::memory_order_relaxed) + 1;
    Pair &pair = pairs_[number % KEPT];
    pair.cupti.store(reading.cupti, std::memory_order_relaxed);
    pair.monotonic_ns.store(reading.monotonic_ns, std::memory_order_relaxed);
    pair.rate.store(rate, std::memory_order_relaxed);
    newest_.store(number, std::memory_order_release);
}

bool Clock::read_pair(const Functions &functions) {
    Reading now;
    if (!read(functions, now))
        return false;
    uint64_t error_ns = 0;
    double rate = 1;
    if (!has_pairs_) {
        first_ = now;
        while (monotonic_ns() - first_.monotonic_ns < FIRST_SPAN_NS) {
        }
        if (!read(functions, now))
            return false;
        rate = rate_of(first_, now);
        is_other_unit_ = rate < 1 - OTHER_UNIT || rate > 1 + OTHER_UNIT;
        // A slow reading of either moves the rate: the span is a thousand times as long.
        while (is_other_unit_ && now.monotonic_ns - first_.monotonic_ns < MOST_FIRST_SPAN_NS &&
               now.monotonic_ns - first_.monotonic_ns <
                   (first_.took_ns + now.took_ns) * SPAN_OF_READINGS) {
            const timespec pause = {0, FIRST_SPAN_NS};
            nanosleep(&pause, nullptr);
            if (!read(functions, now))
                return false;
            rate = rate_of(first_, now);
        }
        // What it may be off in the second until the next pair.
        if (is_other_unit_)
            error_ns = NS_PER_S / 2 * (first_.took_ns + now.took_ns) /
                       (now.monotonic_ns - first_.monotonic_ns);
        has_pairs_ = true;
    } else {
        const Pair &last = pairs_[newest_.load(std::memory_order_relaxed) % KEPT];
        const uint64_t last_ns = last.monotonic_ns.load(std::memory_order_relaxed);
        error_ns = distance_of(to_monotonic(now.cupti), now.monotonic_ns);
        rate = last.rate.load(std::memory_order_relaxed);
        if (static_cast<double>(error_ns) <
            SAME_RATE * static_cast<double>(now.monotonic_ns - last_ns))
            rate = rate_of(first_, now);
        else
            first_ = now;
    }
    publish(now, is_other_unit_ ? rate : 1);
    error_ns += now.took_ns / 2 + 1;
    if (error_ns > error_ns_.load(std::memory_order_relaxed))
        error_ns_.store(error_ns, std::memory_order_relaxed);
    return true;
}

void Clock::reset() {
    has_pairs_ = false;
    error_ns_.store(0, std::memory_order_relaxed);
}

uint64_t Clock::to_monotonic(uint64_t cupti_time) const {
    uint64_t number = 0, cupti = 0, monotonic = 0;
    double rate = 1;
    do {
        number = newest_.load(std::memory_order_acquire);
        const Pair &pair = pairs_[number % KEPT];
        cupti = pair.cupti.load(std::memory_order_acquire);
        monotonic = pair.monotonic_ns.load(std::memory_order_acquire);
        rate = pair.rate.load(std::memory_order_acquire);
        // This thread slept while KEPT - 1 pairs were read: the pair may be half a newer one.
    } while (newest_.load(std::memory_order_relaxed) - number >= KEPT - 1);
    const auto distance = static_cast<int64_t>(cupti_time - cupti);
    if (rate == 1)
        return monotonic + static_cast<uint64_t>(distance);
    const double scaled = std::clamp(static_cast<double>(distance) * rate, -MOST_NS, MOST_NS);
    return monotonic + static_cast<uint64_t>(static_cast<int64_t>(scaled));
}

} // namespace collwire::cupti
