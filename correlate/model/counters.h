// SPDX-License-Identifier: Apache-2.0
// One counter of a port over a recording: its increase, without trusting it to be monotonic.
#pragma once

#include <cstdint>
#include <vector>

namespace collwire::model {

struct CounterPoint {
    std::uint64_t begin_ns = 0; // monotonic; the value was read between begin_ns and time_ns
    std::uint64_t time_ns = 0;
    std::uint64_t value = 0;
};

// A stretch of time in which something grew.
struct Growth {
    std::uint64_t from_ns = 0;
    std::uint64_t to_ns = 0;
    std::uint64_t delta = 0;
};

// Appends a stretch, or widens the last one if this one follows it within `gap_ns`. Keeps at most
// MAX_GROWTHS stretches; beyond, the last one grows.
inline constexpr std::size_t MAX_GROWTHS = 256;
void add_growth(std::vector<Growth> &growths, const Growth &growth, std::uint64_t gap_ns);

class CounterSeries {
public:
    // `watched`: the stretches of growth are kept as well.
    explicit CounterSeries(bool watched = false) : watched_(watched) {}

    // Points must be in time order. One that is not newer than the last is ignored, so that reading
    // a capture twice changes nothing.
    void add(const CounterPoint &point);

    [[nodiscard]] std::uint64_t points() const { return points_; }
    [[nodiscard]] const CounterPoint &first() const { return first_; }
    [[nodiscard]] const CounterPoint &last() const { return last_; }
    // From the first point to the last. After a reset the counter restarts at 0: the increase
    // between the point before and the reset is unknown and not included.
    [[nodiscard]] std::uint64_t increase() const { return increase_; }
    [[nodiscard]] std::uint64_t resets() const { return resets_; }
    // In units of the counter per second, over the interval in which it grew fastest; 0 with fewer
    // than two points.
    [[nodiscard]] double peak_rate() const { return peak_rate_; }
    [[nodiscard]] const std::vector<Growth> &growths() const { return growths_; }

private:
    CounterPoint first_{};
    CounterPoint last_{};
    std::uint64_t points_ = 0;
    std::uint64_t increase_ = 0;
    std::uint64_t resets_ = 0;
    double peak_rate_ = 0;
    std::vector<Growth> growths_;
    bool watched_;
};

// a + b, or the greatest number: sums over hostile input must not wrap around.
[[nodiscard]] constexpr std::uint64_t add_saturating(std::uint64_t a, std::uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
[[nodiscard]] constexpr std::uint64_t subtract_or_zero(std::uint64_t a, std::uint64_t b) {
    return a > b ? a - b : 0;
}
[[nodiscard]] constexpr std::uint64_t multiply_saturating(std::uint64_t a, std::uint64_t b) {
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

} // namespace collwire::model
