// SPDX-License-Identifier: Apache-2.0
// From an operation of the plan to NCCL's calls with their buffers, and to what must come out.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/cuda_double/job/communicator.h"
#include "tests/cuda_double/job/plan.h"
#include "tests/cuda_double/job/values.h"

namespace collwire::job {

// One call of NCCL's API, with what the log has of it.
struct Call {
    std::string name; // as NCCL prints it: AllReduce, Send, ...
    std::size_t count = 0;
    ncclDataType_t type = ncclFloat32;
    std::optional<ncclRedOp_t> reduction{};
    std::optional<int> root{};
    std::optional<int> peer{};
    bool uses_config = false;
    bool must_fail = false;
    std::function<ncclResult_t()> function{};
};

struct PreparedOperation {
    std::vector<Call> calls;
    bool needs_group = false;
    std::string missing; // the function that this NCCL lacks, if it does
    // Fills the buffers again, for a replay.
    std::function<void()> reset;
    std::function<Mismatch()> check;
};

// `sequence`: of the operation in the job; it is the same on all ranks.
PreparedOperation prepare(const Operation &operation, const Communicator &communicator,
                          int sequence);

} // namespace collwire::job
