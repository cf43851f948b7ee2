// SPDX-License-Identifier: Apache-2.0
#include "collwire/nvlink_records.h"
#include "correlate/capture/reader.h"
#include "correlate/nccl/gather.h"

namespace collwire::nccl {

using capture::record_as;

GatheredNvlink *Gather::nvlink_gpu_of(Index session, std::uint32_t gpu) {
    const auto [found, is_new] = nvlink_gpus_.try_emplace(
        AddressKey{0, session, gpu}, static_cast<Index>(gathered_.nvlink_gpus.size()));
    if (is_new && gathered_.nvlink_gpus.size() >= MAX_NVLINK_GPUS) {
        nvlink_gpus_.erase(found);
        return nullptr;
    }
    if (is_new) {
        gathered_.nvlink_gpus.emplace_back();
        gathered_.nvlink_gpus.back().session = session;
        gathered_.nvlink_gpus.back().record.gpu = gpu;
    }
    return &gathered_.nvlink_gpus[found->second];
}

bool Gather::add_nvlink_gpu(Index session, std::span<const std::byte> record) {
    const auto gpu = record_as<cw_nvlink_gpu>(record);
    GatheredNvlink *into = nvlink_gpu_of(session, gpu.gpu);
    if (into == nullptr)
        return false;
    if (gpu.header.time_ns >= into->record.header.time_ns)
        into->record = gpu;
    return true;
}

bool Gather::add_nvlink_sample(Index session, std::span<const std::byte> record) {
    const auto sample = record_as<cw_nvlink_sample>(record);
    if (++counts_.nvlink_samples > MAX_NVLINK_SAMPLES)
        return false;
    GatheredNvlink *into = nvlink_gpu_of(session, sample.gpu);
    if (into == nullptr)
        return false;
    into->history.add(sample, capture::nvlink_values_of(record));
    return true;
}

bool Gather::add_nvlink_gap(Index session, std::span<const std::byte> record) {
    const auto gap = record_as<cw_nvlink_gap>(record);
    if (++counts_.nvlink_others > MAX_OTHER_RECORDS)
        return false;
    if (gap.gpu != CW_NVLINK_ALL_GPUS) {
        GatheredNvlink *into = nvlink_gpu_of(session, gap.gpu);
        if (into == nullptr)
            return false;
        if (into->gaps.size() < MAX_NVLINK_GAPS)
            into->gaps.push_back(gap);
        return true;
    }
    for (GatheredNvlink &gpu : gathered_.nvlink_gpus)
        if (gpu.session == session && gap.reason != CW_NVLINK_LOG_OVERRUN &&
            gpu.gaps.size() < MAX_NVLINK_GAPS)
            gpu.gaps.push_back(gap);
    return true;
}

bool Gather::add_xid(Index session, std::span<const std::byte> record) {
    const auto xid = record_as<cw_xid>(record);
    if (++counts_.nvlink_others > MAX_OTHER_RECORDS)
        return false;
    gathered_.xids.push_back({session, xid});
    return true;
}

} // namespace collwire::nccl
