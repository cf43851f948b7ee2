// SPDX-License-Identifier: Apache-2.0
#include "correlate/stall/judge.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "correlate/diagnose/circles.h"
#include "correlate/report/units.h"
#include "correlate/roles/label.h"

namespace collwire::stall {
namespace {

using verdict::Code;
using verdict::Confidence;
using verdict::Severity;
using verdict::Verdict;

constexpr std::size_t MOST_NAMED = 8;
// Of each rank that waits: half of a large communicator may be late.
constexpr std::size_t MOST_AWAITED = 64;
// A rank that is late by that many times its longest pause so far is not merely slow.
constexpr std::uint64_t PAUSES = 3;
constexpr const char *INSPECT = "captures do not show whether its program waits, computes or is "
                                "stopped: `collwire inspect` on a job that still hangs does";

std::string title_of(const Communicator &comm) {
    return roles::title_of(comm.name, comm.hash, comm.guessed_role, comm.n_ranks);
}

std::string ranks_text(const std::vector<std::int32_t> &ranks) {
    if (ranks.size() == 1)
        return fmt::format("rank {}", ranks.front());
    const std::size_t named = std::min(ranks.size(), MOST_NAMED);
    std::string text = fmt::format(
        "ranks {}", fmt::join(ranks.begin(), ranks.begin() + static_cast<long>(named), ", "));
    return named == ranks.size() ? text : text + fmt::format(" and {} more", ranks.size() - named);
}

const Rank *find_rank(const Communicator &comm, std::int32_t rank) {
    const auto found = std::ranges::find(comm.ranks, rank, &Rank::rank);
    return found == comm.ranks.end() ? nullptr : &*found;
}

std::string name_of(const Communicator &comm, std::int32_t rank) {
    const Rank *found = find_rank(comm, rank);
    return found == nullptr ? fmt::format("rank {}", rank)
                            : fmt::format("rank {} ({}, pid {})", rank, found->host, found->pid);
}

std::uint64_t since(std::uint64_t from_ns, std::uint64_t until_ns) {
    return from_ns == 0 ? 0 : until_ns - std::min(until_ns, from_ns);
}

Verdict about(const Communicator &comm, Code code, std::int32_t rank) {
    Verdict verdict;
    verdict.code = code;
    verdict.subject.communicator = comm.hash;
    verdict.subject.communicator_name = comm.name;
    verdict.subject.guessed_role = comm.guessed_role;
    verdict.subject.rank = rank;
    if (const Rank *found = find_rank(comm, rank)) {
        verdict.subject.host = found->host;
        verdict.subject.pid = found->pid;
    }
    return verdict;
}

// Ranks of one communicator that others wait for.
struct Lag {
    std::vector<const Rank *> late, waiting;
    std::size_t operation = 0; // the first one that the late ranks lack
    bool is_launch = false;    // they have called it
    std::uint64_t waited_ns = 0;
};

using Progress = std::optional<std::size_t> Rank::*;

// The least and the most: absent is less than any.
Lag lag_by(const Communicator &comm, Progress of) {
    Lag lag;
    if (comm.ranks.empty())
        return lag;
    const auto less = [of](const Rank &a, const Rank &b) { return a.*of < b.*of; };
    const auto [least, most] = std::ranges::minmax_element(comm.ranks, less);
    if ((*least).*of == (*most).*of)
        return lag;
    const std::optional<std::size_t> last = (*least).*of;
    for (const Rank &rank : comm.ranks)
        (rank.*of == last ? lag.late : lag.waiting).push_back(&rank);
    lag.operation = last ? *last + 1 : 0;
    for (const Rank *rank : lag.waiting)
        lag.waited_ns = std::max(lag.waited_ns, since(rank->called_ns, rank->until_ns));
    return lag;
}

Lag lag_of(const Communicator &comm) {
    Lag lag = lag_by(comm, &Rank::called);
    if (lag.late.empty()) {
        // API-only recordings have no launches.
        if (!comm.has_all_launches ||
            std::ranges::any_of(comm.ranks, [](const Rank &rank) { return !rank.launched; }))
            return lag;
        lag = lag_by(comm, &Rank::launched);
        lag.is_launch = true;
    }
    return lag.waited_ns < LEAST_WAIT_NS ? Lag{} : lag;
}

// A wait of one process for another.
struct Wait {
    std::size_t from = 0, to = 0; // places
    std::size_t comm = 0;
    std::int32_t from_rank = -1, to_rank = -1;
};

class Judge {
public:
    explicit Judge(const Standings &job) : job_(job), lags_(job.communicators.size()) {}

    std::vector<Verdict> run() {
        for (std::size_t i = 0; i < job_.communicators.size(); ++i) {
            const Communicator &comm = job_.communicators[i];
            if (comm.is_comparable)
                lags_[i] = lag_of(comm);
            if (find_error(comm, lags_[i]) || find_difference(comm, lags_[i])) {
                explained_.insert(i);
                continue;
            }
            collect_waits(i);
        }
        for (std::size_t i = 0; i < job_.communicators.size(); ++i)
            if (!explained_.contains(i))
                find_late_ranks(i);
        join_late_processes();
        find_circle();
        for (std::size_t i = 0; i < job_.communicators.size(); ++i)
            if (!explained_.contains(i))
                find_stalled_transfer(i);
        speak_of_network();
        return std::move(verdicts_);
    }

private:
    // An exit long after the wait began is its consequence.
    bool find_error(const Communicator &comm, const Lag &lag) {
        if (!comm.error)
            return false;
        const FirstError &error = *comm.error;
        if (!lag.late.empty()) {
            const std::uint64_t began_ns = comm.operations[lag.operation].begin_ns;
            if (began_ns != 0 && error.time_ns > began_ns + LEAST_WAIT_NS)
                return false;
        }
        Verdict verdict =
            about(comm, error.is_exit ? Code::RankExited : Code::NcclError, error.rank);
        if (error.is_exit && error.waiting.empty())
            return false;
        verdict.from_realtime_ns = error.time_ns;
        verdict.sentence =
            error.is_exit ? fmt::format("{}: its process ended, and {} waited for it after that",
                                        name_of(comm, error.rank), ranks_text(error.waiting))
                          : fmt::format("{}: NCCL reported an error first: {}",
                                        name_of(comm, error.rank), error.text);
        if (const Rank *rank = find_rank(comm, error.rank))
            add_last_call(comm, *rank, verdict);
        verdicts_.push_back(std::move(verdict));
        return true;
    }

    // Only where something waits: NCCL also completes some operations with other arguments.
    bool find_difference(const Communicator &comm, const Lag &lag) {
        if (lag.late.empty() && !is_any_in_flight(comm))
            return false;
        const auto found = std::ranges::find(comm.operations, true, &Operation::differs);
        if (found == comm.operations.end())
            return false;
        const Operation &operation = *found;
        std::int32_t odd = -1;
        if (operation.variants.size() == 2 &&
            operation.variants[0].ranks.size() != operation.variants[1].ranks.size()) {
            const auto &fewer = std::ranges::min(operation.variants, {},
                                                 [](const auto &one) { return one.ranks.size(); });
            odd = fewer.ranks.size() == 1 ? fewer.ranks.front() : -1;
        }
        Verdict verdict = about(comm, Code::CallsDiffer, odd);
        verdict.from_realtime_ns = operation.begin_ns;
        verdict.sentence = "ranks call different operations in one place";
        std::vector<std::string> parts;
        for (const Operation::Variant &variant : operation.variants)
            parts.push_back(fmt::format("{}: {}", ranks_text(variant.ranks), variant.text));
        verdict.sentence += fmt::format(": {}", fmt::join(parts, "; "));
        verdicts_.push_back(std::move(verdict));
        return true;
    }

    static bool is_any_in_flight(const Communicator &comm) {
        return std::ranges::any_of(comm.ranks,
                                   [&](const Rank &rank) { return is_held(comm, rank); });
    }

    // An operation is in flight for long enough.
    static bool is_held(const Communicator &comm, const Rank &rank) {
        return rank.in_flight && since(comm.operations[*rank.in_flight].begin_ns,
                                       rank.in_flight_seen_ns) >= LEAST_WAIT_NS;
    }

    std::size_t place_of(const Rank &rank) {
        return places_.emplace(std::pair(rank.host, rank.pid), places_.size()).first->second;
    }

    void collect_waits(std::size_t index) {
        const Communicator &comm = job_.communicators[index];
        const Lag &lag = lags_[index];
        for (const Rank *from : lag.waiting)
            for (std::size_t i = 0; i < std::min(lag.late.size(), MOST_AWAITED); ++i)
                add_wait(index, *from, *lag.late[i]);
        for (const OpenPair &pair : comm.open_pairs) {
            const Rank *from = find_rank(comm, pair.from), *to = find_rank(comm, pair.awaits);
            if (from != nullptr && to != nullptr &&
                since(pair.since_ns, from->until_ns) >= LEAST_WAIT_NS)
                add_wait(index, *from, *to);
        }
        for (const Rank &rank : comm.ranks)
            if (is_held(comm, rank))
                held_.insert(place_of(rank));
    }

    void add_wait(std::size_t comm, const Rank &from, const Rank &to) {
        const std::size_t one = place_of(from), other = place_of(to);
        if (one == other)
            return;
        waits_.push_back({one, other, comm, from.rank, to.rank});
        waiting_.insert(one);
    }

    // It waits for no other rank, and nothing of it is in flight, in any communicator.
    // Without the network that is not known: then a majority is not late, but waits as well.
    [[nodiscard]] bool is_root(const Rank &rank, const Lag &lag) {
        const std::size_t place = place_of(rank);
        return !waiting_.contains(place) && !held_.contains(place) && rank.is_done != false &&
               (rank.is_done == true || lag.late.size() <= lag.waiting.size());
    }

    void find_late_ranks(std::size_t index) {
        const Communicator &comm = job_.communicators[index];
        const Lag &lag = lags_[index];
        std::vector<std::int32_t> waiting;
        for (const Rank *rank : lag.waiting)
            waiting.push_back(rank->rank);
        std::vector<std::int32_t> unseen;
        for (const Rank *rank : lag.late)
            if (!is_seen(comm, lag, *rank)) {
                unseen.push_back(rank->rank);
            } else if (is_root(*rank, lag)) {
                add_late(comm, lag, *rank, waiting);
                explained_.insert(index);
            }
        if (!unseen.empty())
            add_unseen(index, unseen, waiting);
        std::set<std::int32_t> named;
        for (const OpenPair &pair : comm.open_pairs) {
            const Rank *from = find_rank(comm, pair.from), *to = find_rank(comm, pair.awaits);
            if (from == nullptr || to == nullptr || !is_root(*to, lag) ||
                since(pair.since_ns, to->whole_until_ns) < LEAST_WAIT_NS ||
                since(pair.since_ns, from->until_ns) < LEAST_WAIT_NS ||
                !named.insert(to->rank).second)
                continue;
            Verdict verdict = about(comm, Code::RankNotCalled, to->rank);
            verdict.from_realtime_ns = pair.since_ns;
            verdict.until_realtime_ns = from->until_ns;
            verdict.confidence = Confidence::Probable;
            verdict.sentence = fmt::format("{} has not called {}: rank {} waits for it, for {}",
                                           name_of(comm, to->rank), pair.text, pair.from,
                                           report::duration(since(pair.since_ns, from->until_ns)));
            add_last_call(comm, *to, verdict);
            verdict.evidence.emplace_back(INSPECT);
            verdicts_.push_back(std::move(verdict));
        }
    }

    // Whether its capture covers the wait.
    static bool is_seen(const Communicator &comm, const Lag &lag, const Rank &rank) {
        return since(comm.operations[lag.operation].begin_ns, rank.whole_until_ns) >= LEAST_WAIT_NS;
    }

    // Its records end with its process, and are whole up to then.
    static bool has_exited(const Communicator &comm, std::int32_t rank) {
        const Rank *found = find_rank(comm, rank);
        return found != nullptr && found->exited_ns != 0 &&
               found->whole_until_ns >= found->until_ns;
    }

    void add_exited(std::size_t index, std::int32_t rank,
                    const std::vector<std::int32_t> &waiting) {
        const Communicator &comm = job_.communicators[index];
        const Lag &lag = lags_[index];
        Verdict verdict = about(comm, Code::RankExited, rank);
        verdict.from_realtime_ns = comm.operations[lag.operation].begin_ns;
        verdict.sentence =
            fmt::format("{}: its process ended, and {} waited for it in {}, for {}",
                        name_of(comm, rank), ranks_text(waiting),
                        comm.operations[lag.operation].text, report::duration(lag.waited_ns));
        add_last_call(comm, *find_rank(comm, rank), verdict);
        verdicts_.push_back(std::move(verdict));
        explained_.insert(index);
    }

    void add_unseen(std::size_t index, const std::vector<std::int32_t> &ranks,
                    const std::vector<std::int32_t> &waiting) {
        const Communicator &comm = job_.communicators[index];
        const Lag &lag = lags_[index];
        if (!explained_.contains(index)) {
            for (const std::int32_t rank : ranks)
                if (has_exited(comm, rank))
                    add_exited(index, rank, waiting);
            if (explained_.contains(index))
                return;
        }
        const std::string what =
            fmt::format("the captures of {} end, or lost records, before the others waited for {}",
                        ranks_text(ranks), comm.operations[lag.operation].text);
        if (explained_.contains(index)) {
            verdicts_.back().evidence.push_back(what + ": whether they called it is not known");
            return;
        }
        Verdict verdict =
            about(comm, Code::RankWithoutCapture, ranks.size() == 1 ? ranks.front() : -1);
        verdict.confidence = Confidence::Probable;
        verdict.from_realtime_ns = comm.operations[lag.operation].begin_ns;
        verdict.sentence = "no recorded rank is late, and " + what;
        verdict.evidence.emplace_back("Fix: add the rest of those captures, if it exists");
        verdicts_.push_back(std::move(verdict));
        explained_.insert(index);
    }

    void add_late(const Communicator &comm, const Lag &lag, const Rank &rank,
                  const std::vector<std::int32_t> &waiting) {
        Verdict verdict =
            about(comm, lag.is_launch ? Code::RankNotLaunched : Code::RankNotCalled, rank.rank);
        const Operation &operation = comm.operations[lag.operation];
        verdict.from_realtime_ns = operation.begin_ns;
        for (const Rank *one : lag.waiting)
            verdict.until_realtime_ns = std::max(verdict.until_realtime_ns, one->until_ns);
        const bool is_slow = rank.longest_pause_ns * PAUSES > lag.waited_ns;
        verdict.confidence = is_slow || !rank.is_done ? Confidence::Probable : Confidence::Certain;
        verdict.sentence =
            fmt::format("{} has not {} {}: {} {} for it, for {}", name_of(comm, rank.rank),
                        lag.is_launch ? "launched" : "called", operation.text, ranks_text(waiting),
                        waiting.size() == 1 ? "waits" : "wait", report::duration(lag.waited_ns));
        add_last_call(comm, rank, verdict);
        if (is_slow)
            verdict.evidence.push_back(
                fmt::format("it paused for {} before: it may be slow, and not stuck",
                            report::duration(rank.longest_pause_ns)));
        verdict.evidence.emplace_back(INSPECT);
        verdicts_.push_back(std::move(verdict));
    }

    // A process that is late in several communicators is one cause: the surest verdict stays, with
    // the others as its evidence.
    void join_late_processes() {
        std::map<std::pair<std::string, std::uint32_t>, std::size_t> first;
        std::vector<Verdict> joined;
        std::ranges::stable_sort(verdicts_, {}, &Verdict::confidence);
        for (Verdict &verdict : verdicts_) {
            const bool is_late =
                verdict.code == Code::RankNotCalled || verdict.code == Code::RankNotLaunched;
            const auto [found, is_new] = first.try_emplace(
                std::pair(verdict.subject.host, verdict.subject.pid), joined.size());
            if (!is_late || is_new) {
                joined.push_back(std::move(verdict));
                continue;
            }
            const verdict::Subject &subject = verdict.subject;
            joined[found->second].evidence.push_back(
                fmt::format("also in {}: {}",
                            roles::label_of(subject.communicator_name, subject.communicator,
                                            subject.guessed_role),
                            verdict.sentence));
        }
        verdicts_ = std::move(joined);
    }

    static void add_last_call(const Communicator &comm, const Rank &rank, Verdict &verdict) {
        if (rank.called)
            verdict.evidence.push_back(fmt::format("its last call: {}, at {} UTC",
                                                   comm.operations[*rank.called].text,
                                                   report::utc_time(rank.called_ns)));
        else
            verdict.evidence.emplace_back("it made no call in this communicator");
        if (rank.exited_ns != 0)
            verdict.evidence.push_back(
                fmt::format("its process ended before {} UTC", report::utc_time(rank.exited_ns)));
    }

    void find_circle() {
        std::vector<diagnose::WaitEdge> edges;
        for (const Wait &wait : waits_)
            edges.push_back({wait.from, wait.to, wait.comm});
        for (const auto &circle : diagnose::find_circles(std::move(edges))) {
            Verdict verdict;
            verdict.code = Code::WaitCircle;
            verdict.confidence = Confidence::Probable;
            verdict.sentence = fmt::format("{} ranks wait for each other, each in another "
                                           "communicator: none of them can continue",
                                           circle.size());
            for (const diagnose::WaitEdge &edge : circle) {
                const auto wait = std::ranges::find_if(waits_, [&](const Wait &one) {
                    return one.from == edge.from && one.to == edge.to && one.comm == edge.comm;
                });
                const Communicator &comm = job_.communicators[edge.comm];
                verdict.evidence.push_back(fmt::format("{} waits in {} for rank {}",
                                                       name_of(comm, wait->from_rank),
                                                       title_of(comm), wait->to_rank));
                explained_.insert(edge.comm);
            }
            verdict.evidence.emplace_back(
                "ranks called operations of these communicators in different orders. Captures do "
                "not show whether a program waits for an operation before its next call");
            verdicts_.push_back(std::move(verdict));
        }
    }

    void find_stalled_transfer(std::size_t index) {
        const Communicator &comm = job_.communicators[index];
        const Rank *first = nullptr;
        for (const Rank &rank : comm.ranks)
            if (is_held(comm, rank) && (first == nullptr || *rank.in_flight < *first->in_flight))
                first = &rank;
        if (first == nullptr)
            return;
        // Ranks that lag explain it, here or in another communicator.
        const Lag &lag = lags_[index];
        if (!lag.late.empty() && lag.operation <= *first->in_flight)
            return;
        const Operation &operation = comm.operations[*first->in_flight];
        std::vector<std::int32_t> in_flight;
        std::uint64_t until_ns = 0;
        for (const Rank &rank : comm.ranks)
            if (rank.in_flight == first->in_flight) {
                in_flight.push_back(rank.rank);
                until_ns = std::max(until_ns, rank.in_flight_seen_ns);
            }
        const bool is_blind = !comm.missing.empty();
        Verdict verdict = about(comm,
                                !comm.is_comparable ? Code::RanksNotComparable
                                : is_blind          ? Code::RankWithoutCapture
                                                    : Code::TransferStalled,
                                is_blind && comm.missing.size() == 1 ? comm.missing.front() : -1);
        verdict.confidence = Confidence::Probable;
        verdict.from_realtime_ns = operation.begin_ns;
        verdict.until_realtime_ns = until_ns;
        const std::string wait =
            fmt::format("{} had {} in flight for {}", ranks_text(in_flight), operation.text,
                        report::duration(since(operation.begin_ns, until_ns)));
        if (!comm.is_comparable)
            verdict.sentence = wait + "; the calls of its ranks cannot be compared";
        else if (is_blind)
            verdict.sentence = fmt::format("no recorded rank is late, and {} {} in no capture: {}",
                                           ranks_text(comm.missing),
                                           comm.missing.size() == 1 ? "is" : "are", wait);
        else
            verdict.sentence =
                fmt::format("all {} ranks have launched {}, and it did not finish: {}",
                            comm.n_ranks, operation.text, wait);
        verdict.evidence.push_back(
            is_blind ? "Fix: add the captures of those ranks' nodes"
                     : "captures do not show which rank's GPU, proxy or network is at fault: "
                       "`collwire inspect` on a job that still hangs does");
        verdicts_.push_back(std::move(verdict));
    }

    void speak_of_network() {
        if (verdicts_.empty())
            return;
        const Network &network = job_.network;
        if (!network.against.empty()) {
            for (Verdict &verdict : verdicts_)
                for (const std::string &one : network.against)
                    verdict.evidence.push_back("network: " + one);
            return;
        }
        // A process that ended, or an error, may have the network as its cause.
        const bool is_known = std::ranges::all_of(verdicts_, [](const Verdict &verdict) {
            return verdict.confidence == Confidence::Certain &&
                   (verdict.code == Code::RankNotCalled || verdict.code == Code::CallsDiffer);
        });
        if (!is_known || !network.is_watched)
            return;
        Verdict verdict;
        verdict.code = Code::NetworkInnocent;
        verdict.severity = Severity::Note;
        verdict.sentence = "the network is innocent: the cause above is outside of it";
        verdict.evidence = network.in_favour;
        verdicts_.push_back(std::move(verdict));
    }

    const Standings &job_;
    std::vector<Lag> lags_; // by communicator
    std::vector<Verdict> verdicts_;
    std::set<std::size_t> explained_; // communicators
    std::map<std::pair<std::string, std::uint32_t>, std::size_t> places_;
    std::vector<Wait> waits_;
    std::set<std::size_t> waiting_, held_; // places
};

} // namespace

std::vector<Verdict> judge(const Standings &job) {
    return Judge(job).run();
}

} // namespace collwire::stall
