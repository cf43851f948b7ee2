// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl/queue_pairs.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace collwire::sources {
namespace {

constexpr std::size_t MAX_CONNECTIONS = 65536; // of a process

} // namespace

void NcclQpRegistry::add(const cw_nccl_connection &connection, std::uint64_t steps_at,
                         bool is_lasting, bool is_derived) {
    Process &process = processes_[connection.tgid];
    auto &connections = process.connections;
    if (connections.size() >= MAX_CONNECTIONS && !connections.contains(connection.connection))
        return;
    process.answer.reset();
    Connection &known = connections[connection.connection];
    // Another one at the same address.
    if (known.net_comm != connection.net_comm)
        known = {.net_comm = connection.net_comm, .comm = connection.comm, .is_derived = true};
    known.rank = connection.rank;
    known.peer = connection.peer;
    if (is_lasting)
        known.comm = 0;
    if (steps_at != 0)
        known.steps_at = steps_at;
    known.is_send = (connection.flags & CW_NCCL_CONNECTION_SEND) != 0;
    // A plugin's bytes, and those of reductions in the network, are not NCCL's to know.
    known.is_derived = known.is_derived && is_derived &&
                       (connection.transport == CW_NCCL_TRANSPORT_IB ||
                        connection.transport == CW_NCCL_TRANSPORT_SOCKET ||
                        connection.transport == CW_NCCL_TRANSPORT_LOCAL);
    if (connection.transport != CW_NCCL_TRANSPORT_IB)
        return;
    for (std::uint32_t i = 0; i < std::min<std::uint32_t>(connection.n, CW_NCCL_ENDPOINTS); ++i) {
        const cw_nccl_endpoint &endpoint = connection.endpoints[i];
        if (endpoint.address != 0)
            (endpoint.role == CW_NCCL_ROLE_DATA ? known.data : known.others)
                .insert(endpoint.address);
    }
}

void NcclQpRegistry::forget(std::uint32_t tgid, std::uint64_t comm) {
    const auto process = processes_.find(tgid);
    if (process == processes_.end())
        return;
    std::erase_if(process->second.connections,
                  [comm](const auto &entry) { return entry.second.comm == comm; });
    process->second.answer.reset();
}

const source::NcclQueuePairs *NcclQpRegistry::of(std::uint32_t tgid) const {
    const auto process = processes_.find(tgid);
    if (process == processes_.end() || process->second.connections.empty())
        return nullptr;
    auto &answer = process->second.answer;
    if (!answer)
        answer = answer_of(process->second);
    return &*answer;
}

source::NcclQueuePairs NcclQpRegistry::answer_of(const Process &process) {
    source::NcclQueuePairs all;
    all.are_derived = true;
    // Of several ranks (PXN): requests of one may be posted with those of another, and then their
    // headers do not follow from the sizes of messages.
    std::map<std::uint64_t, std::pair<std::int32_t, std::int32_t>> ranks; // by address
    for (const auto &[address, connection] : process.connections) {
        all.are_derived = all.are_derived && connection.is_derived;
        for (const std::uint64_t queue_pair : connection.data) {
            const std::pair here(connection.rank, connection.peer);
            if (ranks.try_emplace(queue_pair, here).first->second != here)
                all.are_derived = false;
        }
        for (const auto *queue_pairs : {&connection.data, &connection.others})
            all.addresses.insert(all.addresses.end(), queue_pairs->begin(), queue_pairs->end());
        if (connection.is_send && connection.steps_at != 0 && !connection.data.empty())
            all.senders.push_back(
                {address, connection.steps_at, {connection.data.begin(), connection.data.end()}});
    }
    std::ranges::sort(all.addresses);
    return all;
}

} // namespace collwire::sources
