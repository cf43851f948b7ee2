// SPDX-License-Identifier: Apache-2.0
// Network plugins, and what is known of the connections through them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "correlate/model/model.h"

namespace collwire::nccl {

// A plugin of a process.
struct NetworkUse {
    Index session = NONE;
    std::uint32_t tgid = 0;
    std::string name; // empty: not known
    std::string path; // of its file; empty: not known
    // Of the process, over all plugins: sending or receiving connections, and those with known
    // queue pairs.
    std::size_t n_connections = 0;
    std::size_t n_with_queue_pairs = 0;
};

// By recording and process.
[[nodiscard]] std::vector<NetworkUse> network_uses(const model::Model &model);

// Reports that data goes through plugins, and for how many connections the owner is known. Absent
// without plugins.
[[nodiscard]] std::optional<Finding> plugin_finding(const model::Model &model);

} // namespace collwire::nccl
