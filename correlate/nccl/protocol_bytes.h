// SPDX-License-Identifier: Apache-2.0
// Transported bytes of NCCL protocols for given data bytes.
#pragma once

#include <cstdint>

#include "collwire/nccl_launch_records.h"

namespace collwire::nccl {

// Of a task, a channel or a chunk. Larger values are invalid; products of these stay in 64 bits.
inline constexpr std::uint64_t MOST_BYTES = std::uint64_t{1} << 40;

inline cw_nccl_protocol protocol_of(const cw_nccl_op &op) {
    return static_cast<cw_nccl_protocol>(op.protocol);
}

struct CutBytes {
    std::uint64_t payload_bytes = 0;
    std::uint64_t data_bytes = 0;
    std::uint64_t chunks = 0;

    CutBytes &operator+=(const CutBytes &other);
    CutBytes &operator*=(std::uint64_t factor);
};

// One chunk. `protocol`: Simple, LL or LL128.
std::uint64_t wire_bytes(cw_nccl_protocol protocol, std::uint64_t data_bytes);

// Data cut into chunks, the last one shorter. `chunk_bytes` is not 0. No data: no chunk.
CutBytes cut(cw_nccl_protocol protocol, std::uint64_t data_bytes, std::uint64_t chunk_bytes);

constexpr std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) {
    return value / by + (value % by != 0 ? 1 : 0);
}
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t to) {
    return divide_up(value, to) * to;
}

} // namespace collwire::nccl
