// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl_plugins.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "userspace/base/clock.h"
#include "userspace/base/put.h"
#include "userspace/nccl/plugin_memory.h"

namespace collwire {
namespace {

constexpr unsigned MAX_TRIES = 3;
// Of each look: a sample has other things to do.
constexpr std::uint64_t MAX_LOOK_NS = 50'000'000;
// Each look reads what a process has mapped, and all queue pairs of the node.
constexpr std::uint64_t PAUSE_NS = 20'000'000;
// Of one process: far more than NCCL makes.
constexpr std::size_t MAX_NOTED = 16384;

} // namespace

void NcclPlugins::note(const cw_nccl_connection &connection, std::uint32_t image_id,
                       std::uint64_t net) {
    if (connection.transport != CW_NCCL_TRANSPORT_PLUGIN || connection.n_endpoints != 0 ||
        connection.net_comm == 0)
        return;
    std::vector<Noted> &noted = noted_[connection.tgid];
    if (noted.size() < MAX_NOTED)
        noted.push_back({connection, 0});
    if (net == 0)
        return;
    const auto [network, is_new] = networks_.try_emplace({connection.tgid, net});
    if (!is_new)
        return;
    network->second.header = {sizeof(cw_nccl_network), CW_KIND_NCCL_NETWORK, CW_CPU_USERSPACE,
                              monotonic_ns()};
    network->second.net = net;
    network->second.tgid = connection.tgid;
    network->second.image_id = image_id;
    unread_.insert({connection.tgid, net});
}

void NcclPlugins::look_at_process(std::uint32_t tgid, std::vector<Noted> &noted,
                                  std::uint64_t until_ns, Found &found) {
    ProcessView process{static_cast<pid_t>(tgid)};
    if (!process.refresh()) {
        noted.clear(); // it has ended
        return;
    }
    for (auto &[key, network] : networks_) {
        if (key.first != tgid || unread_.erase(key) == 0)
            continue;
        if (const auto read = nccl::read_plugin_network(process, network.net)) {
            put(network.name, read->name);
            put(network.path, read->path);
        }
        found.networks.push_back(network);
    }
    const auto numbers = qp_numbers_(tgid);
    std::vector<Noted> left;
    for (Noted &one : noted) {
        if (monotonic_ns() >= until_ns) {
            left.push_back(one);
            continue;
        }
        const auto qps = nccl::find_plugin_qps(process, one.connection.net_comm, numbers);
        if (qps.empty()) {
            if (++one.tries < MAX_TRIES)
                left.push_back(one);
            continue;
        }
        cw_nccl_connection record = one.connection;
        record.header.time_ns = monotonic_ns();
        record.header.cpu = CW_CPU_USERSPACE;
        record.flags |= CW_NCCL_CONNECTION_FOUND;
        record.n_endpoints = static_cast<std::uint32_t>(qps.size());
        const bool is_send = (record.flags & CW_NCCL_CONNECTION_SEND) != 0;
        for (std::size_t first = 0; first < qps.size(); first += CW_NCCL_ENDPOINTS) {
            record.first = static_cast<std::uint32_t>(first);
            record.n = 0;
            for (std::size_t i = first; i < qps.size() && record.n < CW_NCCL_ENDPOINTS; ++i)
                record.endpoints[record.n++] = {
                    qps[i].address, qps[i].number, 0,
                    static_cast<std::uint8_t>(is_send ? CW_NCCL_ROLE_DATA
                                                      : CW_NCCL_ROLE_CLEAR_TO_SEND),
                    qps[i].depth};
            found.connections.push_back(record);
        }
    }
    noted = std::move(left);
}

NcclPlugins::Found NcclPlugins::look() {
    Found found;
    const std::uint64_t until_ns = monotonic_ns() + MAX_LOOK_NS;
    if (noted_.empty())
        return found;
    for (auto process = noted_.begin(); process != noted_.end();) {
        look_at_process(process->first, process->second, until_ns, found);
        process = process->second.empty() ? noted_.erase(process) : std::next(process);
    }
    looked_ns_ = monotonic_ns();
    return found;
}

bool NcclPlugins::is_due() const {
    return !noted_.empty() && monotonic_ns() - looked_ns_ >= PAUSE_NS;
}

std::vector<cw_nccl_network> NcclPlugins::networks() const {
    std::vector<cw_nccl_network> all;
    for (const auto &[key, network] : networks_)
        if (!unread_.contains(key))
            all.push_back(network);
    return all;
}

void NcclPlugins::forget(std::uint32_t tgid) {
    noted_.erase(tgid);
    std::erase_if(networks_, [tgid](const auto &network) { return network.first.first == tgid; });
    std::erase_if(unread_, [tgid](const auto &key) { return key.first == tgid; });
}

} // namespace collwire
