// SPDX-License-Identifier: Apache-2.0
#include "correlate/tabulate/rows_of_recordings.h"

#include <algorithm>

#include <fmt/format.h>

#include "collwire/record_kinds.h"
#include "correlate/capture/kinds.h"
#include "correlate/nccl/host_clocks.h"
#include "correlate/report/names.h"
#include "correlate/rows/recording_rows.h"
#include "correlate/tabulate/convert.h"

namespace collwire::tabulate {

using model::Index;
using model::Model;
using model::NONE;

namespace {

std::string session_text(const model::Session &session) {
    return fmt::format("{:016x}", session.id);
}

rows::HostRow host_row(const Model &model, Index index) {
    const model::Host &host = model.hosts[index];
    rows::HostRow row{.host = host.name,
                      .hostname = host.hostname,
                      .boot_id = host.boot_id,
                      .kernel_release = host.kernel_release,
                      .recordings = 0,
                      .recordings_excluded = 0,
                      .begin_realtime_ns = std::nullopt,
                      .end_realtime_ns = std::nullopt};
    for (const model::Session &session : model.sessions) {
        if (session.host != index)
            continue;
        if (session.excluded) {
            ++row.recordings_excluded;
            continue;
        }
        ++row.recordings;
        const std::uint64_t begin_ns = host.realtime_ns(session.begin_ns);
        const std::uint64_t end_ns = host.realtime_ns(session.end_ns);
        row.begin_realtime_ns = std::min(row.begin_realtime_ns.value_or(begin_ns), begin_ns);
        row.end_realtime_ns = std::max(row.end_realtime_ns.value_or(end_ns), end_ns);
    }
    return row;
}

rows::CaptureRow capture_row(const Model &model, const model::Capture &capture) {
    rows::CaptureRow row;
    row.path = capture.path;
    if (capture.session != NONE) {
        const model::Session &session = model.sessions[capture.session];
        row.host = model.hosts[session.host].name;
        row.session = session_text(session);
        row.segment = capture.segment;
    }
    row.end = report::capture_end_name(capture.end);
    row.message = capture.message;
    row.damaged_at_bytes =
        only_if(capture.end == model::CaptureEnd::Damaged, capture.damaged_at_bytes);
    row.records = capture.records;
    row.unknown_records = capture.unknown_records;
    row.unusable_records = capture.unusable_records;
    return row;
}

rows::SourceRow source_row(const Model &model, const model::Session &session,
                           const model::SourceInfo &source) {
    rows::SourceRow row;
    row.host = model.hosts[session.host].name;
    row.session = session_text(session);
    if (source.device != NONE)
        row.device = model.devices[source.device].name;
    row.name = source.name;
    row.state = capture::source_state_name(source.state);
    row.reason = source.reason;
    return row;
}

rows::ClockRow clock_row(const Model &model, const nccl::HostClock &clock) {
    rows::ClockRow row;
    row.host = model.hosts[clock.host].name;
    row.calibration = nccl::calibration_name(clock.calibration);
    if (clock.reference != NONE)
        row.reference = model.hosts[clock.reference].name;
    row.constraints = clock.constraints;
    row.typical_error_ns = clock.typical_error_ns;
    row.worst_error_ns = clock.worst_error_ns;
    if (clock.drift_ppb) {
        row.drift_least_ppb = clock.drift_ppb->least_ns;
        row.drift_most_ppb = clock.drift_ppb->most_ns;
    }
    return row;
}

} // namespace

void rows_of_recordings(const Model &model, rows::RowSink &sink) {
    for (const Index index : report::hosts_in_order(model))
        rows::put(sink, host_row(model, index));
    for (const model::Capture &capture : model.captures)
        rows::put(sink, capture_row(model, capture));
    for (const model::Session &session : model.sessions)
        for (const auto &[key, source] : session.sources)
            rows::put(sink, source_row(model, session, source));
    for (const model::LossEntry &loss : model.loss)
        rows::put(sink, rows::LossRow{
                            .host = model.hosts[loss.host].name,
                            .loss_class = loss.loss_class,
                            .cpu = only_if<std::uint64_t>(loss.cpu != CW_CPU_USERSPACE, loss.cpu),
                            .records = loss.records});
    std::uint64_t place = 0;
    for (const std::string &warning : model.warnings)
        rows::put(sink, rows::WarningRow{.place = ++place, .warning = warning});
    for (const model::ClockDifference &clock : model.clock_differences)
        rows::put(sink, rows::ClockDifferenceRow{.host_a = model.hosts[clock.host_a].name,
                                                 .host_b = model.hosts[clock.host_b].name,
                                                 .b_minus_a_ns = clock.b_minus_a_ns,
                                                 .spread_ns = clock.spread_ns,
                                                 .connections = clock.connections});
    const std::vector<nccl::HostClock> clocks = nccl::host_clocks(model);
    for (const nccl::HostClock &clock : clocks)
        rows::put(sink, clock_row(model, clock));
    for (const nccl::HostClock &clock : clocks)
        for (const nccl::ClockWindow &window : clock.windows)
            rows::put(sink, rows::ClockWindowRow{.host = model.hosts[clock.host].name,
                                                 .reference_ns = window.reference_ns,
                                                 .least_ns = window.monotonic.least_ns,
                                                 .most_ns = window.monotonic.most_ns,
                                                 .ahead_least_ns = window.ahead.least_ns,
                                                 .ahead_most_ns = window.ahead.most_ns});
}

} // namespace collwire::tabulate
