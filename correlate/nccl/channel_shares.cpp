// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/channel_shares.h"

#include <algorithm>

#include "correlate/capture/nccl_names.h"
#include "correlate/nccl/protocol_bytes.h"

namespace collwire::nccl {
namespace {

constexpr std::uint32_t FIRST_WITH_LL_FACTOR = 22600;
constexpr std::uint32_t FIRST_WITH_LARGE_CELLS = 22900;
constexpr std::uint64_t CELL_ALIGN_BYTES = 16;
constexpr std::uint64_t LL_FACTOR = 4;

bool is_for_each_rank(const cw_nccl_shape_task &task) {
    return task.func == CW_NCCL_ALL_GATHER || task.func == CW_NCCL_REDUCE_SCATTER;
}

std::uint64_t bytes_of(const cw_nccl_shape_task &task) {
    return task.count * capture::nccl_datatype_bytes(task.datatype);
}

// ncclFuncTrafficPerByte
std::uint64_t traffic_per_byte(const ShareRules &rules, const cw_nccl_shape_task &task) {
    const std::uint64_t factor =
        rules.version >= FIRST_WITH_LL_FACTOR && task.protocol == CW_NCCL_LL ? LL_FACTOR : 1;
    if (is_for_each_rank(task))
        return factor * static_cast<std::uint64_t>(rules.n_ranks);
    return factor * (task.func == CW_NCCL_ALL_REDUCE ? 2 : 1);
}

} // namespace

std::vector<std::vector<ChannelShare>> share_out(const ShareRules &rules,
                                                 std::span<const cw_nccl_shape_task> tasks,
                                                 std::uint32_t wanted) {
    const bool is_large = rules.version >= FIRST_WITH_LARGE_CELLS;
    const std::uint64_t least_traffic = is_large ? 32768 : 16384;
    if (wanted == 0 || rules.channels == 0)
        return {};
    std::uint64_t sum = 0;
    std::vector<CellTask> all;
    for (const cw_nccl_shape_task &task : tasks) {
        const std::uint64_t per_byte = traffic_per_byte(rules, task);
        all.push_back({bytes_of(task), per_byte,
                       align_up(divide_up(least_traffic, per_byte), CELL_ALIGN_BYTES)});
        sum += std::max(least_traffic, bytes_of(task) * per_byte);
    }
    return deal_cells({.channels = rules.channels,
                       .channel_traffic = is_large ? align_up(sum / wanted, CELL_ALIGN_BYTES)
                                                   : std::max(least_traffic, sum / wanted)},
                      all);
}

bool may_want(const ShareRules &rules, const cw_nccl_shape_task &task, std::uint32_t wanted) {
    // tuning.cc ncclTopoTuneModel; NCCL_LL_MAX_NTHREADS, NCCL_LL128_MAX_NTHREADS, and for Simple
    // 256 where the links are no faster than PCIe.
    constexpr std::int64_t USUAL_THREADS = 512, LL128_THREADS = 640, FEWER_THREADS = 256;
    constexpr std::int64_t SIMPLE_BYTES = 64, LL_BYTES = 8; // of a thread
    const auto least_of = [](std::int64_t set, std::int64_t usual) {
        return static_cast<std::uint64_t>(set > 0 ? std::min(set, usual) : usual);
    };
    const auto ranks = static_cast<std::uint64_t>(rules.n_ranks);
    const std::uint64_t all_bytes = bytes_of(task) * (is_for_each_rank(task) ? ranks : 1);
    std::uint64_t least = SIMPLE_BYTES * least_of(rules.n_threads, FEWER_THREADS);
    std::uint64_t most = SIMPLE_BYTES * least_of(rules.n_threads, USUAL_THREADS);
    if (task.protocol == CW_NCCL_LL)
        least = most = LL_BYTES * least_of(rules.n_threads, USUAL_THREADS) *
                       (task.algorithm == CW_NCCL_RING ? ranks : 1);
    else if (task.protocol == CW_NCCL_LL128)
        least = most = LL_BYTES * least_of(rules.n_ll128_threads, LL128_THREADS);
    if (wanted >= 2 && all_bytes < wanted * least)
        return false;
    return wanted >= rules.channels || all_bytes < (wanted + 1) * most;
}

} // namespace collwire::nccl
