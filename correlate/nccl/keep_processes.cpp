// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/keep_processes.h"

#include <utility>
#include <vector>

namespace collwire::nccl {
namespace {

using model::NONE;

// By old index: the new one; NONE: removed.
template <typename T, typename Keeps>
std::vector<Index> compact(std::vector<T> &items, const Keeps &keeps) {
    std::vector<Index> moved(items.size(), NONE);
    std::size_t n = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (!keeps(items[i]))
            continue;
        moved[i] = static_cast<Index>(n);
        if (n != i)
            items[n] = std::move(items[i]);
        ++n;
    }
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(n), items.end());
    return moved;
}

void move_indices(ByAddress<Index> &indices, const std::vector<Index> &moved) {
    std::erase_if(indices, [&](const auto &entry) { return moved[entry.second] == NONE; });
    for (auto &[key, index] : indices)
        index = moved[index];
}

} // namespace

void keep_processes(Gathered &gathered, const ProcessChooser &keeps) {
    const auto of_process = [&](const auto &item) { return keeps(item.session, item.tgid); };
    const auto of_head = [&](const GatheredConnection &connection) {
        return keeps(connection.session, connection.head.tgid);
    };
    const auto remove_keys = [&](auto &map) {
        std::erase_if(
            map, [&](const auto &entry) { return !keeps(entry.first.session, entry.first.tgid); });
    };
    move_indices(gathered.stream_at, compact(gathered.streams, of_process));
    move_indices(gathered.shape_of_hash, compact(gathered.shapes, of_process));
    const std::vector<Index> connections = compact(gathered.connections, of_head);
    remove_keys(gathered.connections_at);
    for (auto &[key, same] : gathered.connections_at) {
        for (Index &index : same)
            index = connections[index];
        std::erase(same, NONE);
    }
    compact(gathered.processes, of_process);
    compact(gathered.ended_processes, of_process);
    compact(gathered.results, of_process);
    compact(gathered.last_errors, of_process);
    compact(gathered.warnings, of_process);
    compact(gathered.params, of_process);
    compact(gathered.sockets, of_process);
    compact(gathered.closed_sockets, of_process);
    compact(gathered.gpu_processes, of_process);
    remove_keys(gathered.networks);
    remove_keys(gathered.steps);
    remove_keys(gathered.progress);
    remove_keys(gathered.post_operations);
}

} // namespace collwire::nccl
