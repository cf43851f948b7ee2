// SPDX-License-Identifier: Apache-2.0
// Measures the CPU time in ns per post of a chain of work requests: untraced, with an empty uprobe,
// and with collwire's probe, in one run. Results are in docs/sources/posts.md.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "tools/program_options/program_options.h"
#include "userspace/calibrate/post_programs.h"
#include "userspace/calibrate/post_timer.h"
#include "userspace/calibrate/stand_ins.h"

namespace collwire::bench {
namespace {

using calibrate::OwnPoint;
using calibrate::OwnProbe;
using calibrate::StandIn;

constexpr double LIMIT_NS = 600; // added to a post of one request, including the trap
constexpr int CHAIN_LENGTHS[] = {1, 4, 16};

struct Options {
    int rounds = 7;
    int milliseconds = 3; // length of each measurement, about
};

struct Costs {
    double untraced_ns = std::numeric_limits<double>::max();
    double empty_ns = std::numeric_limits<double>::max();
    double ours_ns = std::numeric_limits<double>::max();
};

void measure(const StandIn &site, int chain_length, const Options &options, double &best_ns) {
    best_ns =
        std::min(best_ns, calibrate::best_post_ns(site, chain_length, options.milliseconds * 1e6));
}

// Measures the three in turn, so that background load affects all of them.
bool measure_round(const StandIn &site, const OwnPoint &point, int chain_length,
                   const Options &options, bpf_program *empty, bpf_program *ours, Costs &costs) {
    measure(site, chain_length, options, costs.untraced_ns);
    for (const auto &[program, best] :
         {std::pair{empty, &costs.empty_ns}, std::pair{ours, &costs.ours_ns}}) {
        const OwnProbe probe{program, point};
        if (!probe.is_attached()) {
            fmt::print(stderr, "collwire-bench-post: uprobe on {}: {}\n", point.instruction,
                       std::strerror(errno));
            return false;
        }
        measure(site, chain_length, options, *best);
    }
    return true;
}

int run(const Options &options) {
    const auto programs = calibrate::PostPrograms::load();
    if (!programs) {
        fmt::print(stderr, "collwire-bench-post: {}\n", programs.failure().message);
        return 1;
    }

    fmt::print("CPU time in ns per post, best of {} rounds; WRs: work requests per post\nempty: "
               "with a uprobe whose program is empty; ours: with collwire's probe\n\n",
               options.rounds);
    fmt::print("{:<20} {:<35} {:<16} {:<12} {:>3} {:>9} {:>8} {:>8} {:>9} {:>9} {:>9} {:>7}\n",
               "begins with", "as in", "probe on", "", "WRs", "untraced", "empty", "ours",
               "ours-untr", "per WR", "ours-empt", "ours/em");
    Costs worst{0, 0, 0};
    for (const StandIn &site : calibrate::stand_ins()) {
        const auto point = calibrate::point_of(site);
        if (!point) {
            fmt::print(stderr, "collwire-bench-post: {}\n", point.failure().message);
            return 1;
        }
        if (!site.single_stepped_offset && !point->emulated) {
            fmt::print(stderr,
                       "collwire-bench-post: `{}` would be probed on `{}`, which is "
                       "single-stepped\n",
                       site.begins_with, point->instruction);
            return 1;
        }
        for (const int length : CHAIN_LENGTHS) {
            if (!point->emulated && length != 1)
                continue;
            Costs costs;
            for (int round = 0; round < options.rounds; ++round)
                if (!measure_round(site, *point, length, options, (*programs)->empty(),
                                   (*programs)->ours(), costs))
                    return 1;
            const double added_ns = costs.ours_ns - costs.untraced_ns;
            if (point->emulated && length == 1 && added_ns > worst.ours_ns - worst.untraced_ns)
                worst = costs;
            fmt::print("{:<20} {:<35} {:<16} {:<12} {:>3} {:>9.1f} {:>8.0f} {:>8.0f} {:>9.0f} "
                       "{:>9.0f} {:>9.0f} {:>7.2f}\n",
                       site.begins_with, site.seen_in, point->instruction,
                       point->emulated ? "emulated" : "single-step", length, costs.untraced_ns,
                       costs.empty_ns, costs.ours_ns, added_ns, added_ns / length,
                       costs.ours_ns - costs.empty_ns, costs.ours_ns / costs.empty_ns);
            std::fflush(stdout);
        }
    }
    const double added_ns = worst.ours_ns - worst.untraced_ns;
    fmt::print(
        "\nA post of one request, probe on an emulated instruction: {:.0f} ns added at most; "
        "the limit is {:.0f} ns: {}.\nAn empty uprobe alone adds {:.0f} ns on this kernel and "
        "machine; collwire's program {:.0f} ns on top of it.\n",
        added_ns, LIMIT_NS, added_ns <= LIMIT_NS ? "kept" : "NOT kept",
        worst.empty_ns - worst.untraced_ns, worst.ours_ns - worst.empty_ns);
    return 0;
}

} // namespace
} // namespace collwire::bench

int main(int argc, char **argv) {
    collwire::bench::Options options;
    collwire::ProgramOptions program("Measures what probes on posted work requests cost here");
    program.add("--rounds", options.rounds, "the best round counts").range(1, 1000);
    program.add("--milliseconds", options.milliseconds, "length of each measurement, about")
        .range(1, 10000);
    if (const auto status = program.parse(argc, argv))
        return *status;
    return collwire::bench::run(options);
}
