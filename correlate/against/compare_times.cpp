// SPDX-License-Identifier: Apache-2.0
// What is said of times: ranks that come late, operations and iterations that take longer.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "correlate/against/parts.h"
#include "correlate/report/units.h"

namespace collwire::against {
namespace {

constexpr std::uint64_t LEAST_LAST_CALLS = 5;
constexpr std::size_t MOST_NICS = 8;

std::string ratio_text(const TimeComparison &of) {
    if (of.ratio && of.ratio_least && of.ratio_most)
        return fmt::format("{:.2f} times ({:.2f} to {:.2f})", *of.ratio, *of.ratio_least,
                           *of.ratio_most);
    if (of.ratio_least && of.state == CompareState::Larger)
        return fmt::format("at least {:.2f} times", *of.ratio_least);
    if (of.ratio_most && of.state == CompareState::Smaller)
        return fmt::format("at most {:.2f} times", *of.ratio_most);
    return "not to be given as a ratio";
}

double added_ns(const TimeComparison &of) {
    return of.usual_a - of.usual_b;
}

bool is_changed(const TimeComparison &of) {
    return of.state == CompareState::Larger || of.state == CompareState::Smaller;
}

std::string usual_text(const TimeComparison &of) {
    const std::string_view bound = of.is_bound ? "<= " : "";
    return fmt::format("{}{}, before {}{}", bound, ns_text(of.usual_a), bound, ns_text(of.usual_b));
}

void set_numbers(Difference &difference, const TimeComparison &of) {
    difference.ratio = of.ratio;
    difference.ratio_least = of.ratio_least;
    difference.ratio_most = of.ratio_most;
    difference.since_ns = of.since_ns;
}

struct LateRank {
    std::int64_t rank = -1;
    std::uint64_t count = 0; // of the operations it was last
    std::uint64_t all = 0;
    double share = 0; // of all spreads
};

// The rank that half of all spreads or more are of.
std::optional<LateRank> late_rank_of(const OperationGroup &group) {
    LateRank late;
    double all_ns = 0, most_ns = 0;
    for (const auto &[rank, last] : group.a.last_ranks) {
        late.all += last.count;
        all_ns += last.spread_ns;
        if (last.spread_ns > most_ns) {
            most_ns = last.spread_ns;
            late.rank = rank;
            late.count = last.count;
        }
    }
    if (late.count < LEAST_LAST_CALLS || most_ns * 2 < all_ns)
        return std::nullopt;
    late.share = most_ns / all_ns;
    return late;
}

class TimeJudge {
public:
    TimeJudge(const TwoRuns &runs, Comparison &result) : runs_(runs), result_(result) {}

    void run() {
        add_late_ranks();
        add_operations();
        add_interval();
    }

private:
    struct Effect {
        double added_ns = 0; // in all operations of A
        Difference difference;
    };

    void add_late_ranks();
    void add_operations();
    void add_interval();
    [[nodiscard]] std::string place_of(std::uint64_t comm, std::int64_t rank) const;
    [[nodiscard]] std::string nics_of_these_alone(const std::set<std::uint64_t> &comms,
                                                  const std::set<std::uint64_t> &others) const;
    void put(std::vector<Effect> effects);

    const TwoRuns &runs_;
    Comparison &result_;
    std::set<const OperationGroup *> explained_; // by ranks that come late
    bool has_longer_ = false;                    // an operation
};

std::string TimeJudge::place_of(std::uint64_t comm, std::int64_t rank) const {
    for (const rows::RankRow &row : runs_.a.of<rows::RankRow>())
        if (row.comm == comm && row.rank == rank)
            return fmt::format("{} pid {}", report::printable(row.host), row.pid);
    return "in no capture";
}

void TimeJudge::put(std::vector<Effect> effects) {
    std::ranges::stable_sort(effects, std::greater(), &Effect::added_ns);
    for (Effect &effect : effects)
        result_.differences.push_back(std::move(effect.difference));
}

// Each process that comes late once, with the operation that it delays most.
void TimeJudge::add_late_ranks() {
    struct Late {
        const OperationGroup *group = nullptr;
        LateRank rank;
        std::size_t kinds = 0;
        std::set<std::uint64_t> comms;
    };
    std::map<std::string, Late> by_place;
    std::vector<Effect> effects;
    for (const OperationGroup &group : result_.groups) {
        const TimeComparison &spread = group.of(Metric::Spread);
        if (!is_changed(spread))
            continue;
        const TimeComparison &time = group.of(Metric::Time);
        if (added_ns(spread) * 2 >= added_ns(time) && spread.state == CompareState::Larger)
            explained_.insert(&group);
        if (spread.state != CompareState::Larger)
            continue;
        const CommPair &pair = result_.matches.pairs[group.pair];
        const auto rank = late_rank_of(group);
        const std::string place =
            rank ? place_of(pair.a, rank->rank) : fmt::format("comm {}", pair.a);
        Late &late = by_place[place];
        ++late.kinds;
        late.comms.insert(pair.a);
        if (late.group == nullptr || added_ns(late.group->of(Metric::Spread)) < added_ns(spread)) {
            late.group = &group;
            late.rank = rank.value_or(LateRank{});
        }
    }
    for (const auto &[place, late] : by_place) {
        const TimeComparison &spread = late.group->of(Metric::Spread);
        const CommPair &pair = result_.matches.pairs[late.group->pair];
        const std::string others =
            late.kinds > 1 ? fmt::format("; also other operations: {}", late.kinds - 1) : "";
        Difference difference{.topic = Topic::Times,
                              .code = late.rank.rank < 0 ? "spread" : "late_rank",
                              .sentence = {},
                              .comms = {late.comms.begin(), late.comms.end()}};
        difference.sentence =
            late.rank.rank < 0
                ? fmt::format("ranks of {} call {} further apart: from first to last {}{}",
                              comm_text(pair), group_text(*late.group), usual_text(spread), others)
                : fmt::format(
                      "rank {} of {} ({}) calls {} last, {} of {} times, with {:.0f} % of the "
                      "waiting: from the first call to the last {}{}",
                      late.rank.rank, comm_text(pair), place, group_text(*late.group),
                      late.rank.count, late.rank.all, 100 * late.rank.share, usual_text(spread),
                      others);
        set_numbers(difference, spread);
        effects.push_back({.added_ns = added_ns(spread) * static_cast<double>(late.group->a.count),
                           .difference = std::move(difference)});
    }
    has_longer_ = has_longer_ || !by_place.empty();
    put(std::move(effects));
}

std::string TimeJudge::nics_of_these_alone(const std::set<std::uint64_t> &comms,
                                           const std::set<std::uint64_t> &others) const {
    if (others.empty())
        return {};
    std::map<std::uint64_t, std::set<std::string>> nics;
    for (const rows::QpRow &row : runs_.a.of<rows::QpRow>())
        if (row.comm && row.device && row.role == "data")
            nics[*row.comm].insert(fmt::format("{} {}", row.host, *row.device));
    std::set<std::string> common = nics[*comms.begin()];
    for (const std::uint64_t comm : comms)
        std::erase_if(common, [&](const std::string &nic) { return !nics[comm].contains(nic); });
    for (const std::uint64_t comm : others)
        std::erase_if(common, [&](const std::string &nic) { return nics[comm].contains(nic); });
    std::string text = fmt::format("; unchanged in {} other communicators", others.size());
    if (!common.empty())
        text += ", which do not use " + list_text({common.begin(), common.end()}, MOST_NICS);
    return text;
}

// Equal operations of communicators of one size, in one sentence.
void TimeJudge::add_operations() {
    struct Kind {
        std::vector<const OperationGroup *> larger, smaller;
        std::set<std::uint64_t> alike;
    };
    std::map<std::tuple<std::string, std::uint64_t, std::int64_t>, Kind> kinds;
    for (const OperationGroup &group : result_.groups) {
        const CommPair &pair = result_.matches.pairs[group.pair];
        Kind &kind = kinds[{group.op, group.size_bytes.value_or(0), pair.n_ranks_a}];
        const TimeComparison &time = group.of(Metric::Time);
        if (time.state == CompareState::Larger && !explained_.contains(&group))
            kind.larger.push_back(&group);
        else if (time.state == CompareState::Smaller)
            kind.smaller.push_back(&group);
        else if (time.state == CompareState::Alike)
            kind.alike.insert(pair.a);
    }
    std::vector<Effect> effects;
    for (const auto &[key, kind] : kinds)
        for (const auto *groups : {&kind.larger, &kind.smaller}) {
            if (groups->empty())
                continue;
            const OperationGroup &most =
                **std::ranges::max_element(*groups, {}, [](const OperationGroup *group) {
                    return std::abs(added_ns(group->of(Metric::Time)));
                });
            const TimeComparison &time = most.of(Metric::Time);
            const TimeComparison &transfer = most.of(Metric::Transfer);
            const bool is_transfer = transfer.state == time.state;
            Effect effect;
            std::set<std::uint64_t> comms;
            for (const OperationGroup *group : *groups) {
                comms.insert(result_.matches.pairs[group->pair].a);
                effect.added_ns +=
                    added_ns(group->of(Metric::Time)) * static_cast<double>(group->a.count);
            }
            effect.difference = {.topic = Topic::Times,
                                 .code = is_transfer ? "transfer" : "time",
                                 .sentence = {},
                                 .comms = {comms.begin(), comms.end()}};
            effect.difference.sentence =
                fmt::format("{} of {} takes {} as long: {}{}{}", group_text(most),
                            comms_text(effect.difference.comms), ratio_text(time), usual_text(time),
                            is_transfer ? ", and so from the last rank's call on" : "",
                            nics_of_these_alone(comms, kind.alike));
            set_numbers(effect.difference, time);
            has_longer_ = has_longer_ || groups == &kind.larger;
            effects.push_back(std::move(effect));
        }
    put(std::move(effects));
}

void TimeJudge::add_interval() {
    std::size_t measured = 0;
    for (const OperationGroup &group : result_.groups)
        measured +=
            group.of(Metric::Time).state >= CompareState::Alike && !group.of(Metric::Time).is_bound
                ? 1
                : 0;
    for (const OperationGroup &group : result_.groups) {
        const TimeComparison &interval = group.of(Metric::Interval);
        if (!group.is_interval_compared || !is_changed(interval))
            continue;
        const CommPair &pair = result_.matches.pairs[group.pair];
        Difference difference{
            .topic = Topic::Times, .code = "interval", .sentence = {}, .comms = {pair.a}};
        difference.sentence =
            fmt::format("{} of {} is called every {}, before every {}: {} as long",
                        group_text(group), comm_text(pair), ns_text(interval.usual_a),
                        ns_text(interval.usual_b), ratio_text(interval));
        if (interval.state == CompareState::Larger && !has_longer_)
            difference.sentence +=
                measured == 0
                    ? "; times of operations were not measured in both runs"
                    : fmt::format("; no operation that was measured in both runs ({} kinds) takes "
                                  "longer: the time was added outside of them",
                                  measured);
        set_numbers(difference, interval);
        result_.differences.push_back(std::move(difference));
    }
}

} // namespace

void compare_times(const TwoRuns &runs, Comparison &result) {
    std::size_t bounds = 0, few = 0, unknown = 0;
    for (const OperationGroup &group : result.groups) {
        const TimeComparison &time = group.of(Metric::Time);
        if (group.a.count == 0 || group.b.count == 0)
            continue;
        bounds += time.is_bound ? 1 : 0;
        few += time.state == CompareState::TooFew ? 1 : 0;
        unknown += time.state == CompareState::Unknown ? 1 : 0;
    }
    TimeJudge(runs, result).run();
    const auto say = [&](std::size_t n, std::string_view sentence) {
        if (n != 0)
            result.not_compared.push_back(
                fmt::format("times of {} kind(s) of operations: {}", n, sentence));
    };
    say(bounds, "bounds from samples, so that small differences do not show. Fix: record both "
                "runs with --network-times");
    say(few, "too few in one of the runs. Fix: record longer");
    say(unknown, "not known in both runs: nothing of them uses the network, their ends were not "
                 "recorded, or the runs captured other ranks");
}

} // namespace collwire::against
