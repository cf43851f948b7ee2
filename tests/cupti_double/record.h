// SPDX-License-Identifier: Apache-2.0
// Activity records in a client's buffer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/cupti_double/abi.h"
#include "tests/cupti_double/feed.h"

namespace collwire::cupti_double {

// All but the times.
KernelRecord record_of(const KernelLaunch &launch, std::uint32_t kind);

// As cuptiActivityGetNextRecord. `*record` null: the first one.
Result next_record(std::uint8_t *buffer, std::size_t valid_bytes, std::uint8_t **record,
                   std::size_t record_bytes);

} // namespace collwire::cupti_double
