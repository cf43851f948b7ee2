// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/open_groups.h"

#include <algorithm>

#include "collwire/socket_records.h"

namespace collwire::nccl {

namespace {

// Between a call and its launch are the rest of its group and, for the first one, the creation of
// connections.
constexpr std::uint64_t LONGEST_GROUP_NS = 10'000'000'000;

// NCCL creates queue pairs and sockets with their connection, and keeps them as long.
bool is_gone(const model::Model &model, const Link &link) {
    return std::any_of(link.qps.begin(), link.qps.end(),
                       [&](Index qp) { return model.qps[qp].destroyed_ns != 0; }) ||
           std::any_of(link.sockets.begin(), link.sockets.end(), [&](Index socket) {
               return (model.nccl.gathered.sockets[socket].last.flags & CW_TCP_SOCKET_GONE) != 0;
           });
}

} // namespace

OpenGroups::OpenGroups(const model::Model &model)
    : model_(model), connections_(model.nccl.instances.size()) {
    for (const Link &link : model.nccl.links) {
        const Connections now = is_gone(model, link) ? Connections::Gone : Connections::There;
        for (const Index instance : link.instances)
            connections_[instance] = std::max(connections_[instance], now);
    }
}

bool OpenGroups::may_hold(Index index, const Call &call) const {
    const Instance &instance = model_.nccl.instances[index];
    const Connections connections = connections_[index];
    const model::Session &session = model_.sessions[instance.session];
    if (instance.ended || connections == Connections::Gone)
        return false;
    if (model::add_saturating(call.time_ns, LONGEST_GROUP_NS) <
        std::min(session.end_ns, session.counted_until_ns("nccl")))
        return false;
    // A communicator without network traffic never launches.
    if (instance.n_launches == 0)
        return connections != Connections::None;
    const auto &launches = model_.nccl.gathered.streams[instance.stream].launches;
    return call.time_ns > launches[instance.first_launch + instance.n_launches - 1].time_ns;
}

} // namespace collwire::nccl
