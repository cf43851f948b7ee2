// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/operation_pool.h"

#include <algorithm>

#include "collwire/nccl_layout.h"
#include "userspace/nccl/layout/bpf_layout.h"

namespace collwire::inspect {
namespace {

constexpr std::int32_t MAX_LOCAL_RANKS = 1024;
constexpr std::int32_t NONE = -1;

} // namespace

std::optional<bool> is_pool_empty(const process::ProcessView &process,
                                  const nccl::LibraryLayout &layout, const cw_nccl_comm &comm) {
    const auto at = [&layout](std::string_view name) { return nccl::field_offset(layout, name); };
    const std::uint32_t lists = at("ncclProxyState.proxyOps"), list_bytes = at("ncclProxyOps"),
                        count = at("ncclProxyState.tpLocalnRanks"), pool = at("ncclProxyOps.pool"),
                        free = at("ncclProxyOps.freeOp"), returned = at("ncclProxyOpsPool.freeOps"),
                        numbers = at("ncclComm.topParentLocalRanks");
    for (const std::uint32_t offset : {lists, list_bytes, count, pool, free, returned, numbers})
        if (offset == CW_NCCL_NO_FIELD)
            return std::nullopt;
    if (comm.proxy_state == 0 || comm.local_rank < 0 || comm.local_rank >= MAX_LOCAL_RANKS)
        return std::nullopt;
    const auto array = process.read<std::uint64_t>(comm.proxy_state + lists);
    const auto n = process.read<std::int32_t>(comm.proxy_state + count);
    const auto table = process.read<std::uint64_t>(comm.comm + numbers);
    if (!array || !n || *array == 0 || table.value_or(0) == 0)
        return std::nullopt;
    const auto own =
        process.read<std::int32_t>(*table + static_cast<std::uint64_t>(comm.local_rank) * 4);
    if (!own || *own < 0 || *own >= MAX_LOCAL_RANKS)
        return std::nullopt;
    for (std::int32_t i = 0; i < std::min(*n, MAX_LOCAL_RANKS); ++i) {
        const std::uint64_t list = *array + static_cast<std::uint64_t>(i) * list_bytes;
        const auto shared = process.read<std::uint64_t>(list + pool);
        if (shared.value_or(0) == 0 || process.read<std::int32_t>(list + free) != NONE)
            continue;
        if (process.read<std::int32_t>(*shared + returned + static_cast<std::uint64_t>(*own) * 4) ==
            NONE)
            return true;
    }
    return false;
}

} // namespace collwire::inspect
