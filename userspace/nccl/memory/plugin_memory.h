// SPDX-License-Identifier: Apache-2.0
// Reads a network plugin in the memory of its process: its name, its file, and the queue pairs of
// its connections, whose objects have no known layout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "collwire/nccl_connection_records.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

struct PluginQp {
    std::uint64_t address = 0; // of struct ibv_qp
    std::uint32_t number = 0;
    std::uint8_t depth = 0; // the number of pointers that lead there
};

// Queue pairs that pointers lead to from the object at `address`: the nearest first, MAX_PLUGIN_QPS
// at most, each with the fewest pointers. `numbers`: the QPNs of the process in the kernel. A
// candidate (the first fields of struct ibv_qp are part of libibverbs' ABI) whose qp_num is not in
// `numbers` is rejected. `process` was refreshed. Reads at most 1,024 objects and 2 MiB.
inline constexpr std::size_t MAX_PLUGIN_QPS = 128;
std::vector<PluginQp> find_plugin_qps(const process::ProcessView &process, std::uint64_t address,
                                      const std::unordered_set<std::uint32_t> &numbers);

// CW_NCCL_ROLE_*, of the queue pairs of a plugin's connection: its receiving end sends
// clear-to-send alone.
constexpr std::uint8_t plugin_role(const cw_nccl_connection &connection) {
    return (connection.flags & CW_NCCL_CONNECTION_SEND) != 0 ? CW_NCCL_ROLE_DATA
                                                             : CW_NCCL_ROLE_CLEAR_TO_SEND;
}

struct PluginNetwork {
    std::string name; // its name for NCCL; empty: unreadable
    std::string
        path; // of the file with its functions, in the process's mount namespace; empty: none
};

// Of the ncclNet_t at `net`. Name, init and devices are its first fields in every version; NCCL
// wraps the functions of plugins for other versions, except `devices`. `process` was refreshed.
// Empty: unreadable.
std::optional<PluginNetwork> read_plugin_network(const process::ProcessView &process,
                                                 std::uint64_t net);

} // namespace collwire::nccl
