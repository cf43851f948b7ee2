// SPDX-License-Identifier: Apache-2.0
#include "correlate/tabulate/rows_of_verdicts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "correlate/nccl/describe.h"
#include "correlate/nccl/error_text.h"
#include "correlate/rows/verdict_rows.h"
#include "correlate/stall/find_standing.h"
#include "correlate/stall/judge.h"
#include "correlate/tabulate/convert.h"

namespace collwire::tabulate {

using model::Model;
using model::NONE;

namespace {

rows::VerdictRow verdict_row(const verdict::Verdict &verdict, std::uint64_t place) {
    const verdict::Subject &subject = verdict.subject;
    rows::VerdictRow row;
    row.place = place;
    row.code = verdict::code_name(verdict.code);
    row.severity = verdict::severity_name(verdict.severity);
    row.confidence = verdict::confidence_name(verdict.confidence);
    if (subject.communicator != 0)
        row.communicator_hash = nccl::hash_text(subject.communicator);
    row.communicator_name = if_any(subject.communicator_name);
    row.rank = if_not_negative(subject.rank);
    row.host = if_any(subject.host);
    row.pid = if_not_0(subject.pid);
    row.from_realtime_ns = if_not_0(verdict.from_realtime_ns);
    row.until_realtime_ns = if_not_0(verdict.until_realtime_ns);
    row.sentence = verdict.sentence;
    row.evidence = fmt::format("{}", fmt::join(verdict.evidence, "\n"));
    return row;
}

rows::ErrorRow error_row(const Model &model, const nccl::NcclError &error) {
    const nccl::NcclFacts &nccl = model.nccl;
    const model::Host &host = model.hosts[model.sessions[error.session].host];
    rows::ErrorRow row;
    row.realtime_ns = host.realtime_ns(error.time_ns);
    if (error.after_ns != 0)
        row.after_realtime_ns = host.realtime_ns(error.after_ns);
    row.is_before_recording = error.was_there;
    row.host = host.name;
    row.pid = error.tgid;
    row.kind = nccl::error_kind_name(error.kind);
    row.sequence = if_any(nccl::error_order_name(error.order));
    if (error.instance != NONE) {
        row.comm = if_index(nccl.instances[error.instance].comm);
        row.rank = nccl.instances[error.instance].record.rank;
    }
    row.peer_rank = if_not_negative(nccl::peer_of(nccl, error));
    if (error.result != 0)
        row.result = nccl::result_text(error.result);
    row.sentence = nccl::error_text(model, error);
    return row;
}

rows::EventRow event_row(const Model &model, const model::Event &event) {
    rows::EventRow row;
    row.realtime_ns = event.realtime_ns;
    if (event.end_ns != 0)
        row.duration_ns = model::subtract_or_zero(event.end_ns, event.time_ns);
    row.host = model.hosts[event.host].name;
    if (event.device != NONE)
        row.device = model.devices[event.device].name;
    row.port = if_not_0(event.port != NONE ? model.ports[event.port].number : event.port_number);
    row.netdev = if_any(event.netdev);
    row.qpn = if_not_0(event.qpn);
    if (event.process != NONE)
        row.pid = model.processes[event.process].pid;
    row.kind = event.kind;
    row.is_derived = event.derived;
    row.sentence = event.what;
    return row;
}

} // namespace

void rows_of_verdicts(const Model &model, const std::vector<roles::RoleGuess> &guesses,
                      rows::RowSink &sink) {
    std::uint64_t place = 0;
    for (const verdict::Verdict &verdict : stall::judge(stall::find_standing(model, guesses)))
        rows::put(sink, verdict_row(verdict, ++place));
    place = 0;
    for (const nccl::Finding &finding : model.nccl.findings)
        rows::put(sink, rows::FindingRow{
                            .place = ++place,
                            .kind = finding.kind,
                            .sentence = finding.what,
                            .comms = fmt::format("{}", fmt::join(finding.communicators, ",")),
                            .hosts = fmt::format("{}", fmt::join(finding.hosts, "\n"))});
    for (const nccl::NcclError &error : model.nccl.errors)
        rows::put(sink, error_row(model, error));
    for (const model::Event &event : model.events)
        rows::put(sink, event_row(model, event));
}

} // namespace collwire::tabulate
