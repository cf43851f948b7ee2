// SPDX-License-Identifier: Apache-2.0
// Which calls of NCCL stand behind an operation of PyTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "correlate/find/watchdog_line.h"

namespace collwire::find {

// An NCCL function with the number of elements that it is called with.
struct NcclCall {
    std::uint8_t func = 0;              // enum cw_nccl_func
    std::optional<std::uint64_t> count; // absent: any
};

struct OpTypeCalls {
    bool is_known = false; // else any call fits
    std::vector<NcclCall> calls;
};

// In a communicator of so many ranks. Source: the calls of ProcessGroupNCCL.cpp.
[[nodiscard]] OpTypeCalls calls_of(const WatchdogLine &line, std::int32_t n_ranks);

} // namespace collwire::find
