// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/error_parts.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "collwire/record_kinds.h"
#include "correlate/nccl/resolve.h"
#include "correlate/nccl/warning_text.h"

namespace collwire::nccl {

using model::Model;
using model::Qp;
using model::StateChange;

namespace {

constexpr std::uint8_t STATE_SQE = 5, STATE_ERR = 6; // enum ib_qp_state
// From a warning to its text: microseconds, unless the thread is preempted.
constexpr std::uint64_t TEXT_IS_MADE_NS = 10'000'000;
// An exiting process destroys its queue pairs; the recorder notices its end one sample later.
constexpr std::uint64_t SAME_END_NS = 5'000'000'000;

// Several segments repeat the records.
template <typename T> std::vector<T> in_order(std::vector<T> records) {
    std::sort(records.begin(), records.end());
    records.erase(std::unique(records.begin(), records.end()), records.end());
    return records;
}

bool is_used(const Model &model, Index session) {
    return !model.sessions[session].excluded;
}

using ProcessKey = std::pair<Index, std::uint32_t>; // session, tgid

// A process that creates communicators endlessly must not make reading slow.
constexpr std::size_t MAX_LOOKED_AT = 1024;

// The only one of these communicators alive at that time; NONE: several, or no one.
Index only_alive(const NcclFacts &nccl, std::span<const Index> instances, std::uint64_t time_ns) {
    Index only = NONE;
    if (instances.size() > MAX_LOOKED_AT)
        return NONE;
    for (const Index index : instances) {
        const Instance &instance = nccl.instances[index];
        if (instance.begin_ns > time_ns || (instance.end_ns != 0 && instance.end_ns < time_ns))
            continue;
        if (only != NONE)
            return NONE;
        only = index;
    }
    return only;
}

// The communicators of each process.
class Owned {
public:
    explicit Owned(const NcclFacts &nccl) : nccl_(nccl) {
        for (Index index = 0; index < nccl.instances.size(); ++index)
            of_process_[{nccl.instances[index].session, nccl.instances[index].record.tgid}]
                .push_back(index);
    }
    [[nodiscard]] std::span<const Index> of(const ProcessKey &process) const {
        const auto found = of_process_.find(process);
        return found == of_process_.end() ? std::span<const Index>{} : found->second;
    }
    // The only one alive then; NONE: several, or no one.
    [[nodiscard]] Index only(const ProcessKey &process, std::uint64_t time_ns) const {
        return only_alive(nccl_, of(process), time_ns);
    }

private:
    const NcclFacts &nccl_;
    std::map<ProcessKey, std::vector<Index>> of_process_;
};

NcclError warning_of(const Owned &owned, const Warning &warning, std::string text) {
    NcclError error;
    error.session = warning.session;
    error.tgid = warning.tgid;
    error.time_ns = error.after_ns = warning.time_ns;
    error.tid = warning.tid;
    error.line = warning.line;
    error.file = warning.file;
    error.text = std::move(text);
    error.instance = owned.only({error.session, error.tgid}, error.time_ns);
    return error;
}

// Texts in a process's memory, in time order: those that were read, and those that later warnings
// replaced.
using Seen = std::vector<std::pair<std::uint64_t, std::string>>;

// The warning's text: the next one read, if it matches the format. Absent: NCCL treated it as
// information (the earlier text stayed), or it was overwritten.
std::optional<std::string> text_of_warning(const Warning &warning, const Seen &seen) {
    auto next = std::upper_bound(
        seen.begin(), seen.end(), warning.time_ns,
        [](std::uint64_t time_ns, const auto &one) { return time_ns < one.first; });
    for (; next != seen.end(); ++next) {
        if (next->second != warning.earlier && is_made_of(warning.format, next->second))
            return next->second;
        // A poll may come before NCCL has written the text.
        if (next->first - warning.time_ns > TEXT_IS_MADE_NS)
            return std::nullopt;
    }
    // No poll followed: only the format is known.
    return warning.format;
}

} // namespace

std::vector<NcclError> errors_of_texts(const Model &model) {
    const Gathered &gathered = model.nccl.gathered;
    std::vector<NcclError> errors;
    const Owned owned(model.nccl);
    std::map<ProcessKey, Seen> seen;
    const auto warnings = in_order(gathered.warnings);
    const auto texts = in_order(gathered.last_errors);
    for (const LastError &text : texts)
        seen[{text.session, text.tgid}].emplace_back(text.time_ns, text.text);
    for (const Warning &warning : warnings)
        seen[{warning.session, warning.tgid}].emplace_back(warning.time_ns, warning.earlier);
    for (auto &[process, of_process] : seen)
        std::sort(of_process.begin(), of_process.end());
    std::map<ProcessKey, std::set<std::string>> listed;
    for (const Warning &warning : warnings) {
        if (!is_used(model, warning.session))
            continue;
        const ProcessKey process{warning.session, warning.tgid};
        if (auto text = text_of_warning(warning, seen[process])) {
            listed[process].insert(*text);
            errors.push_back(warning_of(owned, warning, std::move(*text)));
        }
    }
    for (const LastError &text : texts) {
        if (!is_used(model, text.session) || text.text.empty() ||
            !listed[{text.session, text.tgid}].insert(text.text).second)
            continue;
        NcclError error;
        error.session = text.session;
        error.tgid = text.tgid;
        error.after_ns = text.before_ns;
        error.time_ns = text.time_ns;
        error.was_there = text.before_ns == 0;
        error.text = text.text;
        error.instance = owned.only({text.session, text.tgid}, text.time_ns);
        errors.push_back(std::move(error));
    }
    for (NcclError &error : errors)
        if (const auto completion = read_completion(error.text))
            error.status = completion->status;
    std::stable_sort(errors.begin(), errors.end(), [](const NcclError &a, const NcclError &b) {
        return std::tie(a.session, a.tgid, a.time_ns) < std::tie(b.session, b.tgid, b.time_ns);
    });
    return errors;
}

// A communicator copies its proxy's error.
std::vector<NcclError> errors_of_results(const Model &model) {
    std::vector<NcclError> errors;
    auto results = in_order(model.nccl.gathered.results);
    std::stable_sort(results.begin(), results.end(), [](const KeptResult &a, const KeptResult &b) {
        return a.time_ns < b.time_ns;
    });
    std::set<std::tuple<Index, Index, std::uint32_t>> listed;
    for (const KeptResult &result : results) {
        if (!is_used(model, result.session))
            continue;
        NcclError error;
        error.kind = ErrorKind::Result;
        error.session = result.session;
        error.tgid = result.tgid;
        error.instance =
            instance_at(model.nccl, result.session, result.tgid, result.comm, result.time_ns);
        error.after_ns = result.before_ns;
        error.time_ns = result.time_ns;
        error.was_there = result.before_ns == 0;
        error.result = result.result;
        if (listed.insert({result.session, error.instance, result.result}).second)
            errors.push_back(std::move(error));
    }
    return errors;
}

namespace {

Index instance_of_link(const Model &model, Index link, std::uint64_t time_ns) {
    return link == NONE ? NONE : only_alive(model.nccl, model.nccl.links[link].instances, time_ns);
}

// Its first error: from an event, from a poll of its state, or its destruction before that of its
// communicator. A state set by its owner is not an error.
std::optional<NcclError> error_of(const Model &model, const Qp &qp, Index link) {
    NcclError error;
    error.kind = ErrorKind::QueuePairs;
    error.session = qp.session;
    error.tgid = qp.tgid;
    error.link = link;
    for (const StateChange &change : qp.states) {
        const bool is_bad = change.new_state == STATE_SQE || change.new_state == STATE_ERR;
        if (change.kind != CW_KIND_QP_ERROR && !(change.is_found && is_bad))
            continue;
        if (error.time_ns != 0 && error.time_ns <= change.time_ns)
            continue;
        error.time_ns = change.time_ns;
        error.after_ns = change.is_found ? 0 : change.time_ns;
        error.event = change.is_found ? std::nullopt : std::optional(change.event);
    }
    if (error.time_ns == 0 && qp.destroyed_ns != 0 && link != NONE) {
        error.instance = instance_of_link(model, link, qp.destroyed_ns);
        if (error.instance == NONE || model.nccl.instances[error.instance].end_ns != 0)
            return std::nullopt;
        error.is_destroyed = true;
        error.time_ns = error.after_ns = qp.destroyed_ns;
    }
    if (error.time_ns == 0)
        return std::nullopt;
    error.instance = instance_of_link(model, link, error.time_ns);
    return error;
}

using Ends = std::map<ProcessKey, std::vector<std::uint64_t>>; // when they exited

bool ended_with_process(const Ends &ends, const NcclError &error) {
    const auto found = ends.find({error.session, error.tgid});
    return error.is_destroyed && found != ends.end() &&
           std::any_of(found->second.begin(), found->second.end(), [&](std::uint64_t gone_ns) {
               return error.time_ns + SAME_END_NS > gone_ns;
           });
}

} // namespace

std::vector<NcclError> errors_of_queue_pairs(const Model &model) {
    const NcclFacts &nccl = model.nccl;
    std::vector<NcclError> errors;
    Ends ends;
    for (const EndedProcess &ended : in_order(nccl.gathered.ended_processes))
        ends[{ended.session, ended.tgid}].push_back(ended.gone_ns);
    // By rank and peer.
    std::map<std::tuple<Index, std::int32_t, bool>, std::size_t> of_peer;
    for (Index index = 0; index < model.qps.size(); ++index) {
        const Qp &qp = model.qps[index];
        if (!is_used(model, qp.session) || qp.tgid == 0)
            continue;
        const Index link = index < nccl.qps.size() ? nccl.qps[index].link : NONE;
        auto error = error_of(model, qp, link);
        if (!error || ended_with_process(ends, *error))
            continue;
        error->qps = {index};
        const std::tuple key{error->instance, link == NONE ? -1 : nccl.links[link].peer,
                             error->is_destroyed};
        const auto known = error->instance == NONE ? of_peer.end() : of_peer.find(key);
        if (known == of_peer.end()) {
            if (error->instance != NONE)
                of_peer.emplace(key, errors.size());
            errors.push_back(std::move(*error));
            continue;
        }
        NcclError &group = errors[known->second];
        group.qps.push_back(index);
        // A sender's awaited bytes are at its own end.
        if (error->time_ns < group.time_ns ||
            (error->time_ns == group.time_ns && nccl.links[link].is_send() &&
             !nccl.links[group.link].is_send())) {
            group.time_ns = error->time_ns;
            group.after_ns = error->after_ns;
            group.event = error->event;
            group.link = link;
        }
    }
    return errors;
}

std::vector<NcclError> errors_of_processes(const Model &model) {
    const NcclFacts &nccl = model.nccl;
    const Owned owned(nccl);
    std::vector<NcclError> errors;
    std::set<std::tuple<Index, std::uint32_t, Index>> listed; // repeated records
    for (const EndedProcess &ended : in_order(nccl.gathered.ended_processes)) {
        NcclError error;
        error.kind = ErrorKind::Ended;
        error.session = ended.session;
        error.tgid = ended.tgid;
        error.after_ns = ended.there_ns;
        error.time_ns = ended.gone_ns;
        for (const Index index : owned.of({ended.session, ended.tgid})) {
            const Instance &instance = nccl.instances[index];
            if (instance.record.image_id == ended.image_id && instance.end_ns == 0 &&
                instance.begin_ns <= ended.gone_ns)
                error.also.push_back(index);
        }
        if (error.also.empty() || !is_used(model, ended.session))
            continue;
        std::stable_sort(error.also.begin(), error.also.end(), [&](Index a, Index b) {
            return nccl.instances[a].record.n_ranks > nccl.instances[b].record.n_ranks;
        });
        error.instance = error.also.front();
        error.also.erase(error.also.begin());
        if (listed.insert({error.session, error.tgid, error.instance}).second)
            errors.push_back(std::move(error));
    }
    return errors;
}

} // namespace collwire::nccl
