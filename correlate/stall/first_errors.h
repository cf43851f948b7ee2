// SPDX-License-Identifier: Apache-2.0
// The first error of each communicator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/stall/standing.h"

namespace collwire::stall {

// Its time is not set: it is error.time_ns by the clock of the rank's host.
[[nodiscard]] FirstError first_error_of(const nccl::NcclFacts &nccl, const nccl::NcclError &error);

struct ErrorOfCommunicator {
    std::uint64_t hash = 0;
    std::int32_t n_ranks = 0;
    std::string host;
    FirstError error; // by the host's own CLOCK_REALTIME
};

// Of a model that may have no calls and no launches. Absent: without these it is not known whose an
// error is.
[[nodiscard]] std::optional<std::vector<ErrorOfCommunicator>>
first_errors(const model::Model &model);

} // namespace collwire::stall
