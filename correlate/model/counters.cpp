// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/counters.h"

#include <algorithm>

namespace collwire::model {

namespace {
// Samples a second apart belong to one stretch; one quiet sample between two growing ones does,
// too.
constexpr std::uint64_t GROWTH_GAP_NS = 2'500'000'000;
} // namespace

void add_growth(std::vector<Growth> &growths, const Growth &growth, std::uint64_t gap_ns) {
    if (!growths.empty()) {
        Growth &last = growths.back();
        const bool follows = growth.from_ns <= add_saturating(last.to_ns, gap_ns);
        if (follows || growths.size() >= MAX_GROWTHS) {
            last.to_ns = std::max(last.to_ns, growth.to_ns);
            last.delta = add_saturating(last.delta, growth.delta);
            return;
        }
    }
    growths.push_back(growth);
}

void CounterSeries::add(const CounterPoint &point) {
    if (points_ == 0) {
        first_ = point;
        last_ = point;
        points_ = 1;
        return;
    }
    if (point.time_ns <= last_.time_ns)
        return;
    const bool reset = point.value < last_.value;
    const std::uint64_t delta = reset ? point.value : point.value - last_.value;
    increase_ = add_saturating(increase_, delta);
    resets_ += reset ? 1 : 0;
    const double seconds = static_cast<double>(point.time_ns - last_.time_ns) * 1e-9;
    peak_rate_ = std::max(peak_rate_, static_cast<double>(delta) / seconds);
    if (watched_ && delta > 0)
        add_growth(growths_, {last_.time_ns, point.time_ns, delta}, GROWTH_GAP_NS);
    last_ = point;
    ++points_;
}

} // namespace collwire::model
