// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/plugin_endpoints.h"

#include <string>

#include "correlate/capture/nccl_names.h"
#include "correlate/nccl/plugin_owners.h"
#include "userspace/nccl/memory/plugin_memory.h"

namespace collwire::inspect {

std::map<std::uint64_t, std::vector<Endpoint>> plugin_endpoints(
    const process::ProcessView &process, const std::vector<const cw_nccl_connection *> &connections,
    const std::unordered_set<std::uint32_t> &numbers, std::chrono::steady_clock::time_point until) {
    nccl::PluginOwners owners;
    std::vector<std::vector<nccl::PluginQp>> found;
    found.reserve(connections.size());
    for (const cw_nccl_connection *connection : connections) {
        if (std::chrono::steady_clock::now() >= until)
            return {};
        found.push_back(nccl::find_plugin_qps(process, connection->net_comm, numbers));
        for (const nccl::PluginQp &qp : found.back())
            owners.add(qp.number, connection->net_comm, qp.depth);
    }
    std::map<std::uint64_t, std::vector<Endpoint>> endpoints;
    for (std::size_t i = 0; i < connections.size(); ++i)
        for (const nccl::PluginQp &qp : found[i]) {
            if (!owners.is_of(qp.number, connections[i]->net_comm))
                continue;
            Endpoint endpoint;
            endpoint.number = qp.number;
            endpoint.role = capture::nccl_role_name(nccl::plugin_role(*connections[i]));
            endpoints[connections[i]->connection].push_back(std::move(endpoint));
        }
    return endpoints;
}

} // namespace collwire::inspect
