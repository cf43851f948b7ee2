// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/neighbours.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "collwire/nccl_comm_records.h"

namespace collwire::nccl {

namespace {

// Far more than a communicator has channels.
constexpr std::size_t MAX_LOOKED_AT = 256;

// -1: there are several, or none.
std::int32_t only_one_of(std::span<const std::int32_t> ranks) {
    const auto is_there = [](std::int32_t rank) { return rank >= 0; };
    return std::ranges::count_if(ranks, is_there) == 1 ? *std::ranges::find_if(ranks, is_there)
                                                       : -1;
}

} // namespace

const Channel *channel_of(const CommStream &stream, const Instance &instance,
                          std::uint32_t number) {
    const std::uint64_t end_ns = instance.end_ns == 0 ? UINT64_MAX : instance.end_ns;
    auto after = std::upper_bound(
        stream.channels.begin(), stream.channels.end(), end_ns,
        [](std::uint64_t time_ns, const Channel &channel) { return time_ns < channel.time_ns; });
    for (std::size_t i = 0; i < MAX_LOOKED_AT && after != stream.channels.begin(); ++i)
        if (const Channel &channel = *--after; channel.time_ns < instance.begin_ns)
            return nullptr;
        else if (channel.record.channel == number)
            return &channel;
    return nullptr;
}

const cw_nccl_nvls *nvls_of(const CommStream &stream, const Instance &instance) {
    const std::uint64_t end_ns = instance.end_ns == 0 ? UINT64_MAX : instance.end_ns;
    const auto after = std::upper_bound(stream.nvls.begin(), stream.nvls.end(), end_ns,
                                        [](std::uint64_t time_ns, const cw_nccl_nvls &nvls) {
                                            return time_ns < nvls.header.time_ns;
                                        });
    if (after == stream.nvls.begin() || std::prev(after)->header.time_ns < instance.begin_ns)
        return nullptr;
    return &*std::prev(after);
}

std::int32_t neighbour_of(const Channel *channel, const cw_nccl_nvls *nvls, const cw_nccl_op &op,
                          bool is_send) {
    if (op.pattern == CW_NCCL_PATTERN_SEND || op.pattern == CW_NCCL_PATTERN_RECV)
        return op.root;
    if (op.pattern == CW_NCCL_PATTERN_NVLS_TREE) {
        const std::size_t odd = op.channel % 2;
        return nvls == nullptr
                   ? -1
                   : only_one_of(std::array{nvls->tree_up[odd], nvls->tree_down[2 * odd],
                                            nvls->tree_down[2 * odd + 1]});
    }
    if (channel == nullptr)
        return -1;
    const cw_nccl_channel &record = channel->record;
    switch (op.pattern) {
    case CW_NCCL_PATTERN_RING:
    case CW_NCCL_PATTERN_RING_TWICE:
    case CW_NCCL_PATTERN_PIPELINE_FROM:
    case CW_NCCL_PATTERN_PIPELINE_TO:
        return is_send ? record.ring_next : record.ring_prev;
    case CW_NCCL_PATTERN_TREE_UP:
    case CW_NCCL_PATTERN_TREE_DOWN:
    case CW_NCCL_PATTERN_TREE_UP_DOWN:
        return only_one_of(std::array{record.tree_up, record.tree_down[0], record.tree_down[1],
                                      record.tree_down[2]});
    default:
        return -1;
    }
}

} // namespace collwire::nccl
