// SPDX-License-Identifier: Apache-2.0
// The driver functions of a queue pair in a running process, from its memory. This needs no tables
// and no guesses about versions: the offsets of the public structs are the same in rdma-core 15 to
// 65 (x86-64; libibverbs/verbs.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "collwire/verbs.h"
#include "userspace/process/process_view.h"

namespace collwire::verbs {

struct LiveFunction {
    cw_verbs_call call = CW_CALL_POST_SEND;
    std::uint64_t address = 0; // in the process
    process::Mapping mapping;  // that holds it
    std::uint64_t file_offset = 0;
};

struct LiveQp {
    std::uint64_t context = 0; // address of struct ibv_context
    std::uint32_t qpn = 0;
    std::string device;                  // "mlx5_0"
    std::vector<LiveFunction> functions; // post_send, then those of ibv_wr_* if the QP has them
};

// `qp_address`: of struct ibv_qp in the process. An error if the memory there is not, or not yet, a
// queue pair: its driver fills it in during creation. Call view.refresh() before.
Result<LiveQp> read_live_qp(const process::ProcessView &view, std::uint64_t qp_address);

} // namespace collwire::verbs
