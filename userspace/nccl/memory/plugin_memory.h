// SPDX-License-Identifier: Apache-2.0
// What can be known of a network plugin from the memory of a process that has loaded one: what it
// is called, its file, and the queue pairs of its connections, whose objects have no layout that is
// known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "collwire/records.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

struct PluginQp {
    std::uint64_t address = 0; // of struct ibv_qp
    std::uint32_t number = 0;
    std::uint8_t depth = 0; // how many pointers lead there
};

// Queue pairs that pointers lead to from the object at `address`, each by the fewest pointers, at
// most MAX_PLUGIN_QPS of them, the nearest first. `numbers`: of the process's queue pairs, as the
// kernel knows them; whatever looks like a struct ibv_qp (its first fields are part of libibverbs'
// ABI) and has none of them is none. `process` was refreshed. At most 1,024 objects are looked at,
// and 2 MiB read, whatever is there.
inline constexpr std::size_t MAX_PLUGIN_QPS = 128;
std::vector<PluginQp> find_plugin_qps(const ProcessView &process, std::uint64_t address,
                                      const std::unordered_set<std::uint32_t> &numbers);

// CW_NCCL_ROLE_*, of the queue pairs of a plugin's connection: its receiving end sends
// clear-to-send alone.
constexpr std::uint8_t plugin_role(const cw_nccl_connection &connection) {
    return (connection.flags & CW_NCCL_CONNECTION_SEND) != 0 ? CW_NCCL_ROLE_DATA
                                                             : CW_NCCL_ROLE_CLEAR_TO_SEND;
}

struct PluginNetwork {
    std::string name; // as NCCL knows it; empty: it cannot be read
    std::string path; // of the file that its functions are in, as the process sees it; empty: none
};

// Of the ncclNet_t at `net`, of which name, init and devices come first in every version; NCCL
// wraps those of other versions, but for `devices`. `process` was refreshed. Nothing: it cannot be
// read.
std::optional<PluginNetwork> read_plugin_network(const ProcessView &process, std::uint64_t net);

} // namespace collwire::nccl
