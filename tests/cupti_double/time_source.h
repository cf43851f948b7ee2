// SPDX-License-Identifier: Apache-2.0
// CUPTI's clock: the kernel's REALTIME, or the client's timestamp callback.
#pragma once

#include <cstdint>

#include "tests/cupti_double/abi.h"

namespace collwire::cupti_double {

// From CLOCK_MONOTONIC to CUPTI's clock.
struct ClockOffset {
    std::int64_t offset_ns = 0;
    std::uint64_t error_ns = 0; // the offset is off by at most this
    std::uint64_t at_ns = 0;    // when it was read, CLOCK_MONOTONIC
};

// `read` null: CLOCK_REALTIME. Both clocks are read several times, the shortest reading counts.
ClockOffset measure_offset(ReadTimestamp read);

std::uint64_t read_clock(ReadTimestamp read);

} // namespace collwire::cupti_double
