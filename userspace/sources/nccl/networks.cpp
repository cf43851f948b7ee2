// SPDX-License-Identifier: Apache-2.0
// Connections through a network that is not NCCL's own.
#include "collwire/nccl_connection_records.h"
#include "userspace/sources/nccl/source.h"

#include <utility>

#include <fmt/format.h>

namespace collwire {

void NcclSource::note_plugin(const CommKey &key, const Comm &comm,
                             const cw_nccl_connection &connection) {
    if (connection.transport != CW_NCCL_TRANSPORT_PLUGIN || connection.n_endpoints != 0)
        return;
    std::uint64_t net = 0;
    const NcclImage *image = images_.find(comm.record.image_id);
    const cw_nccl_layout *layout = image == nullptr ? nullptr : layout_of(*image);
    // Another rank's proxy (PXN) has its own.
    if (layout != nullptr && layout->proxy_state_net != CW_NCCL_NO_FIELD &&
        connection.tgid == comm.record.tgid && comm.record.proxy_state != 0)
        net = ProcessView{static_cast<pid_t>(connection.tgid)}
                  .read<std::uint64_t>(comm.record.proxy_state + layout->proxy_state_net)
                  .value_or(0);
    plugins_.note(connection, {key.tgid, key.comm}, comm.record.image_id, net);
}

std::string NcclSource::plugins_problem(std::size_t n_connections) {
    return fmt::format("the queue pairs of {} connection(s) of a network plugin were not looked "
                       "for: they ended before there was time, or the kernel's queue pairs could "
                       "not be read. Their bytes are the process's, or found by what queue pairs "
                       "carried. Fix: none is needed where they did not last; else record for "
                       "longer",
                       n_connections);
}

void NcclSource::look_at_plugins() {
    NcclPlugins::Found found = plugins_.look();
    for (const auto &[owner, connection] : found.connections)
        keep({owner.first, owner.second}, connection);
    fresh_plugins_.connections.insert(fresh_plugins_.connections.end(), found.connections.begin(),
                                      found.connections.end());
    fresh_plugins_.networks.insert(fresh_plugins_.networks.end(), found.networks.begin(),
                                   found.networks.end());
}

// All connections that were found are told of, also those of communicators that have ended since:
// a new segment has the others once more, among those of their communicators.
void NcclSource::append_plugins(RecordSink &sink, bool everything) {
    if (everything || ended_ || plugins_.is_due())
        look_at_plugins();
    const NcclPlugins::Found found = std::exchange(fresh_plugins_, {});
    if (everything)
        for (const cw_nccl_network &network : plugins_.networks())
            sink.append(network.header);
    for (const cw_nccl_network &network : found.networks)
        sink.append(network.header); // its process may have ended since
    for (const auto &[owner, connection] : found.connections)
        sink.append(connection.header);
}

} // namespace collwire
