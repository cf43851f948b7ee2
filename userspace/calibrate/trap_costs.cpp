// SPDX-License-Identifier: Apache-2.0
#include "userspace/calibrate/trap_costs.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "userspace/calibrate/post_programs.h"
#include "userspace/calibrate/post_timer.h"
#include "userspace/calibrate/stand_ins.h"

namespace collwire::calibrate {
namespace {

constexpr int FEWEST_ROUNDS = 2;
constexpr double MEASURE_NS = 1e6;

struct Site {
    const StandIn *stand_in = nullptr;
    OwnPoint point;
    double untraced_ns = std::numeric_limits<double>::max();
};

// The first stand-in whose probe point is, or is not, emulated.
Result<Site> site_with(bool is_emulated) {
    for (const StandIn &stand_in : stand_ins()) {
        auto point = point_of(stand_in);
        if (!point)
            return std::move(point).failure();
        if (point->emulated == is_emulated)
            return Site{.stand_in = &stand_in, .point = std::move(*point)};
    }
    return error(ErrorKind::Failed, "no function of collwire fits the measurement");
}

struct Variant {
    Site &site;
    bpf_program *program = nullptr;
    bool at_return = false;
    double traced_ns = std::numeric_limits<double>::max();

    [[nodiscard]] double added_ns() const { return std::max(0.0, traced_ns - site.untraced_ns); }
};

} // namespace

Result<TrapCosts> measure_traps(std::uint64_t time_ns) {
    const auto programs = PostPrograms::load();
    if (!programs)
        return programs.failure();
    auto emulated = site_with(true);
    if (!emulated)
        return std::move(emulated).failure();
    auto stepped = site_with(false);
    if (!stepped)
        return std::move(stepped).failure();
    bpf_program *empty = (*programs)->empty();
    Variant variants[] = {{*emulated, empty},
                          {*stepped, empty},
                          {*emulated, empty, true},
                          {*emulated, (*programs)->ours()}};
    TrapCosts costs;
    const auto begin_ns = clock_ns(CLOCK_MONOTONIC);
    // In turn, so that other load meets all of them.
    while (costs.rounds < FEWEST_ROUNDS || clock_ns(CLOCK_MONOTONIC) - begin_ns < time_ns) {
        for (Site *site : {&*emulated, &*stepped})
            site->untraced_ns =
                std::min(site->untraced_ns, best_post_ns(*site->stand_in, 1, MEASURE_NS));
        for (Variant &variant : variants) {
            const OwnProbe probe{variant.program, variant.site.point, variant.at_return};
            if (!probe.is_attached())
                return error(ErrorKind::Unsupported,
                             fmt::format("no uprobe can be placed here: {}. Fix: a kernel with "
                                         "CONFIG_UPROBE_EVENTS",
                                         std::strerror(errno)));
            variant.traced_ns =
                std::min(variant.traced_ns, best_post_ns(*variant.site.stand_in, 1, MEASURE_NS));
        }
        ++costs.rounds;
    }
    costs.emulated_ns = variants[0].added_ns();
    costs.single_stepped_ns = variants[1].added_ns();
    costs.return_ns = variants[2].added_ns();
    costs.post_ns = variants[3].added_ns();
    return costs;
}

} // namespace collwire::calibrate
