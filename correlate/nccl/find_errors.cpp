// SPDX-License-Identifier: Apache-2.0
// Joins the signs of errors to one entry each: the error of a rank's process, its queue pairs, and
// its operation.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "collwire/qp_records.h"
#include "correlate/model/address.h"
#include "correlate/model/counters.h"
#include "correlate/nccl/error_parts.h"
#include "correlate/nccl/error_text.h"
#include "correlate/nccl/resolve.h"
#include "correlate/nccl/under_way.h"
#include "correlate/nccl/warning_text.h"

namespace collwire::nccl {

using model::Model;

namespace {

// NCCL keeps a result right after its message: one poll reads both, or two in a row.
constexpr std::uint64_t SAME_LOOK_NS = 3'000'000'000;

// An exiting process closes its resources first and exists until its memory is freed.
constexpr std::uint64_t EXIT_NS = 5'000'000'000;

// After a rank's exit, other ranks may be in an operation that they still finish: one poll's
// records come later than the next poll, and hosts' clocks differ.
constexpr std::uint64_t FINISHES_NS = 2'000'000'000;

// Limit per process, so that one that fails a thousand times is not slow.
constexpr std::size_t MAX_TOGETHER = 1000;
constexpr std::size_t MAX_WAITING = 256; // listed ranks

class ErrorFinder {
public:
    explicit ErrorFinder(Model &model) : model_(model), nccl_(model.nccl) {
        for (NcclError &text : errors_of_texts(model))
            texts_[process_of(text)].push_back(std::move(text));
        for (NcclError &qps : errors_of_queue_pairs(model))
            qps_[process_of(qps)].push_back(std::move(qps));
        index_sockets();
    }

    void run() {
        std::vector<NcclError> results = errors_of_results(model_);
        for (NcclError &result : results) {
            take_text(result);
            take_queue_pairs(result);
            take_socket(result);
        }
        nccl_.errors = std::move(results);
        for (auto &[process, errors] : qps_)
            for (NcclError &error : errors)
                // Destroyed by their owner without an error.
                if (!error.is_destroyed)
                    nccl_.errors.push_back(std::move(error));
        add_explained_ends();
        add_queue_pairs_of_ends();
        for (auto &[process, texts] : texts_)
            std::move(texts.begin(), texts.end(), std::back_inserter(nccl_.errors));
        find_operations();
        put_in_order();
    }

private:
    using ProcessKey = std::pair<Index, std::uint32_t>; // session, tgid
    using OfProcess = std::map<ProcessKey, std::vector<NcclError>>;

    static ProcessKey process_of(const NcclError &error) { return {error.session, error.tgid}; }
    void index_sockets();
    void take_text(NcclError &result);
    void take_queue_pairs(NcclError &result);
    void take_socket(NcclError &result) const;
    [[nodiscard]] bool is_of(const CompletionText &completion, const NcclError &qps) const;
    void add_explained_ends();
    void add_queue_pairs_of_ends();
    struct Waiting {
        UnderWay under_way;
        ProcessKey process;
        std::uint64_t until_realtime_ns = 0;
    };
    [[nodiscard]] Waiting waiting_of(const UnderWay &one,
                                     const std::map<ProcessKey, std::uint64_t> &there_ns) const;
    [[nodiscard]] bool is_for(const UnderWay &one, std::int32_t rank) const;
    [[nodiscard]] std::vector<UnderWay> unfinished_of(const std::vector<NcclError> &ends) const;
    void find_operations();
    void put_in_order();
    [[nodiscard]] std::uint64_t realtime_of(Index session, std::uint64_t time_ns) const {
        return model_.hosts[model_.sessions[session].host].realtime_ns(time_ns);
    }
    [[nodiscard]] Index comm_of(const NcclError &error) const {
        return error.instance == NONE ? NONE : nccl_.instances[error.instance].comm;
    }

    Model &model_;
    NcclFacts &nccl_;
    OfProcess texts_, qps_;
    // By the port at the other end; NONE: several have it.
    std::map<std::tuple<Index, std::uint32_t, std::uint16_t>, Index> link_of_port_;
};

void ErrorFinder::index_sockets() {
    for (std::size_t i = 0; i < nccl_.gathered.sockets.size() && i < nccl_.sockets.size(); ++i) {
        const Socket &socket = nccl_.gathered.sockets[i];
        const Index link = nccl_.sockets[i].link;
        if (link == NONE)
            continue;
        const auto [known, is_new] =
            link_of_port_.try_emplace({socket.session, socket.tgid, socket.last.remote_port}, link);
        if (!is_new && known->second != link)
            known->second = NONE;
    }
}

// The process's last message before it kept the result; of completions the first, since later ones
// are flushes.
void ErrorFinder::take_text(NcclError &result) {
    std::vector<NcclError> &texts = texts_[process_of(result)];
    const auto begin =
        texts.end() - static_cast<std::ptrdiff_t>(std::min(texts.size(), MAX_TOGETHER));
    auto best = texts.end();
    for (auto text = begin; text != texts.end(); ++text) {
        if (text->time_ns > model::add_saturating(result.time_ns, SAME_LOOK_NS) ||
            (result.after_ns != 0 &&
             model::add_saturating(text->time_ns, SAME_LOOK_NS) < result.after_ns) ||
            (text->instance != NONE && text->instance != result.instance))
            continue;
        if (best == texts.end() ||
            (!best->status && (text->status || best->time_ns <= text->time_ns)))
            best = text;
    }
    if (best == texts.end())
        return;
    result.text = std::move(best->text);
    result.file = std::move(best->file);
    result.line = best->line;
    result.tid = best->tid;
    result.status = best->status;
    // It came first.
    if (best->time_ns <= result.time_ns) {
        result.time_ns = best->time_ns;
        result.after_ns = std::max(result.after_ns, best->after_ns);
    }
    texts.erase(best);
}

bool ErrorFinder::is_of(const CompletionText &completion, const NcclError &qps) const {
    return std::any_of(qps.qps.begin(), qps.qps.end(), [&](Index index) {
        const model::Qp &qp = model_.qps[index];
        if (completion.qpn)
            return qp.key.qpn == *completion.qpn;
        return !completion.remote_gid.empty() && qp.has(CW_QP_ADDRESS) &&
               (model::gid_text(qp.dgid()) == completion.remote_gid ||
                model::short_gid_text(qp.dgid()) == completion.remote_gid ||
                "::ffff:" + model::short_gid_text(qp.dgid()) == completion.remote_gid);
    });
}

// The result's queue pairs: named by NCCL, or the only ones.
void ErrorFinder::take_queue_pairs(NcclError &result) {
    std::vector<NcclError> &all = qps_[process_of(result)];
    if (all.size() > MAX_TOGETHER)
        return;
    std::vector<std::vector<NcclError>::iterator> of_rank;
    for (auto qps = all.begin(); qps != all.end(); ++qps)
        if (qps->instance == result.instance || qps->instance == NONE)
            of_rank.push_back(qps);
    const auto completion = read_completion(result.text);
    if (completion && (completion->qpn || !completion->remote_gid.empty())) {
        std::vector<std::vector<NcclError>::iterator> named;
        for (const auto &qps : of_rank)
            if (is_of(*completion, *qps))
                named.push_back(qps);
        if (!named.empty())
            of_rank = std::move(named);
    }
    // A later destruction is not a cause.
    std::erase_if(of_rank, [&](const auto &qps) {
        return qps->is_destroyed &&
               qps->time_ns > model::add_saturating(result.time_ns, SAME_LOOK_NS);
    });
    // Queue pairs destroyed by the failing rank belong together, with any peers.
    const bool are_destroyed = std::all_of(of_rank.begin(), of_rank.end(),
                                           [](const auto &qps) { return qps->is_destroyed; });
    if (of_rank.empty() || (of_rank.size() > 1 && !are_destroyed))
        return;
    const NcclError &first =
        **std::min_element(of_rank.begin(), of_rank.end(),
                           [](const auto &a, const auto &b) { return a->time_ns < b->time_ns; });
    result.kind = ErrorKind::QueuePairs;
    result.link = of_rank.size() == 1 ? first.link : NONE;
    result.is_destroyed = first.is_destroyed;
    result.event = first.event;
    if (first.after_ns != 0) { // an event has its exact time
        result.noticed_ns = result.time_ns;
        result.after_ns = first.after_ns;
        result.time_ns = first.time_ns;
    }
    for (const auto &qps : of_rank)
        result.qps.insert(result.qps.end(), qps->qps.begin(), qps->qps.end());
    for (auto qps = of_rank.rbegin(); qps != of_rank.rend(); ++qps)
        all.erase(*qps);
}

// "... 10.0.0.1<2000>": the only socket of the process's connections with that port at its other
// end.
void ErrorFinder::take_socket(NcclError &result) const {
    const auto port = peer_port(result.text);
    if (!port || result.link != NONE)
        return;
    const auto found = link_of_port_.find({result.session, result.tgid, *port});
    if (found != link_of_port_.end())
        result.link = found->second;
}

// The operation of each rank of these communicators when its recording ends.
std::vector<UnderWay> ErrorFinder::unfinished_of(const std::vector<NcclError> &ends) const {
    std::set<Index> comms;
    for (const NcclError &ended : ends) {
        comms.insert(comm_of(ended));
        for (const Index instance : ended.also)
            comms.insert(nccl_.instances[instance].comm);
    }
    comms.erase(NONE);
    std::vector<UnderWay> asked;
    for (const Index comm : comms)
        for (const Index instance : nccl_.communicators[comm].instances) {
            UnderWay &one = asked.emplace_back();
            one.instance = instance;
            one.time_ns = UINT64_MAX;
        }
    find_under_way(model_, asked);
    std::erase_if(asked, [](const UnderWay &one) { return one.seen_ns == 0; });
    return asked;
}

// Until when the rank was in that operation: an unchanged state is not re-emitted, until the
// recording, the communicator or the process ends.
ErrorFinder::Waiting
ErrorFinder::waiting_of(const UnderWay &one,
                        const std::map<ProcessKey, std::uint64_t> &there_ns) const {
    const Instance &instance = nccl_.instances[one.instance];
    const model::Session &session = model_.sessions[instance.session];
    Waiting result{one, {instance.session, instance.record.tgid}, 0};
    // After the end of the communicator its connections are not polled.
    const std::uint64_t end_ns =
        instance.end_ns == 0 ? session.end_ns : std::min(session.end_ns, instance.end_ns);
    std::uint64_t until_ns = session.read_last_ns(one.seen_ns, end_ns);
    // Each poll of the process reads them.
    if (const auto ended = there_ns.find(result.process); ended != there_ns.end())
        until_ns = std::min(until_ns, ended->second);
    result.until_realtime_ns = realtime_of(instance.session, until_ns);
    return result;
}

// A collective is for all ranks.
bool ErrorFinder::is_for(const UnderWay &one, std::int32_t rank) const {
    if (!one.is_pair || one.operation == NONE)
        return true;
    const Operation &pair = nccl_.p2p[one.operation];
    return pair.source == rank || pair.destination == rank;
}

// A process may exit with its work done and leave its communicators to the kernel: that is an error
// only if another rank has one, or stays in an operation. Over RDMA a rank does not notice its
// peer's exit while it has nothing unacknowledged in flight.
void ErrorFinder::add_explained_ends() {
    std::vector<NcclError> ends = errors_of_processes(model_);
    std::map<Index, std::set<ProcessKey>> with_errors; // by communicator
    for (const NcclError &error : nccl_.errors)
        with_errors[comm_of(error)].insert(process_of(error));
    std::map<ProcessKey, std::uint64_t> there_ns; // last sign of life of the exited ones
    for (const NcclError &ended : ends)
        there_ns.try_emplace(process_of(ended), ended.after_ns);
    std::map<Index, std::vector<Waiting>> waiting; // by communicator
    for (const UnderWay &one : unfinished_of(ends))
        if (auto &of_comm = waiting[nccl_.instances[one.instance].comm];
            of_comm.size() < MAX_TOGETHER)
            of_comm.push_back(waiting_of(one, there_ns));
    for (NcclError &ended : ends) {
        const std::uint64_t end_ns = realtime_of(ended.session, ended.time_ns);
        const auto waits = [&](const Waiting &one, Index instance) {
            return one.process != process_of(ended) &&
                   one.until_realtime_ns > model::add_saturating(end_ns, FINISHES_NS) &&
                   is_for(one.under_way, nccl_.instances[instance].record.rank);
        };
        const auto is_explained = [&](Index instance) {
            const Index comm = nccl_.instances[instance].comm;
            if (comm == NONE)
                return false;
            const auto errors = with_errors.find(comm);
            const auto &of_comm = waiting[comm];
            return (errors != with_errors.end() && errors->second != std::set{process_of(ended)}) ||
                   std::any_of(of_comm.begin(), of_comm.end(),
                               [&](const Waiting &one) { return waits(one, instance); });
        };
        std::vector<Index> all{ended.instance};
        all.insert(all.end(), ended.also.begin(), ended.also.end());
        std::erase_if(all, [&](Index instance) { return !is_explained(instance); });
        if (all.empty())
            continue;
        ended.instance = all.front();
        ended.also.assign(all.begin() + 1, all.end());
        for (const Waiting &one : waiting[comm_of(ended)])
            if (ended.waiting.size() < MAX_WAITING && waits(one, ended.instance))
                ended.waiting.push_back(nccl_.instances[one.under_way.instance].record.rank);
        nccl_.errors.push_back(std::move(ended));
    }
}

void ErrorFinder::add_queue_pairs_of_ends() {
    std::map<ProcessKey, std::vector<NcclError *>> ends;
    for (NcclError &error : nccl_.errors)
        if (error.kind == ErrorKind::Ended)
            ends[process_of(error)].push_back(&error);
    if (ends.empty())
        return;
    for (Index index = 0; index < model_.qps.size() && index < nccl_.qps.size(); ++index) {
        const model::Qp &qp = model_.qps[index];
        const Index link = nccl_.qps[index].link;
        const auto found = ends.find({qp.session, qp.tgid});
        if (link == NONE || found == ends.end())
            continue;
        for (NcclError *ended : found->second)
            if (qp.destroyed_ns == 0 ||
                model::add_saturating(qp.destroyed_ns, EXIT_NS) > ended->time_ns)
                if (const auto &users = nccl_.links[link].instances;
                    std::find(users.begin(), users.end(), ended->instance) != users.end())
                    if (ended->qps.size() < MAX_TOGETHER)
                        ended->qps.push_back(index);
    }
}

// Of the connection or, if it had nothing in flight, of the rank.
void ErrorFinder::find_operations() {
    std::vector<UnderWay> asked;
    std::vector<NcclError *> of;
    const auto ask = [&](NcclError &error, Index link, Index instance, std::uint64_t time_ns) {
        UnderWay one;
        one.link = link;
        one.instance = instance;
        one.time_ns = time_ns;
        asked.push_back(one);
        of.push_back(&error);
    };
    for (NcclError &error : nccl_.errors) {
        if (error.kind == ErrorKind::Warning)
            continue;
        if (error.link != NONE)
            ask(error, error.link, NONE, error.time_ns);
        if (error.instance != NONE)
            ask(error, NONE, error.instance, error.time_ns);
        // They may be destroyed between two operations: the next one fails.
        if (error.instance != NONE && error.is_destroyed && error.noticed_ns > error.time_ns)
            ask(error, NONE, error.instance, error.noticed_ns);
    }
    find_under_way(model_, asked);
    for (std::size_t i = 0; i < asked.size(); ++i) {
        NcclError &error = *of[i];
        const UnderWay &found = asked[i];
        // Several communicators may share a flow: the error belongs to one.
        if (error.instance == NONE)
            error.instance = found.of_instance;
        const bool is_better = error.operation == NONE || (!error.is_under_way && found.is_certain);
        if (found.operation == NONE || error.instance != found.of_instance || !is_better)
            continue;
        error.is_pair = found.is_pair;
        error.operation = found.operation;
        error.is_under_way = found.is_certain;
    }
}

void ErrorFinder::put_in_order() {
    std::stable_sort(
        nccl_.errors.begin(), nccl_.errors.end(), [this](const NcclError &a, const NcclError &b) {
            return realtime_of(a.session, a.time_ns) < realtime_of(b.session, b.time_ns);
        });
    std::map<Index, std::vector<NcclError *>> of_comm;
    for (NcclError &error : nccl_.errors) {
        if (error.kind == ErrorKind::Warning)
            continue;
        std::set<Index> comms{comm_of(error)};
        for (const Index instance : error.also)
            comms.insert(nccl_.instances[instance].comm);
        comms.erase(NONE);
        for (const Index comm : comms)
            of_comm[comm].push_back(&error);
    }
    for (auto &[comm, errors] : of_comm) {
        std::uint64_t first_ns = UINT64_MAX;
        for (const NcclError *error : errors)
            first_ns = std::min(first_ns, realtime_of(error->session, error->time_ns));
        std::set<std::int32_t> named; // as the other end of an early error
        const auto is_late = [&](const NcclError &error, std::uint64_t most_ns) {
            return error.after_ns != 0 && realtime_of(error.session, error.after_ns) >
                                              model::add_saturating(first_ns, most_ns);
        };
        for (const NcclError *error : errors)
            if (error->kind != ErrorKind::Ended && !is_late(*error, 0))
                named.insert(peer_of(nccl_, *error));
        const auto is_later = [&](const NcclError &error) {
            const bool is_named = error.kind == ErrorKind::Ended &&
                                  named.contains(nccl_.instances[error.instance].record.rank);
            return is_late(error, is_named ? EXIT_NS : 0);
        };
        // The other ranks notice a rank's exit after it.
        const bool one_ended = std::any_of(errors.begin(), errors.end(), [&](const auto *error) {
            return error->kind == ErrorKind::Ended && !is_later(*error);
        });
        std::vector<NcclError *> first;
        for (NcclError *error : errors)
            if (is_later(*error) || error->status == WC_FLUSH_ERROR ||
                (one_ended && error->kind != ErrorKind::Ended))
                error->order = ErrorOrder::Follows;
            else
                first.push_back(error);
        if (first.size() == 1)
            first.front()->order = ErrorOrder::First;
    }
}

} // namespace

void find_errors(Model &model) {
    ErrorFinder(model).run();
}

} // namespace collwire::nccl
