// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/host_clocks.h"

#include <algorithm>
#include <cstdint>

#include "correlate/clocks/rate.h"

namespace collwire::nccl {

using clocks::Calibration;
using model::Host;
using model::Model;

namespace {

constexpr std::int64_t BILLION = 1'000'000'000;
constexpr std::int64_t LEAST_DRIFT_TIME_NS = BILLION;
constexpr std::int64_t MOST_DRIFT_PPB = clocks::MOST_DRIFT_PPM * 1000;

struct Recorded {
    std::uint64_t begin_ns = UINT64_MAX, end_ns = 0; // the host's monotonic clock

    [[nodiscard]] bool is_any() const { return begin_ns <= end_ns; }
};

std::vector<Recorded> recorded_of(const Model &model) {
    std::vector<Recorded> recorded(model.hosts.size());
    for (const model::Session &session : model.sessions) {
        if (session.excluded)
            continue;
        Recorded &of = recorded[session.host];
        of.begin_ns = std::min(of.begin_ns, session.begin_ns);
        of.end_ns = std::max(of.end_ns, session.end_ns);
    }
    return recorded;
}

std::int64_t ppb(std::int64_t drift_ns, std::int64_t elapsed_ns) {
    return static_cast<std::int64_t>(static_cast<double>(drift_ns) * 1e9 /
                                     static_cast<double>(elapsed_ns));
}

class ClockDescriber {
public:
    ClockDescriber(const Model &model, const Recorded &recorded, Index host)
        : model_(model), clock_(model.clocks.nodes[host]), host_(model.hosts[host]) {
        from_ns_ = clock_.on_reference(static_cast<std::int64_t>(recorded.begin_ns)).middle_ns();
        to_ns_ = clock_.on_reference(static_cast<std::int64_t>(recorded.end_ns)).middle_ns();
    }

    void describe(HostClock &into) const {
        into.reference = clock_.reference;
        into.group = clock_.group;
        set_errors(into);
        if (clock_.calibration != Calibration::Reference)
            set_drift(into);
        set_windows(into);
    }

private:
    void set_errors(HostClock &into) const {
        std::vector<std::uint64_t> errors;
        const auto add = [&](const clocks::Interval &shown) {
            errors.push_back((static_cast<std::uint64_t>(shown.width_ns()) + 1) / 2);
        };
        add(clock_.shown_at(from_ns_));
        add(clock_.shown_at(to_ns_));
        for (const clocks::Knot &knot : clock_.knots)
            if (knot.reference_ns > from_ns_ && knot.reference_ns < to_ns_)
                add(knot.shown);
        std::sort(errors.begin(), errors.end());
        into.typical_error_ns = errors[errors.size() / 2];
        into.worst_error_ns = errors.back();
    }

    // The longest way between two moments with narrow bounds says most.
    void set_drift(HostClock &into) const {
        const auto half =
            clock_.knots.begin() + static_cast<std::ptrdiff_t>(clock_.knots.size() / 2);
        const auto by_width = [](const clocks::Knot &a, const clocks::Knot &b) {
            return a.shown.width_ns() < b.shown.width_ns();
        };
        if (half == clock_.knots.begin())
            return;
        const clocks::Knot &first = *std::min_element(clock_.knots.begin(), half, by_width);
        const clocks::Knot &last = *std::min_element(half, clock_.knots.end(), by_width);
        const std::int64_t elapsed_ns = last.reference_ns - first.reference_ns;
        if (elapsed_ns < LEAST_DRIFT_TIME_NS)
            return;
        into.drift_ppb = clocks::Interval{
            ppb(last.shown.least_ns - first.shown.most_ns - elapsed_ns, elapsed_ns),
            ppb(last.shown.most_ns - first.shown.least_ns - elapsed_ns, elapsed_ns)};
        // No more than what is assumed anyway.
        if (into.drift_ppb->least_ns < -MOST_DRIFT_PPB || into.drift_ppb->most_ns > MOST_DRIFT_PPB)
            into.drift_ppb.reset();
    }

    void set_windows(HostClock &into) const {
        const auto length_ns =
            static_cast<std::uint64_t>(std::max<std::int64_t>(to_ns_ - from_ns_, 0));
        const std::uint64_t n =
            std::clamp<std::uint64_t>(length_ns / CLOCK_WINDOW_NS, 1, MOST_CLOCK_WINDOWS);
        const Host &reference = model_.hosts[clock_.reference];
        for (std::uint64_t i = 0; i < n; ++i) {
            const auto at_ns =
                from_ns_ + static_cast<std::int64_t>(length_ns / n * i + length_ns / n / 2);
            const clocks::Interval shown = clock_.shown_at(at_ns);
            const auto ahead = static_cast<std::int64_t>(
                host_.realtime_ns(static_cast<std::uint64_t>(shown.middle_ns())) -
                reference.realtime_ns(static_cast<std::uint64_t>(at_ns)));
            into.windows.push_back({static_cast<std::uint64_t>(at_ns),
                                    shown,
                                    {ahead + shown.least_ns - shown.middle_ns(),
                                     ahead + shown.most_ns - shown.middle_ns()}});
        }
    }

    const Model &model_;
    const clocks::NodeClock &clock_;
    const Host &host_;
    std::int64_t from_ns_ = 0, to_ns_ = 0; // its recordings, by the reference's clock
};

} // namespace

std::string_view calibration_name(Calibration calibration) {
    switch (calibration) {
    case Calibration::Reference:
        return "reference";
    case Calibration::Bounded:
        return "bounded";
    case Calibration::Contradiction:
        return "contradiction";
    case Calibration::None:
        break;
    }
    return "none";
}

std::vector<HostClock> host_clocks(const Model &model) {
    std::vector<HostClock> all;
    const std::vector<Recorded> recorded = recorded_of(model);
    for (Index host = 0; host < model.hosts.size(); ++host) {
        if (!recorded[host].is_any())
            continue;
        HostClock clock;
        clock.host = host;
        if (host < model.clocks.nodes.size()) {
            const clocks::NodeClock &solved = model.clocks.nodes[host];
            clock.calibration = solved.calibration;
            clock.constraints = solved.constraints;
            if (!solved.knots.empty())
                ClockDescriber(model, recorded[host], host).describe(clock);
        }
        all.push_back(std::move(clock));
    }
    return all;
}

} // namespace collwire::nccl
