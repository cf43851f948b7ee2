// SPDX-License-Identifier: Apache-2.0
// Equal operations of both runs as groups, and each time of a group compared.
#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <tuple>
#include <unordered_map>

#include "correlate/against/parts.h"

namespace collwire::against {
namespace {

constexpr std::size_t MOST_SIZES = 16; // of a call in a communicator, else sizes form classes
constexpr std::uint64_t NO_SIZE = ~0ULL;
constexpr double LEAST_SPREAD_NS = 100'000;
constexpr std::size_t LEAST_INTERVALS = 6;

using CallKey = std::pair<std::size_t, std::string>;                  // pair, op
using GroupKey = std::tuple<std::size_t, std::string, std::uint64_t>; // and size

// Places of operations in a run, by the time of their calls.
using Places = std::vector<std::uint32_t>;
struct GroupPlaces {
    Places a, b;
};

struct ClockError {
    bool is_known = true;
    double ns = 0;
};

// How wrong a difference of times of two hosts may be.
ClockError clock_error_of(const RunRows &run) {
    std::uint64_t most = 0;
    for (const rows::ClockDifferenceRow &row : run.of<rows::ClockDifferenceRow>())
        most = std::max(most, row.spread_ns);
    return {.is_known =
                run.of<rows::HostRow>().size() < 2 || !run.of<rows::ClockDifferenceRow>().empty(),
            .ns = 2 * static_cast<double>(most)};
}

class OperationGrouper {
public:
    OperationGrouper(const TwoRuns &runs, Comparison &result)
        : runs_(runs), result_(result), error_a_(clock_error_of(runs.a)),
          error_b_(clock_error_of(runs.b)) {}

    void run();

private:
    void find_pairs();
    void find_size_classes();
    void add(const RunRows &run, bool is_a);
    void set_side(const RunRows &run, const Places &places, OperationSide &side) const;
    void set_metrics(std::size_t index, std::size_t comparisons);
    void compare_intervals(std::size_t comparisons);
    // Else the times of some ranks lack in one run, and with them the slowest ones.
    [[nodiscard]] bool has_equal_ranks(const CommPair &pair) const;
    [[nodiscard]] bool crosses_hosts(std::size_t pair, bool is_a) const;
    [[nodiscard]] std::vector<BoundedTime> values(Metric metric, std::size_t index,
                                                  bool is_a) const;
    [[nodiscard]] std::vector<BoundedTime> intervals(std::size_t index, bool is_a) const;
    [[nodiscard]] const std::unordered_map<std::uint64_t, std::size_t> &pairs(bool is_a) const {
        return is_a ? pair_of_a_ : pair_of_b_;
    }

    const TwoRuns &runs_;
    Comparison &result_;
    ClockError error_a_, error_b_;
    std::unordered_map<std::uint64_t, std::size_t> pair_of_a_, pair_of_b_; // by communicator
    std::set<CallKey> classed_;
    std::map<GroupKey, std::size_t> groups_;
    std::vector<bool> has_equal_ranks_; // by pair
    std::vector<GroupPlaces> places_;
};

void OperationGrouper::find_pairs() {
    for (std::size_t i = 0; i < result_.matches.pairs.size(); ++i) {
        pair_of_a_[result_.matches.pairs[i].a] = i;
        pair_of_b_[result_.matches.pairs[i].b] = i;
        has_equal_ranks_.push_back(has_equal_ranks(result_.matches.pairs[i]));
    }
}

void OperationGrouper::find_size_classes() {
    std::map<CallKey, std::set<std::uint64_t>> sizes;
    for (const bool is_a : {true, false}) {
        const RunRows &run = is_a ? runs_.a : runs_.b;
        for (const CalledOperation &operation : run.operations()) {
            const auto pair = pairs(is_a).find(operation.comm);
            if (pair == pairs(is_a).end())
                continue;
            auto &of = sizes[{pair->second, run.op_names()[operation.op]}];
            if (of.size() <= MOST_SIZES)
                of.insert(operation.size_bytes.value_or(NO_SIZE));
        }
    }
    for (const auto &[key, of] : sizes)
        if (of.size() > MOST_SIZES)
            classed_.insert(key);
}

void OperationGrouper::add(const RunRows &run, bool is_a) {
    for (std::size_t i = 0; i < run.operations().size(); ++i) {
        const CalledOperation &operation = run.operations()[i];
        const auto pair = pairs(is_a).find(operation.comm);
        if (pair == pairs(is_a).end())
            continue;
        const std::string &op = run.op_names()[operation.op];
        const bool is_class = classed_.contains({pair->second, op});
        std::uint64_t size = operation.size_bytes.value_or(NO_SIZE);
        if (is_class && size != NO_SIZE)
            size = std::bit_floor(size);
        const auto [found, is_new] =
            groups_.try_emplace(GroupKey{pair->second, op, size}, result_.groups.size());
        if (is_new) {
            OperationGroup &group = result_.groups.emplace_back();
            group.pair = pair->second;
            group.op = op;
            group.is_size_class = is_class;
            if (size != NO_SIZE)
                group.size_bytes = size;
            places_.emplace_back();
        }
        GroupPlaces &places = places_[found->second];
        (is_a ? places.a : places.b).push_back(static_cast<std::uint32_t>(i));
    }
    for (GroupPlaces &places : places_)
        std::ranges::stable_sort(is_a ? places.a : places.b, {}, [&](std::uint32_t place) {
            return run.operations()[place].called_realtime_ns;
        });
}

void OperationGrouper::set_side(const RunRows &run, const Places &places,
                                OperationSide &side) const {
    side.count = places.size();
    std::vector<std::uint64_t> payloads;
    bool has_source = true;
    for (const std::uint32_t place : places) {
        const CalledOperation &operation = run.operations()[place];
        ++side.choices[run.choices()[operation.choice]];
        side.certainty = std::min(side.certainty, operation.certainty);
        if (!operation.byte_source)
            has_source = false;
        else if (!side.byte_source || *operation.byte_source < *side.byte_source)
            side.byte_source = operation.byte_source;
        if (operation.last_rank >= 0) {
            LastCallSum &last = side.last_ranks[operation.last_rank];
            ++last.count;
            last.spread_ns += static_cast<double>(operation.spread_ns.value_or(0));
        }
        side.partial += operation.is_partial ? 1 : 0;
        if (operation.payload_bytes && !operation.is_partial)
            payloads.push_back(*operation.payload_bytes);
    }
    if (!has_source)
        side.byte_source.reset();
    if (!payloads.empty() && payloads.size() + side.partial >= places.size()) {
        std::ranges::sort(payloads);
        side.payload_bytes = payloads[payloads.size() / 2];
    }
}

std::vector<std::int64_t> ranks_of(const RankPlaces &places, std::uint64_t comm) {
    std::vector<std::int64_t> ranks;
    for (auto at = places.lower_bound({comm, INT64_MIN});
         at != places.end() && at->first.first == comm; ++at)
        ranks.push_back(at->first.second);
    return ranks;
}

bool OperationGrouper::has_equal_ranks(const CommPair &pair) const {
    const auto a = ranks_of(result_.matches.places_a, pair.a);
    const auto b = ranks_of(result_.matches.places_b, pair.b);
    return a == b || (std::ssize(a) == pair.n_ranks_a && std::ssize(b) == pair.n_ranks_b);
}

bool OperationGrouper::crosses_hosts(std::size_t pair, bool is_a) const {
    const CommPair &of = result_.matches.pairs[pair];
    const RankPlaces &places = is_a ? result_.matches.places_a : result_.matches.places_b;
    const std::uint64_t comm = is_a ? of.a : of.b;
    const auto first = places.lower_bound({comm, INT64_MIN});
    for (auto at = first; at != places.end() && at->first.first == comm; ++at)
        if (at->second.node != first->second.node)
            return true;
    return false;
}

std::vector<BoundedTime> OperationGrouper::values(Metric metric, std::size_t index,
                                                  bool is_a) const {
    const RunRows &run = is_a ? runs_.a : runs_.b;
    const bool crosses = crosses_hosts(result_.groups[index].pair, is_a);
    const ClockError &of_clocks = is_a ? error_a_ : error_b_;
    const double error = crosses ? of_clocks.ns : 0;
    std::vector<BoundedTime> times;
    if (!has_equal_ranks_[result_.groups[index].pair] ||
        (metric != Metric::Time && crosses && !of_clocks.is_known))
        return times;
    for (const std::uint32_t place : is_a ? places_[index].a : places_[index].b) {
        const CalledOperation &operation = run.operations()[place];
        const bool has_time = operation.least_ns && operation.most_ns;
        const bool needs_time = metric != Metric::Spread;
        const bool needs_spread = metric != Metric::Time;
        if ((needs_time && !has_time) ||
            (needs_spread && !operation.spread_ns && !operation.most_spread_ns))
            continue;
        BoundedTime time{.at_ns = operation.called_realtime_ns};
        double least_spread = 0, most_spread = 0;
        if (needs_spread && operation.spread_ns) {
            least_spread = static_cast<double>(*operation.spread_ns) - error;
            most_spread = static_cast<double>(*operation.spread_ns) + error;
        } else if (needs_spread) {
            most_spread = static_cast<double>(*operation.most_spread_ns);
        }
        const double least = needs_time ? static_cast<double>(*operation.least_ns) : 0;
        const double most = needs_time ? static_cast<double>(*operation.most_ns) : 0;
        switch (metric) {
        case Metric::Spread:
            time.least = least_spread;
            time.most = most_spread;
            break;
        case Metric::Transfer:
            time.least = least - most_spread;
            time.most = most - least_spread;
            break;
        case Metric::Time:
        case Metric::Interval:
            time.least = least;
            time.most = most;
            break;
        }
        time.least = std::max(time.least, 0.0);
        time.most = std::max(time.most, 0.0);
        times.push_back(time);
    }
    return times;
}

void OperationGrouper::set_metrics(std::size_t index, std::size_t comparisons) {
    OperationGroup &group = result_.groups[index];
    for (const Metric metric : {Metric::Time, Metric::Spread, Metric::Transfer}) {
        ClaimRule rule{.comparisons = comparisons};
        if (metric == Metric::Spread)
            rule.least_difference =
                std::max(LEAST_SPREAD_NS, LEAST_CHANGE * group.of(Metric::Time).usual_b);
        group.metrics[static_cast<std::size_t>(metric)] =
            compare_times(values(metric, index, true), values(metric, index, false), rule);
    }
}

std::vector<BoundedTime> OperationGrouper::intervals(std::size_t index, bool is_a) const {
    const RunRows &run = is_a ? runs_.a : runs_.b;
    const Places &places = is_a ? places_[index].a : places_[index].b;
    std::vector<BoundedTime> times;
    for (std::size_t i = 1; i < places.size(); ++i) {
        const std::uint64_t from = run.operations()[places[i - 1]].called_realtime_ns;
        const std::uint64_t to = run.operations()[places[i]].called_realtime_ns;
        const auto between = static_cast<double>(to - from);
        if (from != 0)
            times.push_back({.least = between, .most = between, .at_ns = from});
    }
    return times;
}

// From the tenth to the ninetieth percentile, of the median.
double irregularity(std::vector<BoundedTime> times) {
    std::ranges::sort(times, {}, &BoundedTime::most);
    const double half = times[times.size() / 2].most;
    return half == 0 ? INFINITY
                     : (times[times.size() * 9 / 10].most - times[times.size() / 10].most) / half;
}

void OperationGrouper::compare_intervals(std::size_t comparisons) {
    std::size_t best = result_.groups.size();
    double least = INFINITY;
    for (std::size_t i = 0; i < result_.groups.size(); ++i) {
        if (result_.groups[i].op == "SendRecv" || result_.groups[i].is_size_class ||
            std::min(places_[i].a.size(), places_[i].b.size()) <= LEAST_INTERVALS)
            continue;
        const auto of_a = intervals(i, true), of_b = intervals(i, false);
        if (std::min(of_a.size(), of_b.size()) < LEAST_INTERVALS)
            continue;
        // A long recording of B is cheap to judge, and A may have changed.
        if (const double of = irregularity(of_b); of < least) {
            least = of;
            best = i;
        }
    }
    if (best == result_.groups.size())
        return;
    OperationGroup &group = result_.groups[best];
    group.is_interval_compared = true;
    group.metrics[static_cast<std::size_t>(Metric::Interval)] =
        compare_times(intervals(best, true), intervals(best, false), {.comparisons = comparisons});
}

void OperationGrouper::run() {
    find_pairs();
    find_size_classes();
    add(runs_.a, true);
    add(runs_.b, false);
    std::size_t comparisons = 1; // the interval
    for (std::size_t i = 0; i < result_.groups.size(); ++i) {
        set_side(runs_.a, places_[i].a, result_.groups[i].a);
        set_side(runs_.b, places_[i].b, result_.groups[i].b);
        for (const Metric metric : {Metric::Time, Metric::Spread, Metric::Transfer})
            comparisons += !values(metric, i, true).empty() && !values(metric, i, false).empty();
    }
    for (std::size_t i = 0; i < result_.groups.size(); ++i)
        set_metrics(i, comparisons);
    compare_intervals(comparisons);
}

} // namespace

void group_operations(const TwoRuns &runs, Comparison &result) {
    OperationGrouper(runs, result).run();
}

} // namespace collwire::against
