// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/network_plugins.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collwire/nccl_connection_records.h"
#include "correlate/nccl/describe.h"

namespace collwire::nccl {

std::vector<NetworkUse> network_uses(const model::Model &model) {
    struct Counts {
        std::size_t all = 0, with_queue_pairs = 0;
    };
    using OwnProcess = std::pair<Index, std::uint32_t>;
    std::map<OwnProcess, Counts> counts;
    for (const Link &link : model.nccl.links) {
        if (link.transport != CW_NCCL_TRANSPORT_PLUGIN || link.is_mirrored)
            continue;
        Counts &of_process = counts[{link.session, link.tgid}];
        ++of_process.all;
        of_process.with_queue_pairs += link.qps.empty() ? 0 : 1;
    }
    std::map<OwnProcess, std::vector<GatheredNetwork>> networks;
    for (const auto &[key, network] : model.nccl.gathered.networks)
        if (!model.sessions[key.session].excluded)
            networks[{key.session, key.tgid}].push_back(network);
    // A process whose plugin could not be read still uses one.
    for (const auto &[process, of_process] : counts)
        if (networks[process].empty())
            networks[process].emplace_back();
    std::vector<NetworkUse> uses;
    for (auto &[process, of_process] : networks) {
        std::ranges::sort(of_process, {}, [](const GatheredNetwork &network) {
            return std::pair(network.path, network.name);
        });
        for (GatheredNetwork &network : of_process)
            uses.push_back({process.first, process.second, std::move(network.name),
                            std::move(network.path), counts[process].all,
                            counts[process].with_queue_pairs});
    }
    return uses;
}

std::optional<Finding> plugin_finding(const model::Model &model) {
    Finding finding;
    std::set<std::string> hosts;
    std::set<std::string> plugins;
    std::set<std::pair<Index, std::uint32_t>> processes;
    std::size_t all = 0;
    std::size_t known = 0;
    for (const NetworkUse &use : network_uses(model)) {
        if (use.n_connections == 0)
            continue;
        plugins.insert(fmt::format("{} ({})", use.name.empty() ? "name unknown" : use.name,
                                   use.path.empty() ? "file unknown" : use.path));
        hosts.insert(model.hosts[model.sessions[use.session].host].name);
        if (!processes.emplace(use.session, use.tgid).second)
            continue;
        all += use.n_connections;
        known += use.n_with_queue_pairs;
    }
    if (all == 0)
        return std::nullopt;
    finding.kind = "network_plugin";
    const std::string joined = known == all
                                   ? "the queue pairs of all of them are inferred"
                                   : fmt::format("the queue pairs of {} are inferred; bytes of the "
                                                 "others, if measured, count for the process only",
                                                 known);
    finding.what = fmt::format(
        "{} connection end(s) use a network plugin instead of NCCL's NET/IB or NET/Socket: {}; {}",
        all, fmt::join(plugins, ", "), joined);
    finding.hosts.assign(hosts.begin(), hosts.end());
    finding.evidence["connections"] = all;
    finding.evidence["with_queue_pairs"] = known;
    return finding;
}

} // namespace collwire::nccl
