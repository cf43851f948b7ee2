// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/names.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "correlate/capture/kinds.h"

namespace collwire::report {

using model::BytesRung;
using model::CaptureEnd;
using model::Pairing;

namespace {
std::string_view file_name(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::vector<model::Index> all(std::size_t count) {
    std::vector<model::Index> indices(count);
    std::iota(indices.begin(), indices.end(), model::Index{0});
    return indices;
}
} // namespace

std::string_view rung_name(BytesRung rung) {
    switch (rung) {
    case BytesRung::Posted:
        return "posted";
    case BytesRung::Wire:
        return "wire";
    case BytesRung::None:
        break;
    }
    return "none";
}

std::string_view pairing_name(Pairing pairing) {
    switch (pairing) {
    case Pairing::Paired:
        return "paired";
    case Pairing::NotCaptured:
        return "peer_not_captured";
    case Pairing::Ambiguous:
        return "ambiguous";
    case Pairing::None:
        break;
    }
    return "none";
}

std::string_view capture_end_name(CaptureEnd end) {
    switch (end) {
    case CaptureEnd::Complete:
        return "complete";
    case CaptureEnd::Damaged:
        return "damaged";
    case CaptureEnd::Unreadable:
        return "unreadable";
    case CaptureEnd::Open:
        break;
    }
    return "open";
}

std::string qp_type_text(std::uint8_t type) {
    const std::string_view name = capture::qp_type_name(type);
    return name.empty() ? "unknown" : std::string(name);
}

std::string job_title(const model::Process &process) {
    constexpr std::size_t CONTAINER_DIGITS = 12; // as podman ps and docker ps have them
    if (!process.slurm_job.empty())
        return "slurm " + process.slurm_job +
               (process.slurm_step.empty() ? "" : "." + process.slurm_step);
    if (!process.pod_uid.empty())
        return "pod " + process.pod_uid;
    return process.container_id.empty()
               ? std::string{}
               : "container " + process.container_id.substr(0, CONTAINER_DIGITS);
}

std::string process_title(const model::Process &process) {
    std::string title(file_name(process.argv0));
    if (title.empty())
        title = process.comm;
    if (!process.script.empty())
        title += ' ' + std::string(file_name(process.script));
    return title;
}

std::optional<Window> window_of(const model::Model &model) {
    Window window;
    for (const model::Session &session : model.sessions) {
        if (session.excluded)
            continue;
        const model::Host &host = model.hosts[session.host];
        window.begin_ns = std::min(window.begin_ns, host.realtime_ns(session.begin_ns));
        window.end_ns = std::max(window.end_ns, host.realtime_ns(session.end_ns));
    }
    return window.begin_ns <= window.end_ns ? std::optional(window) : std::nullopt;
}

std::vector<model::Index> hosts_in_order(const model::Model &model) {
    std::vector<model::Index> order = all(model.hosts.size());
    std::stable_sort(order.begin(), order.end(), [&](model::Index a, model::Index b) {
        return model.hosts[a].name < model.hosts[b].name;
    });
    return order;
}

std::vector<model::Index> ports_in_order(const model::Model &model) {
    std::vector<model::Index> order = all(model.ports.size());
    const auto key = [&](model::Index index) {
        const model::Port &port = model.ports[index];
        const model::Device &device = model.devices[port.device];
        return std::tie(model.hosts[device.host].name, device.name, port.number);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](model::Index a, model::Index b) { return key(a) < key(b); });
    return order;
}

std::vector<model::Index> sockets_in_order(const model::Model &model) {
    const nccl::NcclFacts &nccl = model.nccl;
    std::vector<model::Index> order;
    for (model::Index index = 0; index < nccl.sockets.size(); ++index)
        if (!model.sessions[nccl.gathered.sockets[index].session].excluded)
            order.push_back(index);
    const auto host_name = [&](const nccl::Socket &socket) -> std::string_view {
        return model.hosts[model.sessions[socket.session].host].name;
    };
    std::sort(order.begin(), order.end(), [&](model::Index a, model::Index b) {
        const nccl::Socket &x = nccl.gathered.sockets[a];
        const nccl::Socket &y = nccl.gathered.sockets[b];
        return std::tuple(host_name(x), x.tgid, x.last.local_port, x.last.remote_port, a) <
               std::tuple(host_name(y), y.tgid, y.last.local_port, y.last.remote_port, b);
    });
    return order;
}

} // namespace collwire::report
