// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/json_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <numeric>
#include <ostream>
#include <vector>

#include "base/foreign_text.h"
#include "collwire/record.h"
#include "correlate/capture/kinds.h"
#include "correlate/report/job_lines.h"
#include "correlate/report/json_clocks.h"
#include "correlate/report/json_communicators.h"
#include "correlate/report/json_errors.h"
#include "correlate/report/json_gpu.h"
#include "correlate/report/json_incidents.h"
#include "correlate/report/json_links.h"
#include "correlate/report/json_local.h"
#include "correlate/report/json_nccl.h"
#include "correlate/report/json_nvlink.h"
#include "correlate/report/json_sections.h"
#include "correlate/report/json_waiting.h"
#include "correlate/report/names.h"
#include "correlate/report/units.h"
#include "correlate/report/window_text.h"
#include "correlate/roles/guess_roles.h"

namespace collwire::report {

using model::Index;
using model::Model;

namespace {

// Names come from captures; bytes that are not UTF-8 become U+FFFD.
std::string dump(const Json &json, int indent = -1) {
    return escaped_json(json.dump(indent, ' ', false, Json::error_handler_t::replace));
}

class JsonReportWriter {
public:
    explicit JsonReportWriter(std::ostream &out) : out_(out) { out_ << '{'; }
    ~JsonReportWriter() { out_ << "\n}\n"; }
    JsonReportWriter(const JsonReportWriter &) = delete;
    JsonReportWriter &operator=(const JsonReportWriter &) = delete;

    void value(const char *name, const Json &json) {
        begin(name);
        out_ << dump(json);
    }
    // An array with one element per line.
    template <typename Range, typename ToJson>
    void array(const char *name, const Range &range, const ToJson &to_json) {
        begin(name);
        out_ << '[';
        const char *separator = "\n  ";
        for (const auto &element : range) {
            out_ << separator << dump(to_json(element));
            separator = ",\n  ";
        }
        out_ << ']';
    }

private:
    void begin(const char *name) {
        out_ << (first_ ? "\n \"" : ",\n \"") << name << "\": ";
        first_ = false;
    }
    std::ostream &out_;
    bool first_ = true;
};

Json window_json(const Model &model) {
    const auto window = window_of(model);
    if (!window)
        return nullptr;
    return {{"begin_realtime_ns", window->begin_ns},
            {"end_realtime_ns", window->end_ns},
            {"begin", utc(window->begin_ns)},
            {"end", utc(window->end_ns)},
            {"duration_ns", window->end_ns - window->begin_ns}};
}

Json loss_json(const Model &model) {
    Json entries = Json::array();
    for (const model::LossEntry &entry : model.loss) {
        Json json = {{"host", model.hosts[entry.host].name}, {"class", entry.loss_class}};
        json["cpu"] = entry.cpu == CW_CPU_USERSPACE ? Json(nullptr) : Json(entry.cpu);
        json["records"] = entry.records;
        entries.push_back(std::move(json));
    }
    return {{"records", model.lost_records}, {"entries", std::move(entries)}};
}

Json sources_json(const Model &model) {
    Json sources = Json::array();
    for (const model::Session &session : model.sessions)
        for (const auto &[key, source] : session.sources)
            sources.push_back(
                {{"host", model.hosts[session.host].name},
                 {"device", source.device == model::NONE ? Json(nullptr)
                                                         : Json(model.devices[source.device].name)},
                 {"name", source.name},
                 {"state", capture::source_state_name(source.state)},
                 {"reason", source.reason}});
    return sources;
}

template <typename T> std::vector<Index> indices_of(const std::vector<T> &items) {
    std::vector<Index> indices(items.size());
    std::iota(indices.begin(), indices.end(), Index{0});
    return indices;
}

void write_nccl(JsonReportWriter &writer, const Model &model, const JsonOptions &options) {
    const nccl::NcclFacts &nccl = model.nccl;
    const auto parts = options.detail ? std::make_unique<nccl::Parts>(model) : nullptr;
    writer.array("findings", nccl.findings,
                 [](const nccl::Finding &finding) { return finding_json(finding); });
    writer.value("identity", identity_json(model));
    writer.value("control", control_json(model));
    writer.array("nccl", nccl.gathered.images,
                 [&](const nccl::Image &image) { return nccl_image_json(model, image); });
    writer.array("networks", nccl::network_uses(model),
                 [&](const nccl::NetworkUse &use) { return network_json(model, use); });
    const std::vector<roles::RoleGuess> guesses = roles::guess_roles(model);
    writer.array("communicators", indices_of(nccl.communicators), [&](Index index) {
        return communicator_json(model, index, guesses[index], options.detail);
    });
    writer.array("matrix", nccl.matrix,
                 [](const auto &cell) { return matrix_json(cell.first, cell.second); });
    writer.array("collectives", nccl.collectives, [&](const nccl::Operation &operation) {
        return collective_json(model, operation, parts.get());
    });
    writer.array("p2p", nccl.p2p, [&](const nccl::Operation &operation) {
        return p2p_json(model, operation, parts.get());
    });
    writer.array("unjoined", nccl.unjoined, [&](const nccl::UnlistedLaunches &unjoined) {
        return unjoined_json(model, unjoined);
    });
    writer.array("replays_left_out", nccl.replays, [&](const nccl::UnlistedLaunches &replays) {
        return replays_json(model, replays);
    });
    writer.array("other_calls", nccl::other_calls(nccl), other_calls_json);
    if (options.waiting != nullptr)
        writer.array("waiting", *options.waiting, waiting_json);
    else
        writer.array("waiting", nccl::find_waiting(model), waiting_json);
    writer.value("gpu", gpu_json(model));
    writer.value("local", local_json(model));
    writer.value("nvlink", nvlink_json(model));
}

} // namespace

void write_json(const Model &model, std::ostream &out, const JsonOptions &options) {
    JsonReportWriter writer(out);
    writer.value("schema", "collwire-report");
    writer.value("schema_version", fmt::format("{}.{}", JSON_SCHEMA_MAJOR, JSON_SCHEMA_MINOR));
    writer.value("window", window_json(model));
    writer.value("jobs", jobs_json(model::find_jobs(model)));
    writer.value("selected", model.window ? window_facts_json(*model.window) : Json(nullptr));
    writer.value("topology", {{"given", model.has_topology}, {"source", model.topology_source}});
    writer.array("warnings", model.warnings,
                 [](const std::string &warning) { return Json(warning); });
    writer.value("loss", loss_json(model));
    writer.value("tiers", tiers_json(model));
    writer.value("total", sums_json(model.total));
    write_nccl(writer, model, options);
    writer.array("captures", model.captures,
                 [&](const model::Capture &capture) { return capture_json(model, capture); });
    writer.array("hosts", hosts_in_order(model),
                 [&](Index index) { return host_json(model, index); });
    writer.array("sources", sources_json(model), [](const Json &source) { return source; });
    writer.array("clock_differences", model.clock_differences,
                 [&](const model::ClockDifference &clock) {
                     return Json{{"host_a", model.hosts[clock.host_a].name},
                                 {"host_b", model.hosts[clock.host_b].name},
                                 {"b_minus_a_ns", clock.b_minus_a_ns},
                                 {"spread_ns", clock.spread_ns},
                                 {"connections", clock.connections}};
                 });
    writer.array("clocks", nccl::host_clocks(model),
                 [&](const nccl::HostClock &clock) { return clock_json(model, clock); });
    writer.array("clock_contradictions", model.clocks.contradictions,
                 [&](const clocks::ClockContradiction &contradiction) {
                     return clock_contradiction_json(model, contradiction);
                 });
    writer.array("processes", model.process_sums,
                 [&](const model::ProcessSums &sums) { return process_json(model, sums); });
    writer.array("node_pairs", model.node_pairs,
                 [](const model::NodePair &pair) { return node_pair_json(pair); });
    writer.array("ports", ports_in_order(model),
                 [&](Index index) { return port_json(model, index); });
    writer.array("events", model.events,
                 [&](const model::Event &event) { return event_json(model, event); });
    const auto incident_to_json = [&](const nccl::PortIncident &incident) {
        return incident_json(model, incident);
    };
    std::vector<nccl::PortIncident> own;
    if (options.incidents == nullptr)
        own = nccl::find_port_incidents(model);
    const std::vector<nccl::PortIncident> &incidents =
        options.incidents == nullptr ? own : *options.incidents;
    writer.array("port_incidents", incidents, incident_to_json);
    writer.array(
        "shared_incidents", nccl::find_shared_incidents(model, incidents),
        [&](const nccl::SharedIncident &shared) { return shared_incident_json(model, shared); });
    writer.array("errors", model.nccl.errors,
                 [&](const nccl::NcclError &error) { return error_json(model, error); });
    writer.array("unmatched_posts", model.unmatched_posts, [&](const model::UnmatchedPosts &posts) {
        return Json{{"host", model.hosts[posts.host].name},
                    {"pid", posts.pid},
                    {"qpn", posts.qpn},
                    {"device", posts.device.empty() ? Json(nullptr) : Json(posts.device)},
                    {"wrs", posts.wrs},
                    {"bytes", posts.bytes},
                    {"reason", posts.reason}};
    });
    writer.array("qps", model.qps, [&](const model::Qp &qp) { return qp_json(model, qp); });
    writer.array("sockets", sockets_in_order(model),
                 [&](Index index) { return socket_json(model, index); });
}

} // namespace collwire::report
