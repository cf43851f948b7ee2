// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/text_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "collwire/qp_records.h"
#include "correlate/report/job_lines.h"
#include "correlate/report/names.h"
#include "correlate/report/overview.h"
#include "correlate/report/table.h"
#include "correlate/report/text_errors.h"
#include "correlate/report/text_gpu.h"
#include "correlate/report/text_incidents.h"
#include "correlate/report/text_local.h"
#include "correlate/report/text_nccl.h"
#include "correlate/report/text_node_pairs.h"
#include "correlate/report/text_nvlink.h"
#include "correlate/report/text_sockets.h"
#include "correlate/report/text_tiers.h"
#include "correlate/report/text_waiting.h"
#include "correlate/report/text_writer.h"
#include "correlate/report/units.h"
#include "correlate/report/window_text.h"
#include "correlate/roles/guess_roles.h"

namespace collwire::report {

using model::Index;
using model::Known;
using model::Model;
using model::NONE;
using model::Qp;
using topology::Tier;

namespace {

bool has_other_bytes(const model::Sums &sums) {
    return sums.tcp.is_used() || sums.derived_tx_payload_bytes;
}

// The interface's counter includes TCP.
bool counts_tcp(const model::PortBytes &bytes) {
    return bytes.source == "netdev";
}

class ReportTextWriter : private TextWriter {
public:
    ReportTextWriter(const Model &model, const TextOptions &options)
        : TextWriter(options), model_(model), guesses_(roles::guess_roles(model)),
          incidents_(options.incidents != nullptr ? *options.incidents
                                                  : nccl::find_port_incidents(model)) {}

    std::string run() {
        header();
        warnings();
        text_ += errors_text(model_, options_);
        text_ += incidents_text(model_, guesses_, incidents_, options_);
        text_ += nccl_text(model_, guesses_, options_);
        text_ += waiting_text(model_, guesses_, options_);
        text_ += gpu_text(model_, options_);
        text_ += nvlink_text(model_, options_);
        text_ += tiers_text(model_, guesses_, options_);
        text_ += local_text(model_, guesses_, options_);
        text_ += node_pairs_text(model_, options_);
        ports();
        qps();
        text_ += sockets_text(model_, options_);
        processes();
        events();
        return std::move(text_);
    }

private:
    void header();
    void sent();
    void warnings();
    void ports();
    void qps();
    void processes();
    void events();

    const Model &model_;
    const std::vector<roles::RoleGuess> guesses_; // of communicators
    const std::vector<nccl::PortIncident> incidents_;
};

void ReportTextWriter::header() {
    std::set<Index> hosts;
    for (const model::Session &session : model_.sessions)
        if (!session.excluded)
            hosts.insert(session.host);
    const std::size_t all = model_.captures.size();
    const auto used = static_cast<std::size_t>(
        std::count_if(model_.captures.begin(), model_.captures.end(),
                      [](const model::Capture &capture) { return capture.session != NONE; }));
    line(colored(fmt::format("collwire report: {} host(s), {} queue pair(s), {}", hosts.size(),
                             grouped(model_.qps.size()),
                             used == all ? fmt::format("{} capture(s)", all)
                                         : fmt::format("{} of {} captures", used, all)),
                 "1"));
    const char *first = "  verdict        ";
    for (const std::string &verdict : options_.verdicts)
        field(std::exchange(first, "                 ") + printable(verdict));
    if (const std::string incidents = incidents_line(model_, incidents_); !incidents.empty())
        field("  port incidents " + incidents);
    if (model_.window) {
        const char *lead = "  window         ";
        for (const std::string &text : window_lines(*model_.window))
            field(std::exchange(lead, "                 ") + text);
    }
    const char *title = "  jobs           ";
    for (const std::string &text : job_lines(model::find_jobs(model_)))
        field(std::exchange(title, "                 ") + text);
    if (const auto window = window_of(model_))
        field(fmt::format(
            "  time           {} to {} ({})", utc(window->begin_ns).substr(0, 19) + "Z",
            utc(window->end_ns).substr(0, 19) + "Z", duration(window->end_ns - window->begin_ns)));
    std::string names;
    std::size_t shown = 0;
    for (const Index host : hosts_in_order(model_)) {
        if (!hosts.contains(host))
            continue;
        if (shown == 8) {
            names += fmt::format(" and {} more", hosts.size() - shown);
            break;
        }
        names += (shown++ == 0 ? "" : ", ") + printable(model_.hosts[host].name);
    }
    field("  hosts          " + names);
    for (const OverviewLine &one : overview_of(model_, guesses_))
        field(fmt::format("  {:<14} {}", one.name, one.text));
    sent();
    std::string known_by;
    for (const model::BytesRung rung : {model::BytesRung::Wire, model::BytesRung::Posted}) {
        const Known &bytes = model_.total.tx_wire_bytes_by_rung[static_cast<std::size_t>(rung)];
        if (bytes)
            known_by +=
                fmt::format("{}{} {}", known_by.empty() ? "" : ", ",
                            rung == model::BytesRung::Wire ? "wire (frames counted)"
                                                           : "posted (computed from work requests)",
                            share(bytes, model_.total.tx_wire_bytes));
    }
    const bool has_sent =
        model_.total.tx_wire_bytes.value_or(0) != 0 || !has_other_bytes(model_.total);
    if (!known_by.empty() && has_sent)
        field("  byte source    " + known_by);
    if (model_.total.retransmitted_wire_bytes && has_sent)
        field("  retransmitted  " + exact_bytes(model_.total.retransmitted_wire_bytes));
    const std::string lost =
        fmt::format("  lost           {} record(s)", grouped(model_.lost_records));
    line(model_.lost_records == 0 ? lost : colored(lost, "1;31"));
}

// Bytes of queue pairs; socket bytes and computed bytes have their own lines.
void ReportTextWriter::sent() {
    const model::Sums &total = model_.total;
    const bool is_measured = total.tx_wire_bytes || total.tx_payload_bytes;
    if (is_measured || !has_other_bytes(total))
        field("  sent           " + exact_bytes(total.tx_wire_bytes) + " wire bytes, " +
              exact_bytes(total.tx_payload_bytes) + " payload" +
              (has_other_bytes(total) ? ", by queue pairs" : ""));
    if (total.derived_tx_payload_bytes)
        field(fmt::format("  {}  {} payload{}, computed from NCCL's operations: bytes of these "
                          "queue pairs were not measured",
                          is_measured ? "computed     " : "sent         ",
                          exact_bytes(total.derived_tx_payload_bytes),
                          total.derived_tx_wire_bytes
                              ? ", " + exact_bytes(total.derived_tx_wire_bytes) + " wire bytes"
                              : ""));
    const model::TcpSums &tcp = total.tcp;
    if (tcp.sockets != 0)
        field(fmt::format("  TCP            {} payload on {} NCCL socket(s){}; frames not counted",
                          exact_bytes(tcp.tx_payload_bytes), grouped(tcp.sockets),
                          tcp.retransmitted_bytes.value_or(0) == 0
                              ? ""
                              : ", " + human_bytes(tcp.retransmitted_bytes) + " retransmitted"));
    if (tcp.connections_without_bytes != 0)
        field(fmt::format("  TCP            on {} NCCL connection(s), not measured{}",
                          grouped(tcp.connections_without_bytes),
                          tcp.derived_tx_payload_bytes
                              ? ": " + exact_bytes(tcp.derived_tx_payload_bytes) +
                                    " payload, computed from their operations"
                              : ""));
}

void ReportTextWriter::warnings() {
    if (model_.warnings.empty())
        return;
    text_ += '\n';
    std::size_t shown = 0;
    for (const std::string &warning : model_.warnings) {
        if (shown == options_.rows)
            break;
        wrapped("! " + printable(warning), "  ", warning.starts_with("LOSS") ? "1;31" : "33");
        ++shown;
    }
    more(model_.warnings.size(), shown, "warnings");
}

void ReportTextWriter::ports() {
    if (model_.ports.empty())
        return;
    std::vector<const model::Port *> ports;
    for (const Index index : ports_in_order(model_))
        ports.push_back(&model_.ports[index]);
    const std::size_t shown = std::min(ports.size(), options_.rows);
    const auto unexplained = [](const model::Port *port) -> Known {
        const model::PortBytes &bytes = port->bytes;
        if (!bytes.tx_wire_bytes || !bytes.explained_tx_bytes)
            return std::nullopt; // sorts last
        return model::subtract_or_zero(*bytes.tx_wire_bytes, *bytes.explained_tx_bytes);
    };
    // By name, unless only the worst fit.
    if (shown < ports.size())
        std::stable_sort(ports.begin(), ports.end(),
                         [&](const model::Port *a, const model::Port *b) {
                             return unexplained(a) > unexplained(b);
                         });
    const bool of_tcp = std::any_of(ports.begin(), ports.end(), [](const model::Port *port) {
        return port->bytes.tcp_tx_bytes && counts_tcp(port->bytes);
    });
    title(shown < ports.size() ? "Ports, sent, the most other traffic first"
                               : "Ports, sent by known connections and by other traffic");
    Table table({{"host", Align::Left, true},
                 {"device"},
                 {"port", Align::Right, false, 3},
                 {"switch", Align::Left, true, 2},
                 {"NIC counter", Align::Right},
                 {"connections", Align::Right},
                 {"other traffic", Align::Right},
                 {"", Align::Right, false, 4},
                 {"of that TCP", Align::Right, false, 0, of_tcp},
                 {"error +-", Align::Right, false, 5},
                 {"source", Align::Left, false, 1}});
    for (std::size_t i = 0; i < shown; ++i) {
        const model::Port &port = *ports[i];
        const model::Device &device = model_.devices[port.device];
        const model::PortBytes &bytes = port.bytes;
        std::string rest = "n/a";
        std::string rest_share;
        const bool is_counted = counts_tcp(bytes);
        if (bytes.tx_wire_bytes && bytes.explained_tx_bytes) {
            const bool negative = *bytes.explained_tx_bytes > *bytes.tx_wire_bytes;
            rest = negative ? "-" + human_bytes(*bytes.explained_tx_bytes - *bytes.tx_wire_bytes)
                            : human_bytes(*bytes.tx_wire_bytes - *bytes.explained_tx_bytes);
            if (!negative)
                rest_share =
                    share(*bytes.tx_wire_bytes - *bytes.explained_tx_bytes, bytes.tx_wire_bytes);
        }
        table.add({printable(model_.hosts[device.host].name), printable(device.name),
                   std::to_string(port.number),
                   port.switch_id.empty() ? "-" : printable(port.switch_id),
                   human_bytes(bytes.tx_wire_bytes), human_bytes(bytes.explained_tx_bytes), rest,
                   rest_share, human_bytes(is_counted ? bytes.tcp_tx_bytes : std::nullopt),
                   human_bytes(bytes.uncertainty_bytes), bytes.source});
    }
    text_ += table.text(width_);
    more(ports.size(), shown, "ports");
}

void ReportTextWriter::qps() {
    std::vector<const Qp *> qps;
    for (const Qp &qp : model_.qps)
        qps.push_back(&qp);
    if (qps.empty())
        return;
    const auto computed_of = [&](const Qp *qp) {
        const auto index = static_cast<std::size_t>(qp - model_.qps.data());
        return index < model_.nccl.qps.size() ? model_.nccl.qps[index].derived_payload_bytes
                                              : Known();
    };
    const auto weight = [&](const Qp *qp) {
        const model::QpBytes &bytes = qp->bytes;
        return std::max({bytes.tx_wire_bytes.value_or(0), bytes.tx_payload_bytes.value_or(0),
                         computed_of(qp).value_or(0)});
    };
    const std::size_t shown = std::min(qps.size(), options_.rows);
    std::partial_sort(qps.begin(), qps.begin() + static_cast<std::ptrdiff_t>(shown), qps.end(),
                      [&](const Qp *a, const Qp *b) {
                          return weight(a) != weight(b) ? weight(a) > weight(b) : a < b;
                      });
    const bool resent = model_.total.retransmitted_wire_bytes.value_or(0) != 0;
    title(shown < qps.size() ? "Queue pairs, the most sent first" : "Queue pairs");
    Table table(
        {{"host", Align::Left, true},
         {"device"},
         {"qpn", Align::Right},
         {"type", Align::Left, false, 4},
         {"to", Align::Left, true},
         {"pid", Align::Right, false, 6},
         {"process", Align::Left, true, 5},
         {"tier"},
         {"sent", Align::Right},
         {"payload", Align::Right, false, 3},
         {"computed", Align::Right, false, 0, model_.total.derived_tx_payload_bytes.has_value()},
         {"received", Align::Right, false, 2},
         {"retrans", Align::Right, false, resent ? std::size_t{2} : std::size_t{9}},
         {"source", Align::Left, false, 1}});
    for (std::size_t i = 0; i < shown; ++i) {
        const Qp &qp = *qps[i];
        const model::QpBytes &bytes = qp.bytes;
        std::string to = qp.remote_host;
        if (to.empty() && qp.is_connected_type() && qp.has(CW_QP_ADDRESS) &&
            !model::is_zero(qp.dgid()))
            to = model::short_gid_text(qp.dgid());
        if (qp.is_datagram())
            to = fmt::format("{} peer(s)", qp.ud_peers.size());
        else if (qp.has(CW_QP_DEST))
            to += fmt::format(" {}", qp.address.dest_qpn);
        const model::Process *process =
            qp.process == NONE ? nullptr : &model_.processes[qp.process];
        table.add(
            {printable(model_.hosts[qp.host].name),
             qp.device == NONE ? "-" : printable(model_.devices[qp.device].name),
             std::to_string(qp.key.qpn), qp_type_text(qp.type), to.empty() ? "-" : printable(to),
             process == nullptr ? "-" : std::to_string(process->pid),
             process != nullptr     ? printable(process_title(*process))
             : qp.has(CW_QP_KERNEL) ? "(kernel)"
                                    : "-",
             std::string(topology::tier_name(qp.tier)), human_bytes(bytes.tx_wire_bytes),
             human_bytes(bytes.tx_payload_bytes), human_bytes(computed_of(&qp)),
             human_bytes(bytes.rx_wire_bytes), human_bytes(bytes.retransmitted_wire_bytes),
             std::string(rung_name(bytes.rung)) + (qp.damaged_by.empty() ? "" : " (incomplete)")});
    }
    text_ += table.text(width_);
    more(qps.size(), shown, "queue pairs");
}

void ReportTextWriter::processes() {
    if (model_.process_sums.empty())
        return;
    std::vector<const model::ProcessSums *> sums;
    for (const model::ProcessSums &of_process : model_.process_sums)
        sums.push_back(&of_process);
    const std::size_t shown = std::min(sums.size(), options_.rows);
    std::stable_sort(
        sums.begin(), sums.end(), [](const model::ProcessSums *a, const model::ProcessSums *b) {
            const auto weight = [](const model::Sums &all) {
                return std::tuple(all.tx_wire_bytes, all.tcp.tx_payload_bytes, computed(all));
            };
            return weight(a->all) > weight(b->all);
        });
    title(shown < sums.size() ? "Processes, the most sent first" : "Processes");
    Table table({{"host", Align::Left, true},
                 {"pid", Align::Right},
                 {"process", Align::Left, true},
                 {"job", Align::Left, true, 1},
                 {"qps", Align::Right},
                 {"sent", Align::Right},
                 {"payload", Align::Right},
                 {"TCP payload", Align::Right, false, 0, has_tcp(model_)},
                 {"computed", Align::Right, false, 0, computed(model_.total).has_value()},
                 {"received", Align::Right, false, 2}});
    for (std::size_t i = 0; i < shown; ++i) {
        const model::Process &process = model_.processes[sums[i]->process];
        const std::string name = process_title(process);
        const std::string job = job_title(process);
        table.add({printable(model_.hosts[process.host].name), std::to_string(process.pid),
                   name.empty() ? "-" : printable(name), job.empty() ? "-" : printable(job),
                   std::to_string(sums[i]->all.qps), human_bytes(sums[i]->all.tx_wire_bytes),
                   human_bytes(sums[i]->all.tx_payload_bytes),
                   human_bytes(sums[i]->all.tcp.tx_payload_bytes),
                   human_bytes(computed(sums[i]->all)), human_bytes(sums[i]->all.rx_wire_bytes)});
    }
    text_ += table.text(width_);
    more(sums.size(), shown, "processes");
}

void ReportTextWriter::events() {
    std::set<Index> listed; // already in the errors
    for (const nccl::NcclError &error : model_.nccl.errors)
        listed.insert(error.qps.begin(), error.qps.end());
    const auto n_events = static_cast<std::size_t>(
        std::count_if(model_.events.begin(), model_.events.end(), [&](const model::Event &event) {
            return event.kind != "qp_error" || !listed.contains(event.qp);
        }));
    if (n_events == 0)
        return;
    title("Events (UTC)");
    std::size_t shown = 0;
    for (const model::Event &event : model_.events) {
        if (event.kind == "qp_error" && listed.contains(event.qp))
            continue;
        if (shown / 2 == options_.rows)
            break;
        std::string where = model_.hosts[event.host].name;
        if (event.device != NONE)
            where += " " + model_.devices[event.device].name;
        if (event.port != NONE)
            where += fmt::format(" port {}", model_.ports[event.port].number);
        if (event.qpn != 0)
            where += fmt::format(" qp {}", event.qpn);
        wrapped(printable(fmt::format("  {}  {}  {}: {}", utc_time(event.realtime_ns), where,
                                      event.kind, event.what)),
                "                  ", event.kind == "suspected_path_loss" ? "1;33" : "");
        ++shown;
    }
    more(n_events, shown, "events");
}

} // namespace

std::string text_report(const Model &model, const TextOptions &options) {
    return ReportTextWriter(model, options).run();
}

} // namespace collwire::report
