// SPDX-License-Identifier: Apache-2.0
// The result: what is different between two runs, and the numbers of each operation of both.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "correlate/against/match.h"
#include "correlate/against/run_rows.h"
#include "correlate/against/statistics.h"

namespace collwire::against {

// Causes before effects.
enum class Topic : std::uint8_t { Ranks, Settings, Paths, Work, Times, Recording };
[[nodiscard]] std::string_view topic_name(Topic topic);

struct Difference {
    Topic topic = Topic::Ranks;
    std::string code; // docs/against.md
    std::string sentence;
    std::vector<std::uint64_t> comms = {}; // of A
    std::optional<double> ratio = {}, ratio_least = {}, ratio_most = {};
    std::optional<std::uint64_t> since_ns = {}; // CLOCK_REALTIME, in A
};

struct RunSummary {
    std::optional<std::uint64_t> begin_ns, end_ns; // CLOCK_REALTIME
    std::vector<std::string> hosts;
    std::uint64_t ranks_captured = 0; // of the largest communicator
    std::uint64_t n_ranks = 0;        // of that
    std::uint64_t communicators = 0;
    std::uint64_t operations = 0;
    std::uint64_t lost_records = 0;
    std::vector<std::string> nccl_versions;
};

enum class Metric : std::uint8_t { Time, Spread, Transfer, Interval };
inline constexpr std::size_t METRICS = 4;
[[nodiscard]] std::string_view metric_name(Metric metric);

// Operations that a rank called last.
struct LastCallSum {
    std::uint64_t count = 0;
    double spread_ns = 0; // after the first rank, the sum of all
};

struct OperationSide {
    std::uint64_t count = 0;
    std::map<Choice, std::uint64_t> choices;
    rows::Certainty certainty = rows::Certainty::Exact; // the weakest
    std::optional<rows::ByteSource> byte_source;        // the weakest
    std::optional<std::uint64_t> payload_bytes;         // of one, the median; absent: not of all
    std::map<std::int64_t, LastCallSum> last_ranks;     // by rank
    std::uint64_t partial = 0;
};

// Equal operations of a communicator that both runs have.
struct OperationGroup {
    std::size_t pair = 0; // in Comparison::matches.pairs
    std::string op;
    std::optional<std::uint64_t> size_bytes; // the least of its class
    bool is_size_class = false;              // sizes up to twice that
    OperationSide a, b;
    TimeComparison metrics[METRICS];
    bool is_interval_compared = false;

    [[nodiscard]] const TimeComparison &of(Metric metric) const {
        return metrics[static_cast<std::size_t>(metric)];
    }
};

enum class VerdictCode : std::uint8_t { NotComparable, Alike, Different, Faster, Slower };
[[nodiscard]] std::string_view verdict_name(VerdictCode code);

struct Comparison {
    VerdictCode verdict = VerdictCode::Alike;
    std::string sentence;
    RunSummary a, b;
    Matches matches;
    std::vector<Difference> differences; // in the order of topics
    std::vector<OperationGroup> groups;  // the most time in A first
    std::vector<std::string> not_compared;
};

[[nodiscard]] Comparison compare_runs(const RunRows &a, const RunRows &b);

} // namespace collwire::against
