// SPDX-License-Identifier: Apache-2.0
// The functions of libibverbs that every queue pair passes when it is created, modified and
// destroyed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace collwire::verbs {

enum class ControlCall {
    Create,       // the queue pair is the second argument
    PublicCreate, // the queue pair is returned
    Modify,       // queue pair, attributes, mask
    Destroy,      // queue pair
    AckEvent,     // event
};

struct ControlFunction {
    std::string name;
    ControlCall call = ControlCall::Modify;
    std::uint64_t address = 0; // in the file, without load bias
};

struct ControlPath {
    std::vector<ControlFunction> functions;
    // What is not seen of the queue pairs of this file, in one clause; empty: nothing is missing.
    std::string missing;
};

// From the exported functions of a libibverbs file. Providers create, modify and destroy each queue
// pair of the kernel's with one call of an ibv_cmd_* function, also for ibv_create_qp_ex and
// mlx5dv_create_qp, and none of these calls another one (rdma-core 15 to 65: libibverbs/cmd.c,
// cmd_qp.c). A file without them (statically linked providers, other implementations) is probed on
// its public functions.
ControlPath control_path(const std::map<std::string, std::uint64_t> &exported);

// By the last part of a path; a version may follow, as in libibverbs.so.1.14.44.0.
bool is_libibverbs(std::string_view path);

// Paths in this mount namespace where the distributions and rdma-core install it; each file once.
std::vector<std::string> installed_libibverbs();

} // namespace collwire::verbs
