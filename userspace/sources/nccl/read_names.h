// SPDX-License-Identifier: Apache-2.0
// The reads of NCCL's memory that the BPF programs do, by name: in messages, and for tests that
// make one fail.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "collwire/nccl_tables.h"

namespace collwire::sources {

// Empty: no such read.
std::string_view read_name(std::uint32_t read);

struct ReadFault {
    cw_nccl_read read = CW_NCCL_READ_NONE;
    std::uint32_t times = 1;
};

// "NAME" or "NAME:TIMES". Empty: not that.
std::optional<ReadFault> parse_read_fault(std::string_view text);
// For tests: COLLWIRE_TEST_FAIL_READ of this process.
ReadFault wanted_read_fault();

} // namespace collwire::sources
