// SPDX-License-Identifier: Apache-2.0
// Creates synthetic records.
#pragma once

#include <cstdint>

#include "collwire/record.h"
#include "collwire/record_kinds.h"

namespace collwire::trace_gen {

template <typename T> T make(cw_kind kind, std::uint64_t time_ns) {
    T record{};
    record.header.length_bytes = sizeof(T);
    record.header.kind = static_cast<std::uint16_t>(kind);
    record.header.cpu = CW_CPU_USERSPACE;
    record.header.time_ns = time_ns;
    return record;
}

} // namespace collwire::trace_gen
