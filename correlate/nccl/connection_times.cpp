// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/connection_times.h"

#include <algorithm>
#include <unordered_map>

namespace collwire::nccl {
namespace {

// A launched operation reaches its proxy within this time; samples that contradict are discarded.
constexpr std::uint64_t HANDED_OVER_NS = 10'000'000;
// Samples that do not say whether the operation was in flight.
constexpr int MAX_LOOKED_BACK = 4;

std::uint64_t base_of(std::uint64_t steps, const TimedOp &op) {
    const std::uint64_t chunk = std::max<std::uint32_t>(op.chunk_steps, 1);
    return (steps + chunk - 1) / chunk * chunk;
}

template <typename T> void put_in_order(std::vector<T> &items) {
    std::sort(items.begin(), items.end());
    items.erase(std::unique(items.begin(), items.end()), items.end());
}

} // namespace

ConnectionTimes::ConnectionTimes(std::vector<Birth> births, std::vector<StepSample> samples,
                                 const std::vector<ProgressEvent> &events)
    : births_(std::move(births)), samples_(std::move(samples)) {
    std::stable_sort(births_.begin(), births_.end(),
                     [](const Birth &a, const Birth &b) { return a.time_ns < b.time_ns; });
    std::sort(samples_.begin(), samples_.end(),
              [](const StepSample &a, const StepSample &b) { return a.end_ns < b.end_ns; });
    samples_.erase(std::unique(samples_.begin(), samples_.end()), samples_.end());
    pair_events(events);
    stretches_.push_back({});
}

// A group is reused, but not before its operations are complete.
void ConnectionTimes::pair_events(const std::vector<ProgressEvent> &events) {
    std::vector<ProgressEvent> ordered = events;
    put_in_order(ordered);
    std::unordered_map<std::uint64_t, const ProgressEvent *> begun; // by group
    for (const ProgressEvent &event : ordered) {
        if (!event.is_end) {
            begun[event.group] = &event;
            continue;
        }
        Measured measured{0, event.time_ns, event.base_steps, event.nsteps};
        if (const auto found = begun.find(event.group); found != begun.end()) {
            if (found->second->nsteps == event.nsteps)
                measured.begin_ns = found->second->time_ns;
            begun.erase(found);
        }
        // It may have been started while the previous one was in flight.
        if (!measured_.empty() && measured.begin_ns != 0)
            measured.begin_ns = std::max(measured.begin_ns, measured_.back().end_ns);
        measured_.push_back(measured);
    }
}

void ConnectionTimes::learn(const TimedOp &op) {
    look_until(op.launch_ns);
    last_launch_ns_ = op.launch_ns;
    Stretch &stretch = stretches_.back();
    if (!stretch.steps)
        return;
    stretch.has_ops = true;
    steps_ = base_of(steps_, op) + op.nsteps;
    reached_.push_back(steps_);
}

void ConnectionTimes::learned() {
    look_until(UINT64_MAX);
    close_open();
}

// Samples before an operation was launched.
void ConnectionTimes::look_until(std::uint64_t launch_ns) {
    for (;;) {
        const bool has_birth =
            next_birth_ < births_.size() && births_[next_birth_].time_ns <= launch_ns;
        const bool has_sample =
            next_sample_ < samples_.size() && samples_[next_sample_].end_ns < launch_ns;
        if (has_birth &&
            (!has_sample || births_[next_birth_].time_ns <= samples_[next_sample_].begin_ns))
            take_birth(births_[next_birth_++]);
        else if (has_sample)
            take_sample(samples_[next_sample_++]);
        else
            return;
    }
}

void ConnectionTimes::close(bool fits) {
    Stretch &stretch = stretches_.back();
    stretch.is_joined = stretch.steps && stretch.fits && fits;
}

// No final sample confirms that all steps were counted.
void ConnectionTimes::close_open() {
    close(stretches_.back().is_certain && !stretches_.back().lags);
}

void ConnectionTimes::take_birth(const Birth &birth) {
    close_open();
    Stretch born;
    born.begin_ns = birth.time_ns == 0 ? 0 : birth.time_ns - 1;
    if (birth.is_first) {
        born.steps = 0;
        born.is_certain = true;
    }
    stretches_.push_back(born);
    steps_ = 0;
    reached_.assign(1, 0);
}

void ConnectionTimes::take_sample(const StepSample &sample) {
    Stretch &stretch = stretches_.back();
    if (stretch.steps) {
        // The count is always that after some operation.
        const auto found = std::lower_bound(reached_.begin(), reached_.end(), sample.steps);
        stretch.fits = stretch.fits && found != reached_.end() && *found == sample.steps;
        reached_.erase(reached_.begin(), found);
    }
    // Idle at that moment: the count includes exactly the earlier launches.
    const bool is_anchor = sample.is_idle && last_launch_ns_ <= sample.begin_ns &&
                           sample.begin_ns - last_launch_ns_ >= HANDED_OVER_NS;
    if (!is_anchor)
        return;
    const bool is_as_expected = stretch.steps && stretch.fits && steps_ == sample.steps;
    if (stretch.steps && stretch.fits && !is_as_expected) {
        stretch.lags = true; // handed over late, or never
        return;
    }
    if (is_as_expected && !stretch.has_ops)
        return;
    close(is_as_expected);
    Stretch anchored;
    anchored.begin_ns = sample.end_ns;
    anchored.steps = sample.steps;
    anchored.is_certain = is_as_expected;
    stretches_.push_back(anchored);
    steps_ = sample.steps;
    reached_.assign(1, steps_);
}

OpTime ConnectionTimes::next(const TimedOp &op) {
    while (stretch_ + 1 < stretches_.size() && stretches_[stretch_ + 1].begin_ns < op.launch_ns) {
        ++stretch_;
        steps_ = stretches_[stretch_].steps.value_or(0);
    }
    OpTime time;
    const std::uint64_t base = base_of(steps_, op);
    steps_ = base + op.nsteps;
    if (!stretches_[stretch_].is_joined || op.nsteps == 0)
        return time;
    time.base_steps = base;
    time.end_steps = steps_;
    sample(time, op.launch_ns, steps_);
    measure(time, op.launch_ns, base, steps_, op.nsteps);
    return time;
}

void ConnectionTimes::sample(OpTime &time, std::uint64_t launch_ns, std::uint64_t end) {
    const auto is_done = [&](const StepSample &at) {
        return at.end_ns >= launch_ns && (at.steps > end || (at.steps == end && at.is_idle));
    };
    while (at_sample_ < samples_.size() && !is_done(samples_[at_sample_]))
        ++at_sample_;
    time.after_ns = launch_ns;
    if (at_sample_ < samples_.size()) {
        time.before_ns = samples_[at_sample_].end_ns;
        time.known = EndKnown::Sampled;
    }
    // The last sample at which it was incomplete.
    std::uint64_t until_ns = at_sample_ < samples_.size() ? samples_[at_sample_].unchanged_ns : 0;
    std::size_t i = at_sample_;
    for (int looks = 0; i > 0 && looks < MAX_LOOKED_BACK; ++looks) {
        const StepSample &before = samples_[--i];
        if (std::max(before.end_ns, until_ns) < launch_ns)
            break;
        if (before.steps < end || (before.steps == end && before.is_busy)) {
            time.after_ns = std::max({time.after_ns, before.begin_ns, until_ns});
            break;
        }
        until_ns = before.unchanged_ns;
    }
    if (time.before_ns != 0)
        time.after_ns = std::min(time.after_ns, time.before_ns);
}

void ConnectionTimes::measure(OpTime &time, std::uint64_t launch_ns, std::uint64_t base,
                              std::uint64_t end, std::uint32_t nsteps) {
    while (at_measured_ < measured_.size() &&
           (measured_[at_measured_].end_ns < launch_ns ||
            measured_[at_measured_].base_steps + measured_[at_measured_].nsteps < end))
        ++at_measured_;
    if (at_measured_ == measured_.size())
        return;
    const Measured &measured = measured_[at_measured_];
    if (measured.base_steps == base && measured.nsteps == nsteps) {
        time.begin_ns = measured.begin_ns < launch_ns ? 0 : measured.begin_ns;
        time.end_ns = measured.end_ns;
        time.known = EndKnown::Measured;
    } else if (measured.base_steps >= end &&
               (time.before_ns == 0 || measured.end_ns < time.before_ns)) {
        time.before_ns = measured.end_ns;
        time.after_ns = std::min(time.after_ns, time.before_ns);
        time.known = EndKnown::Bounded;
    }
}

} // namespace collwire::nccl
