// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/cost_printer.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "collwire/node_records.h"

namespace collwire::record {
namespace {

struct Range {
    double low_us = 0, high_us = 0;

    [[nodiscard]] Range scaled(double factor) const { return {low_us * factor, high_us * factor}; }
    [[nodiscard]] Range plus(double us) const { return {low_us + us, high_us + us}; }
};

// The work of the two programs of an operation, besides their traps, by proxy operations. The least
// and the greatest of two machines: docs/sources/nccl.md, Cost.
struct OfOperation {
    int connections;
    Range programs;
};
constexpr OfOperation OPERATIONS[] = {{2, {0.6, 2.2}}, {16, {1.7, 2.8}}, {64, {5.0, 6.7}}};
// The same of the two programs of --network-times: the same page.
constexpr Range NETWORK_TIMES{1.0, 1.2};
// A program of NCCL's or of a batch of work requests, where its own is not known.
constexpr double PROGRAM_NS = 170;
constexpr int TRAPS = 2; // of an operation, and of --network-times
constexpr int STEP_OPERATIONS = 1000, STEP_POSTS = 10'000;

std::string text_of(const Range &range) {
    return fmt::format("{:.1f} to {:.1f}", range.low_us, range.high_us);
}

std::string slices_text(const RecordOptions &options) {
    if (options.posts != PostsMode::Auto || !options.nccl || options.posts_on_ns == 0)
        return "";
    return fmt::format(". While all queue pairs are NCCL's: in {:g} s of each {:g} s",
                       static_cast<double>(options.posts_on_ns) / 1e9,
                       static_cast<double>(options.posts_period_ns) / 1e9);
}

} // namespace

std::uint32_t cost_here_ns(const source::PlannedProbe &probe, const calibrate::TrapCosts &costs) {
    const double program_ns =
        probe.source == "posts" ? std::max(0.0, costs.post_ns - costs.emulated_ns) : PROGRAM_NS;
    double trap_ns = 0;
    if (probe.expected_cost_ns == 0)
        return 0;
    if (probe.kind == CW_PROBE_URETPROBE)
        trap_ns = costs.return_ns;
    else if (probe.kind == CW_PROBE_UPROBE)
        trap_ns = probe.emulated ? costs.emulated_ns : costs.single_stepped_ns;
    else
        return 0;
    return static_cast<std::uint32_t>(std::lround(trap_ns + program_ns));
}

void print_costs(std::FILE *out, const calibrate::TrapCosts &costs, const RecordOptions &options) {
    fmt::print(out,
               "Measured on this machine, the best of {} rounds: a trap takes {:.2f} us, a return "
               "probe {:.2f} us, a single-stepped instruction {:.2f} us\n",
               costs.rounds, costs.emulated_ns / 1e3, costs.return_ns / 1e3,
               costs.single_stepped_ns / 1e3);
    const double traps_us = TRAPS * costs.emulated_ns / 1e3;
    if (options.nccl) {
        for (const OfOperation &operation : OPERATIONS)
            fmt::print(out, "  launching thread: one operation on {} connections {} us\n",
                       operation.connections, text_of(operation.programs.plus(traps_us)));
        const Range step{OPERATIONS[0].programs.low_us, std::end(OPERATIONS)[-1].programs.high_us};
        fmt::print(out, "  launching thread: {} operations on 2 to 64 connections {} ms\n",
                   STEP_OPERATIONS, text_of(step.plus(traps_us).scaled(STEP_OPERATIONS / 1e3)));
        if (options.network_times)
            fmt::print(out,
                       "  proxy thread, --network-times: one operation on one connection {} us\n",
                       text_of(NETWORK_TIMES.plus(traps_us)));
    }
    if (options.posts == PostsMode::Off)
        fmt::print(out, "  proxy thread: no probe on posts\n");
    else
        fmt::print(out,
                   "  proxy thread: one post of one work request to a NIC {:.2f} us, {} posts "
                   "{:.1f} ms{}\n",
                   costs.post_ns / 1e3, STEP_POSTS, costs.post_ns * STEP_POSTS / 1e6,
                   slices_text(options));
    fmt::print(out, "Of an operation the traps were measured here, the work of the programs on two "
                    "other machines; of a post all was measured here, without a NIC\n");
}

} // namespace collwire::record
