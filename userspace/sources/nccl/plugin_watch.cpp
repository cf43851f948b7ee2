// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl/plugin_watch.h"

#include <fmt/format.h>

#include "collwire/nccl_comm_records.h"

namespace collwire::sources {

void PluginWatch::add(const CommAddress &address, const cw_nccl_connection &connection) {
    const cw_nccl_comm *comm = comms_.find(address);
    if (comm == nullptr || connection.transport != CW_NCCL_TRANSPORT_PLUGIN ||
        connection.n_endpoints != 0)
        return;
    std::uint64_t net = 0;
    const NcclLibrary *library = libraries_.find(comm->image_id);
    // The proxy of another rank (PXN) has its own.
    if (library != nullptr && library->bpf_layout &&
        library->bpf_layout->proxy_state_net != CW_NCCL_NO_FIELD && connection.tgid == comm->tgid &&
        comm->proxy_state != 0)
        net = process::ProcessView{static_cast<pid_t>(connection.tgid)}
                  .read<std::uint64_t>(comm->proxy_state + library->bpf_layout->proxy_state_net)
                  .value_or(0);
    plugins_.add(connection, {address.tgid, address.comm}, comm->image_id, net);
}

void PluginWatch::poll_if_due() {
    if (plugins_.is_due())
        poll();
}

void PluginWatch::poll() {
    NcclPlugins::Found found = plugins_.search();
    for (const auto &[owner, connection] : found.connections)
        comms_.add_connection({owner.first, owner.second}, connection);
    found_.connections.insert(found_.connections.end(), found.connections.begin(),
                              found.connections.end());
    found_.networks.insert(found_.networks.end(), found.networks.begin(), found.networks.end());
}

void PluginWatch::append(source::RecordSink &sink, bool everything, bool is_last) {
    if (everything || is_last)
        poll();
    else
        poll_if_due();
    const NcclPlugins::Found found = std::exchange(found_, {});
    if (everything)
        for (const cw_nccl_network &network : plugins_.networks())
            sink.append(network.header);
    for (const cw_nccl_network &network : found.networks)
        sink.append(network.header); // its process may have exited since
    for (const auto &[owner, connection] : found.connections)
        sink.append(connection.header);
}

std::string PluginWatch::problem(bool is_over) const {
    const std::size_t n = plugins_.dropped() + (is_over ? plugins_.unsearched() : 0);
    if (n == 0)
        return {};
    return fmt::format("the queue pairs of {} connection(s) of a network plugin were not searched: "
                       "they ended too early, or the kernel's queue pairs could not be read. Their "
                       "bytes are the process's, or assigned by what queue pairs carried. Fix: "
                       "none for short connections; else record for longer",
                       n);
}

} // namespace collwire::sources
