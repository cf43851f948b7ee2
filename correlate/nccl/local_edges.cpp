// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/local_edges.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "correlate/capture/nccl_names.h"
#include "correlate/nccl/channel_shares.h"
#include "correlate/nccl/op_bytes.h"
#include "correlate/nccl/protocol_bytes.h"

namespace collwire::nccl {
namespace {

// Tasks contain their number of channels from this version on.
constexpr std::uint32_t FIRST_WITH_CHANNELS = 22700;
constexpr std::uint32_t FIRST_WITH_OWN_THRESHOLD = 22900;
constexpr std::uint64_t STEPS = 8;            // NCCL_STEPS
constexpr std::uint64_t RING_CHUNK_STEPS = 4; // ALLREDUCE_CHUNKSTEPS
constexpr std::uint64_t LL128_WORDS = 16, LL128_DATA_WORDS = 15, LL128_GRAIN_BYTES = 1920;
constexpr std::uint64_t LL_GRAIN_BYTES = 16, SIMPLE_GRAIN_BYTES = 512;
// init.cc computeBuffSizes: LL, LL128, Simple.
constexpr std::array<std::uint64_t, 3> USUAL_BUFFER_BYTES{524288, 4915200, 4194304};
constexpr std::int64_t USUAL_P2P_LL_THRESHOLD_BYTES = 16384;
constexpr std::uint32_t MOST_CHANNELS = 64; // MAXCHANNELS

bool is_p2p(const cw_nccl_shape_task &task) {
    return task.func == CW_NCCL_SEND || task.func == CW_NCCL_RECV;
}

bool is_nvls(const cw_nccl_shape_task &task) {
    return task.algorithm == CW_NCCL_NVLS || task.algorithm == CW_NCCL_NVLS_TREE;
}

std::uint64_t bytes_of(const cw_nccl_shape_task &task) {
    return task.count * capture::nccl_datatype_bytes(task.datatype);
}

// enqueue.cc calcCollChunking, for an AllReduce on a ring: data bytes of a chunk.
std::uint64_t ring_chunk_bytes(const LocalComm &comm, std::uint8_t protocol) {
    const std::int64_t set = comm.buffer_bytes[protocol];
    const std::uint64_t step =
        (set > 0 ? static_cast<std::uint64_t>(set) : USUAL_BUFFER_BYTES[protocol]) / STEPS;
    switch (protocol) {
    case CW_NCCL_LL:
        return step / 2 / LL_GRAIN_BYTES * LL_GRAIN_BYTES;
    case CW_NCCL_LL128:
        return step / LL128_WORDS * LL128_DATA_WORDS / LL128_GRAIN_BYTES * LL128_GRAIN_BYTES;
    default:
        return step * RING_CHUNK_STEPS / SIMPLE_GRAIN_BYTES * SIMPLE_GRAIN_BYTES;
    }
}

class LaunchModel {
public:
    LaunchModel(const LocalComm &comm, std::span<const cw_nccl_shape_task> tasks,
                std::span<const KnownShare> shares, bool has_grouped_broadcasts)
        : comm_(comm), tasks_(tasks), known_(shares), has_grouped_(has_grouped_broadcasts),
          result_(tasks.size()) {
        for (const cw_nccl_channel &channel : comm.channels)
            if (channel.channel < MOST_CHANNELS)
                channels_[channel.channel] = &channel;
    }

    std::vector<ModelledTask> run() {
        if (comm_.n_ranks < 2 || comm_.rank < 0 || comm_.rank >= comm_.n_ranks)
            return fail_all(NotModelled::Task);
        if (comm_.version < OLDEST_LOCAL_VERSION)
            return fail_all(NotModelled::Version);
        for (std::uint32_t i = 0; i < tasks_.size(); ++i) {
            if (is_p2p(tasks_[i])) {
                result_[i] = transfer(tasks_[i]);
                continue;
            }
            result_[i].reason = reason_of(tasks_[i]);
            if (result_[i].reason == NotModelled::No)
                (is_nvls(tasks_[i]) ? nvls_ : collectives_).push_back(i);
            else
                has_unknown_ = has_unknown_ || !is_scheduled_apart(tasks_[i], result_[i].reason);
        }
        // Tasks of the launch that the scheduler counts in a way that is not known here.
        if (has_unknown_)
            fail(collectives_, NotModelled::Channels);
        else if (!collectives_.empty())
            divide(collectives_, static_cast<std::uint32_t>(
                                     std::min<std::size_t>(comm_.channels.size(), MOST_CHANNELS)));
        if (!nvls_.empty())
            divide(nvls_, std::min(static_cast<std::uint32_t>(comm_.nvls.place.n_channels),
                                   MOST_CHANNELS));
        return std::move(result_);
    }

private:
    std::vector<ModelledTask> fail_all(NotModelled reason) {
        for (ModelledTask &task : result_)
            task.reason = reason;
        return std::move(result_);
    }

    [[nodiscard]] NotModelled reason_of(const cw_nccl_shape_task &task) const {
        if (task.func == CW_NCCL_ALL_GATHER_V || (task.func == CW_NCCL_BROADCAST && has_grouped_))
            return NotModelled::GroupedBroadcast;
        if (task.func > CW_NCCL_ALL_REDUCE)
            return NotModelled::Task;
        switch (task.algorithm) {
        case CW_NCCL_COLLNET_DIRECT:
        case CW_NCCL_COLLNET_CHAIN:
            return NotModelled::CollNet;
        case CW_NCCL_NVLS:
            if (!is_nvls_known(comm_.nvls, task))
                return NotModelled::Nvls;
            break;
        case CW_NCCL_NVLS_TREE:
            if (!is_nvls_known(comm_.nvls, task))
                return NotModelled::NvlsTree;
            break;
        default:
            break;
        }
        // The scheduler of rings and trees sets it, those of other kernels do not. None of these
        // is a Broadcast.
        if (comm_.version >= FIRST_WITH_CHANNELS && task.n_channels == 0)
            return task.func == CW_NCCL_BROADCAST ? NotModelled::GroupedBroadcast
                                                  : NotModelled::OtherKernel;
        if (task.algorithm > CW_NCCL_PAT || task.protocol > CW_NCCL_SIMPLE || task.count == 0 ||
            task.count > MOST_BYTES || bytes_of(task) == 0 || bytes_of(task) > MOST_BYTES)
            return NotModelled::Task;
        return NotModelled::No;
    }

    // ---- sends and receives

    // addP2pToPlan. Parts begin at multiples of 4 KiB, so only the last one fills up a line of LL.
    [[nodiscard]] ModelledTask transfer(const cw_nccl_shape_task &task) const {
        ModelledTask result;
        if (task.root < 0 || task.root >= comm_.n_ranks || task.bytes > MOST_BYTES) {
            result.reason = NotModelled::Task;
            return result;
        }
        if (task.root == comm_.rank)
            return result;
        const auto protocol = protocol_of_transfer(task);
        if (!protocol) {
            result.reason = NotModelled::Protocol;
            return result;
        }
        const bool is_send = task.func == CW_NCCL_SEND;
        result.edges.push_back({.sender = is_send ? comm_.rank : task.root,
                                .receiver = is_send ? task.root : comm_.rank,
                                .channel = ALL_CHANNELS,
                                .payload_bytes = wire_bytes(*protocol, task.bytes),
                                .data_bytes = task.bytes});
        return result;
    }

    [[nodiscard]] std::optional<cw_nccl_protocol>
    protocol_of_transfer(const cw_nccl_shape_task &task) const {
        const auto threshold = static_cast<std::uint64_t>(comm_.p2p_ll_threshold_bytes < 0
                                                              ? USUAL_P2P_LL_THRESHOLD_BYTES
                                                              : comm_.p2p_ll_threshold_bytes);
        if (task.bytes <= threshold)
            return CW_NCCL_LL;
        if (task.bytes <= task.n_channels * threshold)
            return CW_NCCL_LL;
        if (comm_.version >= FIRST_WITH_OWN_THRESHOLD)
            return task.n_channels == 0 ? std::nullopt : std::optional{CW_NCCL_SIMPLE};
        // Before 2.29 the threshold is that of the channels which NCCL allows a peer, not of those
        // that the send has.
        if (comm_.p2p_channels_per_peer != 0)
            return task.bytes <= comm_.p2p_channels_per_peer * threshold ? CW_NCCL_LL
                                                                         : CW_NCCL_SIMPLE;
        const std::uint64_t most = comm_.p2p_channels != 0 ? comm_.p2p_channels : MOST_CHANNELS;
        if (task.bytes > most * threshold)
            return CW_NCCL_SIMPLE;
        return std::nullopt;
    }

    // ---- collectives

    // ncclPrepareTasks sorts collectives into those of NVLS, those of CollNet, and all others.
    // scheduleCollTasksToPlan counts each of these by itself.
    static bool is_scheduled_apart(const cw_nccl_shape_task &task, NotModelled reason) {
        return reason == NotModelled::GroupedBroadcast || reason == NotModelled::CollNet ||
               is_nvls(task);
    }

    // Every number of channels that fits the tasks and the known shares is tried: what all results
    // agree on is certain. `of`: tasks that the scheduler counts together.
    void divide(const std::vector<std::uint32_t> &of, std::uint32_t channels) {
        const ShareRules rules{.version = comm_.version,
                               .n_ranks = comm_.n_ranks,
                               .channels = channels,
                               .n_threads = comm_.n_threads,
                               .n_ll128_threads = comm_.n_ll128_threads};
        std::vector<cw_nccl_shape_task> tasks;
        tasks.reserve(of.size());
        for (const std::uint32_t i : of)
            tasks.push_back(tasks_[i]);
        std::vector<std::vector<std::vector<ChannelShare>>> divisions;
        for (std::uint32_t wanted = 1; wanted <= rules.channels; ++wanted) {
            auto shares = share_out(rules, tasks, wanted);
            if (!shares.empty() && fits(rules, of, tasks, wanted, shares) &&
                std::ranges::find(divisions, shares) == divisions.end())
                divisions.push_back(std::move(shares));
        }
        if (divisions.empty())
            return fail(of, rules.channels == 0 ? NotModelled::Topology : NotModelled::Channels);
        for (std::size_t i = 0; i < of.size(); ++i)
            result_[of[i]] = agreed(tasks[i], divisions, i);
    }

    void fail(const std::vector<std::uint32_t> &of, NotModelled reason) {
        for (const std::uint32_t i : of)
            result_[i].reason = reason;
    }

    [[nodiscard]] bool fits(const ShareRules &rules, const std::vector<std::uint32_t> &of,
                            std::span<const cw_nccl_shape_task> tasks, std::uint32_t wanted,
                            const std::vector<std::vector<ChannelShare>> &shares) const {
        for (std::size_t i = 0; i < tasks.size(); ++i)
            if (tasks[i].n_channels != 0 && tasks[i].n_channels != shares[i].size())
                return false;
        for (const KnownShare &known : known_) {
            const auto place = std::ranges::find(of, known.task);
            if (place == of.end())
                continue;
            const std::vector<ChannelShare> &here =
                shares[static_cast<std::size_t>(place - of.begin())];
            if (std::ranges::find(here, ChannelShare{known.channel, known.bytes}) == here.end())
                return false;
        }
        if (tasks.size() != 1 || tasks.front().n_channels != 0)
            return true;
        // NVLS uses all of its channels, however few bytes there are.
        return is_nvls(tasks.front()) ? wanted == rules.channels
                                      : may_want(rules, tasks.front(), wanted);
    }

    [[nodiscard]] ModelledTask
    agreed(const cw_nccl_shape_task &task,
           const std::vector<std::vector<std::vector<ChannelShare>>> &divisions,
           std::size_t place) const {
        ModelledTask first;
        bool is_same = true, is_same_sum = true;
        for (std::size_t d = 0; d < divisions.size(); ++d) {
            ModelledTask other = collective(task, divisions[d][place]);
            if (other.reason != NotModelled::No)
                return other;
            if (d == 0) {
                first = std::move(other);
                continue;
            }
            is_same = is_same && first.edges == other.edges;
            is_same_sum = is_same_sum && sums_of(first.edges) == sums_of(other.edges);
        }
        if (is_same)
            return first;
        if (!is_same_sum)
            return {.reason = NotModelled::Channels, .edges = {}};
        return {.reason = NotModelled::No, .edges = sums_of(first.edges)};
    }

    static std::vector<LocalEdge> sums_of(std::span<const LocalEdge> edges) {
        std::map<std::pair<std::int32_t, std::int32_t>, LocalEdge> sums;
        for (const LocalEdge &edge : edges) {
            LocalEdge &sum = sums[{edge.sender, edge.receiver}];
            sum.sender = edge.sender;
            sum.receiver = edge.receiver;
            sum.payload_bytes += edge.payload_bytes;
            sum.data_bytes += edge.data_bytes;
        }
        std::vector<LocalEdge> all;
        all.reserve(sums.size());
        for (const auto &[ends, sum] : sums)
            all.push_back(sum);
        return all;
    }

    [[nodiscard]] ModelledTask collective(const cw_nccl_shape_task &task,
                                          std::span<const ChannelShare> shares) const {
        ModelledTask result;
        for (const ChannelShare &share : shares) {
            if (is_nvls(task)) {
                add_switch(task, share, result.edges);
                continue;
            }
            const cw_nccl_channel *channel =
                share.channel < MOST_CHANNELS ? channels_[share.channel] : nullptr;
            if (channel == nullptr)
                return {.reason = NotModelled::Topology, .edges = {}};
            if (share.bytes == 0)
                continue;
            if (!add_edges(task, share, *channel, result.edges))
                return {.reason = NotModelled::Task, .edges = {}};
        }
        return result;
    }

    void add_switch(const cw_nccl_shape_task &task, const ChannelShare &share,
                    std::vector<LocalEdge> &edges) const {
        const SwitchBytes bytes = nvls_bytes(comm_.nvls, task, share.bytes);
        const auto channel = static_cast<std::uint8_t>(share.channel);
        edges.push_back({comm_.rank, NVLINK_SWITCH, channel, bytes.to_bytes, bytes.to_bytes});
        edges.push_back({NVLINK_SWITCH, comm_.rank, channel, bytes.from_bytes, bytes.from_bytes});
    }

    bool add_edges(const cw_nccl_shape_task &task, const ChannelShare &share,
                   const cw_nccl_channel &channel, std::vector<LocalEdge> &edges) const {
        if (task.algorithm == CW_NCCL_TREE) {
            bool is_known = add(task, share, channel, channel.tree_up, edges);
            for (const std::int32_t down : channel.tree_down)
                is_known = is_known && add(task, share, channel, down, edges);
            return is_known && task.func == CW_NCCL_ALL_REDUCE;
        }
        // PAT runs only where every rank is a node of its own.
        if (task.algorithm == CW_NCCL_PAT)
            return true;
        return add(task, share, channel, true, channel.ring_next, edges) &&
               add(task, share, channel, false, channel.ring_prev, edges);
    }

    // Both directions.
    bool add(const cw_nccl_shape_task &task, const ChannelShare &share,
             const cw_nccl_channel &channel, std::int32_t peer,
             std::vector<LocalEdge> &edges) const {
        return peer < 0 || (add(task, share, channel, true, peer, edges) &&
                            add(task, share, channel, false, peer, edges));
    }

    bool add(const cw_nccl_shape_task &task, const ChannelShare &share,
             const cw_nccl_channel &channel, bool is_send, std::int32_t peer,
             std::vector<LocalEdge> &edges) const {
        OpFacts facts = facts_of(task, share, channel);
        facts.is_send = is_send;
        facts.peer = peer;
        // The end of a pipeline: the root of a Broadcast receives nothing, that of a Reduce sends
        // nothing.
        if ((task.func == CW_NCCL_BROADCAST && task.root == (is_send ? peer : comm_.rank)) ||
            (task.func == CW_NCCL_REDUCE && task.root == (is_send ? comm_.rank : peer)))
            return true;
        const auto bytes = derive_op_bytes(facts);
        if (!bytes || bytes->is_bound)
            return false;
        edges.push_back({.sender = is_send ? comm_.rank : peer,
                         .receiver = is_send ? peer : comm_.rank,
                         .channel = static_cast<std::uint8_t>(share.channel),
                         .payload_bytes = bytes->payload_bytes,
                         .data_bytes = bytes->data_bytes});
        return true;
    }

    // As the proxy operation that NCCL would make for a connection over the network. One chunk is
    // one step here, since bytes do not depend on steps.
    [[nodiscard]] OpFacts facts_of(const cw_nccl_shape_task &task, const ChannelShare &share,
                                   const cw_nccl_channel &channel) const {
        OpFacts facts;
        const auto n_ranks = static_cast<std::uint64_t>(comm_.n_ranks);
        cw_nccl_op &op = facts.op;
        op.channel = static_cast<std::uint8_t>(share.channel);
        op.channel_bytes = share.bytes;
        op.chunk_bytes = ring_chunk_bytes(comm_, task.protocol);
        op.func = task.func;
        op.protocol = task.protocol;
        op.algorithm = task.algorithm;
        op.root = task.root;
        op.ring_index = channel.ring_index;
        op.slice_steps = op.chunk_steps = 1;
        std::uint64_t steps = divide_up(share.bytes, std::max<std::uint64_t>(op.chunk_bytes, 1));
        switch (task.func) {
        case CW_NCCL_BROADCAST:
            op.pattern = CW_NCCL_PATTERN_PIPELINE_FROM;
            break;
        case CW_NCCL_REDUCE:
            op.pattern = CW_NCCL_PATTERN_PIPELINE_TO;
            break;
        case CW_NCCL_ALL_REDUCE:
            if (task.algorithm == CW_NCCL_TREE) {
                op.pattern = CW_NCCL_PATTERN_TREE_UP_DOWN;
                break;
            }
            op.pattern = CW_NCCL_PATTERN_RING_TWICE;
            steps = divide_up(share.bytes, std::max<std::uint64_t>(n_ranks * op.chunk_bytes, 1)) *
                    2 * (n_ranks - 1);
            break;
        default:
            op.pattern = CW_NCCL_PATTERN_RING;
            steps *= n_ranks - 1;
            break;
        }
        op.nsteps = static_cast<std::uint32_t>(std::min<std::uint64_t>(steps, UINT32_MAX));
        facts.n_ranks = comm_.n_ranks;
        facts.rank = comm_.rank;
        facts.version = comm_.version;
        return facts;
    }

    const LocalComm &comm_;
    std::span<const cw_nccl_shape_task> tasks_;
    std::span<const KnownShare> known_;
    bool has_grouped_;
    bool has_unknown_ = false; // collectives of other kinds
    std::array<const cw_nccl_channel *, MOST_CHANNELS> channels_{};
    std::vector<std::uint32_t> collectives_; // on rings and trees: indices
    std::vector<std::uint32_t> nvls_;
    std::vector<ModelledTask> result_;
};

} // namespace

std::string_view name_of(NotModelled reason) {
    switch (reason) {
    case NotModelled::No:
        break;
    case NotModelled::Version:
        return "NCCL before 2.24";
    case NotModelled::Nvls:
        return "NVLS";
    case NotModelled::NvlsTree:
        return "NVLS_TREE";
    case NotModelled::CollNet:
        return "CollNet";
    case NotModelled::OtherKernel:
        return "symmetric kernel or copy engine";
    case NotModelled::GroupedBroadcast:
        return "broadcasts of a group";
    case NotModelled::Protocol:
        return "protocol not known";
    case NotModelled::Channels:
        return "division among channels not known";
    case NotModelled::Topology:
        return "ring or tree not recorded";
    case NotModelled::Task:
        return "launch not understood";
    }
    return "";
}

std::vector<ModelledTask> model_launch(const LocalComm &comm,
                                       std::span<const cw_nccl_shape_task> tasks,
                                       std::span<const KnownShare> shares,
                                       bool has_grouped_broadcasts) {
    return LaunchModel(comm, tasks, shares, has_grouped_broadcasts).run();
}

} // namespace collwire::nccl
