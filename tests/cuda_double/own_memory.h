// SPDX-License-Identifier: Apache-2.0
// Reads this process's memory at addresses that may not be mapped.
#pragma once

#include <cstdint>
#include <optional>

namespace collwire::cuda_double {

// Nothing where no eight bytes are mapped.
std::optional<std::uint64_t> try_read(std::uintptr_t address);

} // namespace collwire::cuda_double
