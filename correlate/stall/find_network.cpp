// SPDX-License-Identifier: Apache-2.0
#include "correlate/stall/find_network.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "correlate/report/units.h"

namespace collwire::stall {
namespace {

using model::Event;
using model::Model;

// Kinds of events that speak against the network. When a process ends, its peers' queue pairs fail,
// too: qp_error counts before the first exit only.
constexpr std::array<std::string_view, 8> against = {
    "carrier_down", "port_err",        "device_gone",         "device_fatal",
    "port_errors",  "retransmissions", "suspected_path_loss", "qp_error"};

// UINT64_MAX: none
std::uint64_t first_exit_ns(const Model &model) {
    std::uint64_t first_ns = UINT64_MAX;
    for (const nccl::EndedProcess &ended : model.nccl.gathered.ended_processes)
        first_ns = std::min(
            first_ns, model.hosts[model.sessions[ended.session].host].realtime_ns(ended.there_ns));
    return first_ns;
}

void add_events(const Model &model, Network &network) {
    struct Sum {
        const Event *first = nullptr;
        std::size_t n = 0;
    };
    std::map<std::string, Sum> sums;
    const std::uint64_t exit_ns = first_exit_ns(model);
    for (const Event &event : model.events) {
        if (std::ranges::find(against, std::string_view(event.kind)) == against.end() ||
            (event.kind == "qp_error" && event.realtime_ns >= exit_ns))
            continue;
        Sum &sum = sums[event.kind];
        if (sum.n++ == 0)
            sum.first = &event;
    }
    for (const auto &[kind, sum] : sums)
        network.against.push_back(
            fmt::format("{} {}, first at {} UTC on {}{}{}", sum.n, kind,
                        report::utc_time(sum.first->realtime_ns), model.hosts[sum.first->host].name,
                        sum.first->what.empty() ? "" : ": ", sum.first->what));
}

void add_counts(const Model &model, Network &network) {
    std::size_t counted = 0, retransmitting = 0;
    for (const model::Qp &qp : model.qps) {
        counted += qp.bytes.retransmitted_wire_bytes ? 1 : 0;
        retransmitting += qp.bytes.retransmitted_wire_bytes.value_or(0) != 0 ? 1 : 0;
    }
    if (counted != 0)
        network.in_favour.push_back(
            fmt::format("{} of {} queue pairs retransmitted, of the {} that were counted",
                        retransmitting, model.qps.size(), counted));
    std::size_t sockets = 0, again = 0;
    for (const nccl::SocketIdentity &socket : model.nccl.sockets) {
        sockets += socket.retransmitted_bytes ? 1 : 0;
        again += socket.retransmitted_bytes.value_or(0) != 0 ? 1 : 0;
    }
    if (sockets != 0)
        network.in_favour.push_back(
            fmt::format("{} of {} TCP sockets retransmitted", again, sockets));
    if (!model.ports.empty())
        network.in_favour.push_back(
            fmt::format("none of {} ports went down, none counted errors", model.ports.size()));
}

} // namespace

Network find_network(const Model &model) {
    Network network;
    network.is_watched = !model.qps.empty() || !model.nccl.sockets.empty();
    add_events(model, network);
    if (network.against.empty())
        add_counts(model, network);
    return network;
}

} // namespace collwire::stall
