// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/gpu_peers.h"

#include <algorithm>

namespace collwire::nccl {
namespace {

constexpr std::uint32_t PEER_BITS = 64; // of cw_nvlink_gpu

const cw_nvlink_gpu *find_gpu(const std::vector<GatheredNvlink> &gpus, Index session,
                              std::uint64_t bus_id) {
    const auto found = std::ranges::find_if(gpus, [&](const GatheredNvlink &gpu) {
        return gpu.session == session && gpu.record.bus_id == bus_id &&
               gpu.record.header.length_bytes != 0;
    });
    return found == gpus.end() ? nullptr : &found->record;
}

bool has_none(const cw_nvlink_gpu &gpu) {
    return gpu.result == 0 && gpu.links == 0;
}

} // namespace

std::optional<bool> is_over_nvlink(const std::vector<GatheredNvlink> &gpus, Index session,
                                   std::uint64_t bus_id, std::uint64_t peer_bus_id) {
    const cw_nvlink_gpu *gpu = find_gpu(gpus, session, bus_id);
    const cw_nvlink_gpu *peer = find_gpu(gpus, session, peer_bus_id);
    if (gpu == nullptr || peer == nullptr || gpu == peer)
        return std::nullopt;
    if (has_none(*gpu) || has_none(*peer))
        return false;
    // NVML's indices may change when it is started again.
    if (gpu->epoch != peer->epoch || peer->gpu >= PEER_BITS)
        return std::nullopt;
    const std::uint64_t bit = std::uint64_t{1} << peer->gpu;
    if ((gpu->nvlink_peers & bit) != 0)
        return true;
    return (gpu->other_peers & bit) != 0 ? std::optional(false) : std::nullopt;
}

} // namespace collwire::nccl
