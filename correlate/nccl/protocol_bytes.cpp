// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/protocol_bytes.h"

namespace collwire::nccl {
namespace {

// NCCL device.h: a line of LL is two words of data with a flag each; a warp's slice of LL128 is 16
// lines of 120 bytes of data and a flag of 8. Each chunk fills up its last line. The type's size
// has no effect: it divides all of these.
constexpr std::uint64_t LL_DATA_BYTES = 8, LL_WIRE_BYTES = 16;
constexpr std::uint64_t LL128_DATA_BYTES = 1920, LL128_WIRE_BYTES = 2048;

} // namespace

CutBytes &CutBytes::operator+=(const CutBytes &other) {
    payload_bytes += other.payload_bytes;
    data_bytes += other.data_bytes;
    chunks += other.chunks;
    return *this;
}

CutBytes &CutBytes::operator*=(std::uint64_t factor) {
    payload_bytes *= factor;
    data_bytes *= factor;
    chunks *= factor;
    return *this;
}

// prims_ll.h LLGenericOp, prims_ll128.h GenericOp, prims_simple.h genericOp: the size that each
// writes to a FIFO entry. LL's cleaning steps, 8 every 2^31 steps of a connection, send the whole
// slot and are not counted here.
std::uint64_t wire_bytes(cw_nccl_protocol protocol, std::uint64_t data_bytes) {
    switch (protocol) {
    case CW_NCCL_LL:
        return divide_up(data_bytes, LL_DATA_BYTES) * LL_WIRE_BYTES;
    case CW_NCCL_LL128:
        return divide_up(data_bytes, LL128_DATA_BYTES) * LL128_WIRE_BYTES;
    case CW_NCCL_SIMPLE:
    case CW_NCCL_PROTOCOL_UNKNOWN:
        break;
    }
    return data_bytes;
}

CutBytes cut(cw_nccl_protocol protocol, std::uint64_t data_bytes, std::uint64_t chunk_bytes) {
    const std::uint64_t full = data_bytes / chunk_bytes;
    const std::uint64_t rest_bytes = data_bytes % chunk_bytes;
    return {.payload_bytes =
                full * wire_bytes(protocol, chunk_bytes) + wire_bytes(protocol, rest_bytes),
            .data_bytes = data_bytes,
            .chunks = full + (rest_bytes != 0 ? 1 : 0)};
}

} // namespace collwire::nccl
