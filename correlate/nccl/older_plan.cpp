// SPDX-License-Identifier: Apache-2.0
// Collectives. enqueue.cc of 2.20.5, 2.21.5, 2.22.3 and 2.23.4.
#include "correlate/nccl/older_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <set>

#include "correlate/capture/nccl_names.h"
#include "correlate/nccl/protocol_bytes.h"

namespace collwire::nccl {
namespace {

constexpr std::uint32_t MOST_CHANNELS = 64; // MAXCHANNELS is 32 here
constexpr std::uint32_t FIRST_WITH_CELLS = 22200;
constexpr std::uint32_t FIRST_WITH_LARGE_CELLS = 22300;
constexpr std::uint64_t WARP = 32;
constexpr std::uint64_t CHANNEL_ALIGN_BYTES = 16; // NCCL_BYTES_ALIGNMENT
constexpr std::uint64_t CELL_ALIGN_BYTES = 16;
constexpr std::size_t MOST_CALLS = 1024; // of a launch

std::uint64_t bytes_of(const OlderCall &call) {
    return call.count * capture::nccl_datatype_bytes(call.datatype);
}

bool is_for_each_rank(const OlderCall &call) {
    return call.func == CW_NCCL_ALL_GATHER || call.func == CW_NCCL_REDUCE_SCATTER;
}

// ncclFuncTrafficPerByte
std::uint64_t traffic_per_byte(const OlderRules &rules, const OlderCall &call) {
    if (is_for_each_rank(call))
        return static_cast<std::uint64_t>(rules.n_ranks);
    return call.func == CW_NCCL_ALL_REDUCE ? 2 : 1;
}

// hostToDevRedOp: ncclDevSum, Prod, MinMax, PreMulSum, SumPostDiv.
int device_reduction(const OlderCall &call) {
    constexpr std::uint8_t FLOAT_16 = 6;
    switch (call.reduction) {
    case 0:
    case 1:
        return call.reduction;
    case 2:
    case 3:
        return 2;
    case 4:
        return call.datatype < FLOAT_16 ? 4 : 3;
    default:
        return 3;
    }
}

bool is_alike(const OlderCall &a, const OlderCall &b) {
    return a.func == b.func && a.datatype == b.datatype &&
           device_reduction(a) == device_reduction(b);
}

bool is_pattern_of(const OlderCall &call, std::uint8_t pattern) {
    switch (call.func) {
    case CW_NCCL_BROADCAST:
        return pattern == CW_NCCL_PATTERN_PIPELINE_FROM;
    case CW_NCCL_REDUCE:
        return pattern == CW_NCCL_PATTERN_PIPELINE_TO;
    case CW_NCCL_ALL_GATHER:
    case CW_NCCL_REDUCE_SCATTER:
        return pattern == CW_NCCL_PATTERN_RING;
    case CW_NCCL_ALL_REDUCE:
        return pattern == CW_NCCL_PATTERN_RING_TWICE || pattern == CW_NCCL_PATTERN_TREE_UP_DOWN;
    default:
        return false;
    }
}

bool is_rooted(const OlderCall &call) {
    return call.func == CW_NCCL_BROADCAST || call.func == CW_NCCL_REDUCE;
}

// bitops.h u32fpEncode with two bits of mantissa: the bin of a size in the sorter.
std::uint32_t bin_of(std::uint64_t bytes) {
    constexpr unsigned BITS = 2;
    const auto units = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, 1U << 30U) >> 10U);
    const auto log2 = static_cast<unsigned>(std::bit_width(units | 1U)) - 1;
    const std::uint32_t mantissa =
        (units >> (log2 >= BITS ? log2 - BITS : 0)) & ((1U << BITS) - 1U);
    return (log2 >= BITS ? log2 - (BITS - 1) : 0) << BITS | mantissa;
}

// 2.20: ncclIntruQueueSortEnqueue with collCmp: the largest first, of equal ones the newest.
std::vector<std::uint32_t> sorted_queue(std::span<const OlderCall> calls) {
    std::vector<std::uint32_t> order;
    const auto key = [&](std::uint32_t i) {
        return std::tuple(calls[i].func, calls[i].datatype, device_reduction(calls[i]),
                          calls[i].count);
    };
    for (std::uint32_t i = 0; i < calls.size(); ++i)
        order.insert(std::find_if(order.begin(), order.end(),
                                  [&](std::uint32_t at) { return key(at) <= key(i); }),
                     i);
    return order;
}

// 2.22: ncclTaskCollSorterInsert and ncclPrepareTasks: kinds by their largest call, of a kind the
// smallest first.
std::vector<std::uint32_t> binned_queue(const OlderRules &rules, std::span<const OlderCall> calls) {
    std::vector<std::uint32_t> order(calls.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto bin = [&](std::uint32_t i) {
        return bin_of(bytes_of(calls[i]) * traffic_per_byte(rules, calls[i]));
    };
    std::reverse(order.begin(), order.end());
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return bin(a) > bin(b); });
    // AllGather and Broadcast count bytes there.
    const auto kind = [&](std::uint32_t i) {
        const bool is_of_bytes =
            calls[i].func == CW_NCCL_ALL_GATHER || calls[i].func == CW_NCCL_BROADCAST;
        return std::tuple(calls[i].func, device_reduction(calls[i]),
                          is_of_bytes ? std::uint8_t{0} : calls[i].datatype);
    };
    std::vector<std::uint32_t> queue;
    std::vector<bool> is_done(calls.size(), false);
    for (const std::uint32_t first : order) {
        if (is_done[first])
            continue;
        for (auto at = order.rbegin(); at != order.rend(); ++at)
            if (!is_done[*at] && kind(*at) == kind(first)) {
                is_done[*at] = true;
                queue.push_back(*at);
            }
    }
    return queue;
}

// Assigns a launch's operations to its calls, one call after the other.
class Placement {
public:
    Placement(const OlderRules &rules, std::span<const OlderCall> calls,
              std::span<const OpFacts> ops)
        : rules_(rules), calls_(calls), ops_(ops), is_used_(ops.size(), false),
          result_(ops.size()) {
        for (std::size_t i = 0; i < ops.size(); ++i)
            on_channel_[ops[i].op.channel].push_back(i);
    }

    // The next operation, if the next call has any here.
    const OpFacts *next() {
        while (next_ < ops_.size() && is_used_[next_])
            ++next_;
        return next_ < ops_.size() ? &ops_[next_] : nullptr;
    }

    // `like`: an operation of the same call.
    bool take(std::uint32_t call, const OpFacts &like, const ChannelShare &share,
              std::uint64_t ring_align_bytes) {
        const auto found = on_channel_.find(static_cast<std::uint8_t>(share.channel));
        bool is_any = false;
        std::set<std::uint64_t> seen; // connections: the first remaining one of each
        if (found != on_channel_.end())
            for (const std::size_t i : found->second) {
                const cw_nccl_op &op = ops_[i].op;
                if (is_used_[i] || !seen.insert(op.connection).second ||
                    op.pattern != like.op.pattern || op.protocol != like.op.protocol ||
                    (is_rooted(calls_[call]) && op.root != calls_[call].root))
                    continue;
                OpFacts facts = ops_[i];
                facts.op.channel_bytes = share.bytes;
                facts.ring_align_bytes = ring_align_bytes;
                const auto bytes = derive_op_bytes(facts);
                if (!bytes)
                    return false;
                is_used_[i] = is_any = true;
                result_[i] = {call, bytes};
            }
        return is_any || (!rules_.is_one_rank_a_node && share.channel < MOST_CHANNELS);
    }

    [[nodiscard]] bool is_done() { return next() == nullptr; }
    std::vector<OlderOp> take_result() { return std::move(result_); }

private:
    const OlderRules &rules_;
    std::span<const OlderCall> calls_;
    std::span<const OpFacts> ops_;
    std::map<std::uint8_t, std::vector<std::size_t>> on_channel_;
    std::vector<bool> is_used_;
    std::vector<OlderOp> result_;
    std::size_t next_ = 0;
};

// The common part of all plans that match the operations.
class Agreed {
public:
    void add(std::vector<OlderOp> plan) {
        if (!plan_) {
            plan_ = std::move(plan);
            return;
        }
        for (std::size_t i = 0; i < plan.size(); ++i) {
            OlderOp &op = (*plan_)[i];
            is_sure_ = is_sure_ && op.call == plan[i].call;
            if (op.bytes != plan[i].bytes)
                op.bytes.reset();
        }
    }
    [[nodiscard]] bool is_over() const { return !is_sure_; }
    std::optional<std::vector<OlderOp>> take() {
        return is_sure_ ? std::move(plan_) : std::nullopt;
    }

private:
    std::optional<std::vector<OlderOp>> plan_;
    bool is_sure_ = true;
};

// Bytes of the run of calls that is planned as one, by its first: determines its number of threads
// (scheduleCollTasksToPlan, aggInfo).
std::uint64_t run_bytes(const OlderRules &rules, std::span<const OlderCall> calls,
                        std::span<const std::uint32_t> queue, std::size_t &at) {
    const OlderCall &first = calls[queue[at]];
    std::uint64_t bytes = 0;
    for (; at < queue.size() && is_alike(first, calls[queue[at]]); ++at)
        bytes += bytes_of(calls[queue[at]]);
    return is_for_each_rank(first) ? bytes * static_cast<std::uint64_t>(rules.n_ranks) : bytes;
}

// getChannnelThreadInfo, getAlgoInfo: a single call uses no more channels than it has work for. For
// Simple NCCL may have 256 threads or 512. `all`: least number of channels.
bool may_use(const OlderRules &rules, const OpFacts &like, std::uint64_t all_bytes,
             std::uint32_t channels, std::uint32_t all) {
    constexpr std::uint64_t USUAL_THREADS = 512, FEWER_THREADS = 256;
    const bool is_ring = like.op.pattern != CW_NCCL_PATTERN_TREE_UP_DOWN;
    std::uint64_t least = 64 * std::min(rules.ll_threads, FEWER_THREADS);
    std::uint64_t most = 64 * std::min(rules.ll_threads, USUAL_THREADS);
    if (like.op.protocol == CW_NCCL_LL)
        least = most =
            rules.ll_threads * 8 * (is_ring ? static_cast<std::uint64_t>(rules.n_ranks) : 1);
    else if (like.op.protocol == CW_NCCL_LL128)
        least = most = rules.ll128_threads * 8;
    if (channels >= 2 && all_bytes < channels * least)
        return false;
    return channels >= all || all_bytes < (channels + 1) * most;
}

// scheduleCollTasksToPlan and addCBDCollToPlan.
std::optional<std::vector<OlderOp>> place_by_filling(const OlderRules &rules,
                                                     std::span<const OlderCall> calls,
                                                     std::span<const OpFacts> ops,
                                                     std::span<const std::uint32_t> queue,
                                                     std::uint32_t channels) {
    std::uint64_t sum_bytes = 0;
    for (const OlderCall &call : calls)
        sum_bytes += bytes_of(call);
    const std::uint64_t channel_bytes =
        align_up(divide_up(sum_bytes, channels), CHANNEL_ALIGN_BYTES);
    std::vector<std::uint64_t> used_bytes(channels, 0);
    Placement placement(rules, calls, ops);
    std::size_t run_end = 0;
    std::uint64_t all_bytes = 0;
    for (std::size_t at = 0; at < queue.size(); ++at) {
        if (at == run_end)
            all_bytes = run_bytes(rules, calls, queue, run_end);
        const OpFacts *next = placement.next();
        if (next == nullptr || !is_pattern_of(calls[queue[at]], next->op.pattern) ||
            next->op.protocol > CW_NCCL_SIMPLE ||
            (queue.size() == 1 && !may_use(rules, *next, all_bytes, channels, rules.channels_seen)))
            return std::nullopt;
        const std::uint64_t unit_bytes =
            share_unit_bytes(rules, protocol_of(next->op),
                             next->op.pattern != CW_NCCL_PATTERN_TREE_UP_DOWN, all_bytes);
        const OpFacts like = *next;
        for (const ChannelShare &share :
             fill_channels(bytes_of(calls[queue[at]]), unit_bytes, channel_bytes, used_bytes))
            if (share.channel >= rules.most_channels ||
                !placement.take(queue[at], like, share, unit_bytes))
                return std::nullopt;
    }
    return placement.is_done() ? std::optional(placement.take_result()) : std::nullopt;
}

std::optional<std::vector<OlderOp>>
place_shares(const OlderRules &rules, std::span<const OlderCall> calls,
             std::span<const OpFacts> ops, std::span<const std::uint32_t> queue,
             std::uint32_t channels, std::uint32_t wanted,
             const std::vector<std::vector<ChannelShare>> &shares) {
    Placement placement(rules, calls, ops);
    std::size_t end = 0;
    if (queue.size() == 1 && placement.next() != nullptr &&
        !may_use(rules, *placement.next(), run_bytes(rules, calls, queue, end), wanted, channels))
        return std::nullopt;
    for (std::size_t at = 0; at < queue.size(); ++at) {
        const OpFacts *next = placement.next();
        if (next == nullptr || !is_pattern_of(calls[queue[at]], next->op.pattern))
            return std::nullopt;
        const OpFacts like = *next;
        for (const ChannelShare &share : shares[at])
            if (share.channel >= rules.most_channels ||
                !placement.take(queue[at], like, share, like.ring_align_bytes))
                return std::nullopt;
    }
    return placement.is_done() ? std::optional(placement.take_result()) : std::nullopt;
}

} // namespace

// getNthreads: an invalid value becomes the maximum or the minimum.
void set_threads(OlderRules &rules, std::int64_t n_threads, std::int64_t n_ll128_threads) {
    const auto taken = [](std::int64_t wanted, std::int64_t least, std::int64_t most) {
        if (wanted <= 0 || wanted % static_cast<std::int64_t>(WARP) != 0)
            return static_cast<std::uint64_t>(most); // also the default
        return static_cast<std::uint64_t>(std::clamp(wanted, least, most));
    };
    rules.ll_threads = taken(n_threads, 64, 512);
    rules.ll128_threads = taken(n_ll128_threads, 160, 640);
}

std::vector<std::uint32_t> order_of_calls(const OlderRules &rules,
                                          std::span<const OlderCall> calls) {
    return rules.version < FIRST_WITH_CELLS ? sorted_queue(calls) : binned_queue(rules, calls);
}

// computeCollAlignCount, with the threads of getChannnelThreadInfo: halved while one channel has
// too few bytes for them.
std::uint64_t share_unit_bytes(const OlderRules &rules, cw_nccl_protocol protocol, bool is_ring,
                               std::uint64_t all_bytes) {
    if (protocol == CW_NCCL_SIMPLE)
        return WARP * 8 * 16; // NCCL_SIMPLE_ALIGNMENT
    const bool is_ll = protocol == CW_NCCL_LL;
    std::uint64_t threads = is_ll ? rules.ll_threads : rules.ll128_threads;
    const std::uint64_t threshold =
        8 * (is_ll && is_ring ? static_cast<std::uint64_t>(rules.n_ranks) : 1);
    while (all_bytes < threads * threshold && threads % 128 == 0)
        threads /= 2;
    threads = std::max(threads, 3 * WARP);
    return is_ll ? 8 * threads : 480 * (threads / WARP);
}

std::vector<ChannelShare> fill_channels(std::uint64_t bytes, std::uint64_t unit_bytes,
                                        std::uint64_t channel_bytes,
                                        std::vector<std::uint64_t> &used_bytes) {
    std::vector<ChannelShare> shares;
    for (std::uint32_t channel = 0; channel < used_bytes.size() && bytes != 0; ++channel) {
        std::uint64_t &used = used_bytes[channel];
        if (used >= channel_bytes)
            continue;
        const std::uint64_t share =
            std::min(align_up(std::min(channel_bytes - used, bytes), unit_bytes), bytes);
        used += share;
        bytes -= share;
        shares.push_back({channel, share});
    }
    return shares;
}

std::vector<std::vector<ChannelShare>> share_out(const OlderRules &rules,
                                                 std::span<const OlderCall> calls,
                                                 std::uint32_t channels, std::uint32_t wanted) {
    const bool is_large = rules.version >= FIRST_WITH_LARGE_CELLS;
    const std::uint64_t least_traffic = is_large ? 16384 : 512;
    std::uint64_t sum = 0;
    std::vector<CellTask> tasks;
    for (const OlderCall &call : calls) {
        const std::uint64_t per_byte = traffic_per_byte(rules, call);
        tasks.push_back({bytes_of(call), per_byte,
                         is_large ? align_up(divide_up(least_traffic, per_byte), CELL_ALIGN_BYTES)
                                  : CELL_ALIGN_BYTES});
        sum += std::max(is_large ? least_traffic : 0, bytes_of(call) * per_byte);
    }
    return deal_cells({.channels = channels,
                       .channel_traffic = std::max(least_traffic, sum / wanted),
                       .has_whole_cells = is_large},
                      tasks);
}

std::optional<std::vector<OlderOp>> place_collectives(const OlderRules &rules,
                                                      std::span<const OlderCall> calls,
                                                      std::span<const OpFacts> ops) {
    if (rules.version < OLDEST_PLANNED_VERSION || rules.version >= FIRST_VERSION_WITH_TASKS ||
        calls.empty() || calls.size() > MOST_CALLS || ops.empty() || rules.n_ranks < 2)
        return std::nullopt;
    for (const OlderCall &call : calls)
        if (call.count == 0 || call.count > MOST_BYTES || bytes_of(call) == 0 ||
            bytes_of(call) > MOST_BYTES / static_cast<std::uint64_t>(rules.n_ranks))
            return std::nullopt;
    std::uint32_t first = 1;
    for (const OpFacts &facts : ops)
        first = std::max<std::uint32_t>(first, std::uint32_t{facts.op.channel} + 1);
    if (rules.version < FIRST_WITH_CELLS)
        first = std::max(first, static_cast<std::uint32_t>(
                                    std::min<std::size_t>(rules.channels_seen, calls.size())));
    const std::vector<std::uint32_t> queue = order_of_calls(rules, calls);
    std::vector<OlderCall> in_order;
    in_order.reserve(queue.size());
    for (const std::uint32_t i : queue)
        in_order.push_back(calls[i]);
    Agreed agreed;
    std::set<std::vector<std::vector<std::pair<std::uint32_t, std::uint64_t>>>> tried;
    for (std::uint32_t channels = first; channels <= MOST_CHANNELS && !agreed.is_over();
         ++channels) {
        if (rules.version < FIRST_WITH_CELLS) {
            if (auto plan = place_by_filling(rules, calls, ops, queue, channels))
                agreed.add(std::move(*plan));
            continue;
        }
        // Each call gets at least one.
        const auto least =
            static_cast<std::uint32_t>(std::min<std::size_t>(channels, calls.size()));
        for (std::uint32_t wanted = least; wanted <= channels; ++wanted) {
            const auto shares = share_out(rules, in_order, channels, wanted);
            if (shares.size() != queue.size())
                continue;
            std::vector<std::vector<std::pair<std::uint32_t, std::uint64_t>>> key;
            for (const auto &of_call : shares) {
                auto &part = key.emplace_back();
                for (const ChannelShare &share : of_call)
                    part.emplace_back(share.channel, share.bytes);
            }
            if (calls.size() != 1 && !tried.insert(std::move(key)).second)
                continue;
            if (auto plan = place_shares(rules, calls, ops, queue, channels, wanted, shares))
                agreed.add(std::move(*plan));
        }
    }
    return agreed.take();
}

std::uint8_t algorithm_of_pattern(std::uint8_t pattern) {
    switch (pattern) {
    case CW_NCCL_PATTERN_RING:
    case CW_NCCL_PATTERN_RING_TWICE:
    case CW_NCCL_PATTERN_PIPELINE_FROM:
    case CW_NCCL_PATTERN_PIPELINE_TO:
        return CW_NCCL_RING;
    case CW_NCCL_PATTERN_TREE_UP:
    case CW_NCCL_PATTERN_TREE_DOWN:
    case CW_NCCL_PATTERN_TREE_UP_DOWN:
        return CW_NCCL_TREE;
    case CW_NCCL_PATTERN_COLLNET_CHAIN:
        return CW_NCCL_COLLNET_CHAIN;
    case CW_NCCL_PATTERN_COLLNET_DIRECT:
        return CW_NCCL_COLLNET_DIRECT;
    case CW_NCCL_PATTERN_NVLS:
        return CW_NCCL_NVLS;
    case CW_NCCL_PATTERN_NVLS_TREE:
        return CW_NCCL_NVLS_TREE;
    case CW_NCCL_PATTERN_PAT_UP:
    case CW_NCCL_PATTERN_PAT_DOWN:
        return CW_NCCL_PAT;
    default:
        return CW_NCCL_ALGORITHM_UNKNOWN;
    }
}

} // namespace collwire::nccl
