// SPDX-License-Identifier: Apache-2.0
#include "correlate/intervals/sequence.h"

#include <algorithm>

#include <fmt/format.h>

namespace collwire::intervals {
namespace {

constexpr std::uint64_t LEAST_LENGTH_NS = 2'000'000'000; // of the first and the last one

} // namespace

Result<std::vector<Bounds>> divide(const Bounds &whole, std::uint64_t every_ns) {
    if (every_ns < LEAST_EVERY_NS)
        return error(ErrorKind::Usage, "an interval is shorter than 1 s, at which counters are "
                                       "sampled. Fix: give 1s or more");
    const std::uint64_t length_ns = whole.end_ns - std::min(whole.begin_ns, whole.end_ns);
    const std::uint64_t n = length_ns / every_ns + 1;
    if (n > MOST_INTERVALS) {
        const std::uint64_t least_s = length_ns / MOST_INTERVALS / LEAST_EVERY_NS + 1;
        return error(ErrorKind::Usage,
                     fmt::format("{} intervals are too many. Fix: give {}s or more, or a part of "
                                 "the time (--from, --to, --last)",
                                 n, least_s));
    }
    std::vector<Bounds> all;
    for (std::uint64_t begin_ns = whole.begin_ns; begin_ns < whole.end_ns;) {
        const std::uint64_t left_ns = every_ns - begin_ns % every_ns;
        const std::uint64_t end_ns =
            whole.end_ns - begin_ns > left_ns ? begin_ns + left_ns : whole.end_ns;
        all.push_back({begin_ns, end_ns});
        begin_ns = end_ns;
    }
    // A second of bytes in an interval of a millisecond is no rate.
    const std::uint64_t least_ns = std::min(LEAST_LENGTH_NS, every_ns / 2);
    if (all.size() > 1 && all.back().end_ns - all.back().begin_ns < least_ns) {
        all[all.size() - 2].end_ns = all.back().end_ns;
        all.pop_back();
    }
    if (all.size() > 1 && all.front().end_ns - all.front().begin_ns < least_ns) {
        all[1].begin_ns = all.front().begin_ns;
        all.erase(all.begin());
    }
    return all;
}

std::uint64_t count_shared(const Edges &earlier, const Edges &later) {
    if (earlier.is_numbered() && later.is_numbered() &&
        earlier.is_from_creation == later.is_from_creation)
        return earlier.last_seq < later.first_seq
                   ? 0
                   : std::min(earlier.last_seq, later.last_seq) - later.first_seq + 1;
    return std::min(earlier.at_end, later.at_begin);
}

void Sequence::add(Interval &interval) {
    const std::uint64_t number = next_++;
    interval.row.interval = number;
    for (rows::IntervalTierRow &row : interval.tiers)
        row.interval = number;
    for (rows::IntervalPortRow &row : interval.ports)
        row.interval = number;
    for (std::size_t i = 0; i < interval.comms.size(); ++i) {
        rows::IntervalCommRow &row = interval.comms[i];
        row.interval = number;
        const Comm comm{row.comm_hash, row.n_ranks};
        if (const auto before = before_.find(comm); before != before_.end()) {
            const std::uint64_t both =
                std::min(row.collectives, count_shared(before->second, interval.edges[i]));
            row.collectives -= both;
            interval.row.collectives -= std::min(interval.row.collectives, both);
        }
        before_[comm] = interval.edges[i];
    }
}

} // namespace collwire::intervals
