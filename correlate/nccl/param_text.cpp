// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/param_text.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace collwire::nccl {

namespace {

// NCCL_CONFIG_UNDEF_INT, for parameters that are also in a communicator's configuration.
constexpr std::int64_t UNDEFINED = INT32_MIN;

// Their default in all checked versions, 2.20 to 2.30: NCCL compares with it and then chooses.
constexpr std::array<std::string_view, 26> NOT_SET_IS_MINUS_2{
    "BuffSize",
    "CuMemEnable",
    "GinGdakiMaxDestRdAtomic",
    "GinGdakiMaxQpRdAtomic",
    "GinNconnections",
    "IbAdaptiveRouting",
    "IbArThreshold",
    "IbPrepostReceiveWorkRequests",
    "IbReceiverSideMatchingScheme",
    "Ll128BuffSize",
    "Ll128Nthreads",
    "LlBuffSize",
    "MNNVL",
    "MaxNchannels",
    "MaxNrings",
    "MinNchannels",
    "MinNrings",
    "NetGdrRead",
    "NetOverhead",
    "NetSharedBuffers",
    "Nthreads",
    "NvlsTreeChunkSize",
    "NvlsTreeMaxChunkSize",
    "P2pReadEnable",
    "SocketNsocksPerThread",
    "SocketNthreads",
};
constexpr std::array<std::string_view, 17> NOT_SET_IS_MINUS_1{
    "CuMemHostEnable",
    "GinExclusiveContexts",
    "GinIbTc",
    "GinNcontexts",
    "GinProxyQueueSize",
    "GinType",
    "IbFifoTc",
    "IbGidIndex",
    "IbSl",
    "IbTc",
    "MNNVLCliqueId",
    "MNNVLUUID",
    "RmaProxyQueueSize",
    "SocketMaxRecvBuff",
    "SocketMaxSendBuff",
    "SymRsGinChunkSize",
    "WinStride",
};

bool is_not_set(std::string_view name, std::int64_t value) {
    return value == UNDEFINED ||
           (value == -2 &&
            std::ranges::find(NOT_SET_IS_MINUS_2, name) != NOT_SET_IS_MINUS_2.end()) ||
           (value == -1 && std::ranges::find(NOT_SET_IS_MINUS_1, name) != NOT_SET_IS_MINUS_1.end());
}

} // namespace

std::string param_text(std::string_view name, std::int64_t value) {
    return is_not_set(name, value) ? fmt::format("not set ({})", value) : std::to_string(value);
}

} // namespace collwire::nccl
