// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/local_traffic.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "correlate/model/model.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/gpu_peers.h"
#include "correlate/nccl/neighbours.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::add_saturating;
using model::Model;
using model::multiply_saturating;
using model::NONE;

namespace {

constexpr std::uint32_t MOST_CHANNELS = 64; // MAXCHANNELS
enum ConnectionIndex { OF_COLLECTIVES = 0, OF_TRANSFERS = 1 };

bool shares_node(const Instance &instance) {
    return instance.record.local_ranks > 1;
}

// One rank's communicator.
class RankModel {
public:
    RankModel(const NcclFacts &nccl, Index index)
        : nccl_(nccl), instance_(nccl.instances[index]),
          stream_(nccl.gathered.streams[instance_.stream]) {
        for (const cw_nccl_local &local : stream_.locals)
            if (local.header.time_ns >= instance_.begin_ns &&
                (instance_.end_ns == 0 || local.header.time_ns <= instance_.end_ns))
                locals_[local.peer] = &local;
        for (std::uint32_t i = 0; i < MOST_CHANNELS; ++i)
            if (const Channel *channel = channel_of(stream_, instance_, i))
                channels_.push_back(channel->record);
        if (instance_.comm != NONE)
            for (const Index other : nccl.communicators[instance_.comm].instances)
                if (const cw_nccl_comm &record = nccl.instances[other].record;
                    record.node == instance_.record.node) {
                    same_node_.insert(record.rank);
                    gpus_[record.rank] = record.bus_id;
                }
        comm_ = {.version = instance_.version,
                 .n_ranks = instance_.record.n_ranks,
                 .rank = instance_.record.rank,
                 .channels = channels_,
                 .p2p_channels = instance_.record.p2p_channels,
                 .p2p_channels_per_peer = instance_.record.p2p_channels_per_peer,
                 .buffer_bytes = {parameter("LlBuffSize", 0), parameter("Ll128BuffSize", 0),
                                  parameter("BuffSize", 0)},
                 .p2p_ll_threshold_bytes = parameter("P2pLLThreshold", -1),
                 .n_threads = parameter("Nthreads", 0),
                 .n_ll128_threads = parameter("Ll128Nthreads", 0),
                 .nvls = {.n_ranks = instance_.record.n_ranks,
                          .n_nodes = instance_.record.n_nodes,
                          .buffer_bytes = parameter("BuffSize", 0),
                          .tree_chunk_bytes = parameter("NvlsTreeMaxChunkSize", 0)}};
        if (const cw_nccl_nvls *nvls = nvls_of(stream_, instance_))
            comm_.nvls.place = *nvls;
    }

    // `is_own`: the shape is of a launch of this rank.
    [[nodiscard]] std::vector<LocalTask> model(const Shape &shape, bool is_own) const {
        const auto modelled = model_launch(comm_, shape.tasks, shape.known_shares,
                                           std::ranges::any_of(shape.ops, [](const ShapeOp &op) {
                                               return op.is_grouped_broadcast;
                                           }));
        std::vector<LocalTask> result;
        for (std::uint32_t i = 0; i < modelled.size(); ++i) {
            LocalTask &task = result.emplace_back();
            task.reason = modelled[i].reason;
            const bool is_transfer = is_p2p(shape.tasks[i].func);
            for (const LocalEdge &edge : modelled[i].edges) {
                const auto transport = transport_of(shape, edge, is_transfer, is_own);
                if (transport)
                    task.edges.push_back({edge, *transport});
            }
            if (const std::int32_t peer = shape.tasks[i].root;
                is_transfer && peer != instance_.record.rank && is_local_peer(peer))
                task.sender = shape.tasks[i].func == CW_NCCL_SEND ? instance_.record.rank : peer;
            // A send to another node has no bytes here, known or not.
            if (is_transfer && task.reason != NotModelled::No &&
                !is_local_peer(shape.tasks[i].root))
                task.reason = NotModelled::No;
        }
        return result;
    }

    // On the node of this rank, as far as that is known.
    [[nodiscard]] bool is_local_peer(std::int32_t peer) const {
        if (!locals_.empty())
            return locals_.contains(peer);
        return instance_.record.n_nodes == 1 || same_node_.contains(peer);
    }

private:
    // Of the process; otherwise NCCL's default.
    [[nodiscard]] std::int64_t parameter(std::string_view name, std::int64_t otherwise) const {
        return parameter_of(nccl_, instance_.session, instance_.record.tgid, name)
            .value_or(otherwise);
    }

    // Absent: not inside the node, or over the network inside it, which is accounted elsewhere.
    [[nodiscard]] std::optional<LocalTransport>
    transport_of(const Shape &shape, const LocalEdge &edge, bool is_transfer, bool is_own) const {
        if (edge.sender == NVLINK_SWITCH || edge.receiver == NVLINK_SWITCH)
            return LocalTransport::Nvls;
        const bool is_send = edge.sender == instance_.record.rank;
        const std::int32_t peer = is_send ? edge.receiver : edge.sender;
        if (!is_local_peer(peer))
            return std::nullopt;
        const auto found = locals_.find(peer);
        if (found != locals_.end()) {
            const cw_nccl_local &local = *found->second;
            const auto index = is_transfer ? OF_TRANSFERS : OF_COLLECTIVES;
            const std::uint64_t wanted =
                edge.channel == ALL_CHANNELS ? ~std::uint64_t{0} : std::uint64_t{1} << edge.channel;
            const std::uint64_t p2p = (is_send ? local.p2p_send : local.p2p_recv)[index] & wanted;
            const std::uint64_t shm = (is_send ? local.shm_send : local.shm_recv)[index] & wanted;
            const std::uint64_t net = (is_send ? local.net_send : local.net_recv)[index] & wanted;
            if (net != 0 && p2p == 0 && shm == 0)
                return std::nullopt;
            if (net == 0 && (p2p != 0) != (shm != 0))
                return p2p != 0 ? p2p_transport(peer) : LocalTransport::Shm;
        }
        const bool is_on_network = is_own && std::ranges::any_of(shape.ops, [&](const ShapeOp &op) {
                                       return op.link != NONE && op.peer == peer &&
                                              nccl_.links[op.link].is_send() == is_send;
                                   });
        return is_on_network ? std::nullopt : std::optional(LocalTransport::Unknown);
    }

    [[nodiscard]] LocalTransport p2p_transport(std::int32_t peer) const {
        const auto gpu = gpus_.find(peer);
        const auto over_nvlink = gpu == gpus_.end()
                                     ? std::nullopt
                                     : is_over_nvlink(nccl_.gathered.nvlink_gpus, instance_.session,
                                                      instance_.record.bus_id, gpu->second);
        if (!over_nvlink)
            return LocalTransport::P2p;
        return *over_nvlink ? LocalTransport::Nvlink : LocalTransport::Pcie;
    }

    const NcclFacts &nccl_;
    const Instance &instance_;
    const CommStream &stream_;
    std::map<std::int32_t, const cw_nccl_local *> locals_; // newest, by peer
    std::set<std::int32_t> same_node_;                     // recorded ranks
    std::map<std::int32_t, std::uint64_t> gpus_;           // their bus ids
    std::vector<cw_nccl_channel> channels_;
    LocalComm comm_;
};

class LocalAccountant {
public:
    explicit LocalAccountant(Model &model) : nccl_(model.nccl), local_(model.nccl.local) {}

    void run() {
        local_.has_nodes = std::ranges::any_of(nccl_.instances, shares_node);
        if (!local_.has_nodes)
            return;
        local_.collectives.resize(nccl_.collectives.size());
        local_.p2p.resize(nccl_.p2p.size());
        find_ranks();
        for (Index index = 0; index < nccl_.instances.size(); ++index)
            if (shares_node(nccl_.instances[index]) && nccl_.instances[index].comm != NONE)
                add_rank(index);
        for (Index index = 0; index < nccl_.instances.size(); ++index)
            if (shares_node(nccl_.instances[index]) && nccl_.instances[index].comm != NONE)
                add_unlaunched(index);
        fill_matrix();
        for (Index i = 0; i < nccl_.collectives.size(); ++i)
            complete(nccl_.collectives[i], local_.collectives[i], false);
        for (Index i = 0; i < nccl_.p2p.size(); ++i)
            complete(nccl_.p2p[i], local_.p2p[i], true);
    }

private:
    struct CommRanks {
        std::set<std::int32_t> recorded; // that share a node
        std::map<std::int32_t, std::int32_t> node_of;
        std::map<std::int32_t, std::int32_t> ranks_of_node; // of recorded nodes
        std::int32_t n_nodes = 0;

        // Ranks of the recorded nodes that have several.
        [[nodiscard]] std::uint32_t expected() const {
            std::uint32_t sum = 0;
            for (const auto &[node, ranks] : ranks_of_node)
                sum += ranks > 1 ? static_cast<std::uint32_t>(ranks) : 0;
            return sum;
        }
        // Sends inside the recorded nodes, of an operation that is made of sends. Absent: not
        // known.
        [[nodiscard]] std::optional<std::uint64_t> parts(const Operation &operation) const {
            std::uint64_t sum = 0;
            if (operation.func == CW_NCCL_ALL_TO_ALL) {
                for (const auto &[node, ranks] : ranks_of_node)
                    if (ranks > 1)
                        sum += static_cast<std::uint64_t>(ranks) *
                               (static_cast<std::uint64_t>(ranks) - 1);
                return sum;
            }
            const auto node = node_of.find(operation.root);
            if (node == node_of.end())
                return std::nullopt;
            return static_cast<std::uint64_t>(std::max(ranks_of_node.at(node->second), 1)) - 1;
        }
    };

    void find_ranks() {
        for (const Instance &instance : nccl_.instances) {
            if (instance.comm == NONE)
                continue;
            CommRanks &ranks = ranks_[instance.comm];
            ranks.node_of[instance.record.rank] = instance.record.node;
            ranks.ranks_of_node[instance.record.node] = instance.record.local_ranks;
            ranks.n_nodes = std::max(ranks.n_nodes, instance.record.n_nodes);
            if (shares_node(instance))
                ranks.recorded.insert(instance.record.rank);
        }
    }

    void add_rank(Index index) {
        const Instance &instance = nccl_.instances[index];
        const CommStream &stream = nccl_.gathered.streams[instance.stream];
        const RankModel rank(nccl_, index);
        for (std::uint32_t i = 0; i < instance.n_launches; ++i) {
            const Launch &launch = stream.launches[instance.first_launch + i];
            if (launch.shape_index == NONE)
                continue;
            const Shape &shape = nccl_.shapes[launch.shape_index];
            if (shape.is_assumed)
                continue;
            const auto [known, is_new] =
                local_.tasks.try_emplace(std::pair(index, launch.shape_index));
            if (is_new)
                known->second = counted(instance, rank.model(shape, true));
            for (std::uint32_t task = 0; task < known->second.size() && task < launch.n_tasks;
                 ++task)
                add_task(index, launch, task, known->second[task]);
        }
    }

    // From 2.27 on a rank without a connection to another node has no recorded launch, unless
    // --local-launches. All ranks launch a collective alike: another rank's launch says what it
    // was.
    void add_unlaunched(Index index) {
        const Instance &instance = nccl_.instances[index];
        const CommStream &stream = nccl_.gathered.streams[instance.stream];
        const CallJoins &joins = nccl_.call_joins[instance.stream];
        std::optional<RankModel> rank;
        for (std::uint32_t i = 0; i < instance.n_calls; ++i) {
            const std::uint32_t call = instance.first_call + i;
            if (joins.launch(call) != NONE || joins.operation(call) == NONE ||
                stream.calls[call].func > CW_NCCL_ALL_REDUCE)
                continue;
            const Index place = joins.operation(call);
            LocalOperation &operation = local_.collectives[place];
            if (operation.shape == NONE || operation.reason != NotModelled::No ||
                nccl_.collectives[place].has(OPERATION_CAPTURED))
                continue;
            const auto [known, is_new] =
                local_.tasks.try_emplace(std::pair(index, operation.shape));
            if (is_new) {
                if (!rank)
                    rank.emplace(nccl_, index);
                known->second =
                    counted(instance, rank->model(nccl_.shapes[operation.shape], false));
            }
            if (operation.task >= known->second.size() ||
                known->second[operation.task].reason != NotModelled::No)
                continue;
            if (std::exchange(operation.counted, index) != index)
                ++operation.ranks;
            add_launch(known->second[operation.task], &operation, &nccl_.collectives[place], false);
        }
    }

    void add_task(Index index, const Launch &launch, std::uint32_t task, LocalTask &local) {
        const Instance &instance = nccl_.instances[index];
        const auto [is_pair, place] = operation_of(nccl_, instance, launch, task);
        LocalOperation *operation =
            place == NONE ? nullptr : &(is_pair ? local_.p2p : local_.collectives)[place];
        if (operation != nullptr && std::exchange(operation->counted, index) != index)
            ++operation->ranks;
        if (local.reason != NotModelled::No) {
            if (operation != nullptr)
                operation->reason = local.reason;
            return;
        }
        if (operation != nullptr && !is_pair && operation->shape == NONE) {
            operation->shape = launch.shape_index;
            operation->task = task;
        }
        add_launch(local, operation,
                   operation == nullptr ? nullptr
                                        : &(is_pair ? nccl_.p2p : nccl_.collectives)[place],
                   is_pair);
    }

    // `operation` is null if its call is not recorded.
    void add_launch(LocalTask &local, LocalOperation *operation, const Operation *of,
                    bool is_pair) {
        ++local.launches;
        if (operation == nullptr)
            return;
        operation->is_sent = operation->is_sent || local.has_sends;
        operation->parts += local.is_part ? 1 : 0;
        LocalSums &sums = sums_of(*of, is_pair);
        for (std::size_t i = 0; i < local.counted.size(); ++i) {
            operation->payload_bytes =
                add_saturating(operation->payload_bytes, local.counted[i].payload_bytes);
            sums.bytes[i].add(local.counted[i]);
        }
    }

    // What the switch of NVLS sends is what it got from the ranks.
    [[nodiscard]] bool counts(const Instance &instance, std::int32_t sender) {
        return sender == instance.record.rank ||
               (sender != NVLINK_SWITCH && !ranks_[instance.comm].recorded.contains(sender));
    }

    std::vector<LocalTask> counted(const Instance &instance, std::vector<LocalTask> tasks) {
        for (LocalTask &task : tasks) {
            task.is_part = task.sender >= 0 && counts(instance, task.sender);
            for (const LocalSend &send : task.edges) {
                task.has_sends = task.has_sends || send.edge.sender == instance.record.rank;
                if (counts(instance, send.edge.sender))
                    task.counted[static_cast<std::size_t>(send.transport)].add(
                        {send.edge.payload_bytes, send.edge.data_bytes});
            }
        }
        return tasks;
    }

    void fill_matrix() {
        for (const auto &[key, tasks] : local_.tasks) {
            const Instance &instance = nccl_.instances[key.first];
            for (const LocalTask &task : tasks)
                for (const LocalSend &send : task.edges)
                    if (const LocalEdge &edge = send.edge;
                        task.launches != 0 &&
                        (edge.sender == NVLINK_SWITCH || counts(instance, edge.sender)))
                        local_.matrix[{instance.comm, edge.sender, edge.receiver, send.transport}]
                            .add({multiply_saturating(edge.payload_bytes, task.launches),
                                  multiply_saturating(edge.data_bytes, task.launches)});
        }
    }

    LocalSums &sums_of(const Operation &operation, bool is_pair) {
        return local_
            .sums[{operation.comm, is_pair ? std::uint8_t{CW_NCCL_SEND_RECV} : operation.func}];
    }

    [[nodiscard]] static bool is_inside(const CommRanks &ranks, const Operation &pair) {
        if (pair.source == pair.destination)
            return false;
        if (ranks.n_nodes == 1)
            return true;
        const auto from = ranks.node_of.find(pair.source);
        const auto to = ranks.node_of.find(pair.destination);
        return from != ranks.node_of.end() && to != ranks.node_of.end() &&
               from->second == to->second;
    }

    void complete(const Operation &operation, LocalOperation &local, bool is_pair) {
        const auto found = ranks_.find(operation.comm);
        if (found == ranks_.end() || found->second.recorded.empty() ||
            (is_pair ? !is_inside(found->second, operation) : operation.count == 0))
            return;
        const bool is_of_parts = !is_pair && is_made_of_parts(operation.func);
        const auto parts = is_of_parts ? found->second.parts(operation) : std::nullopt;
        if (parts == 0U)
            return;
        LocalSums &sums = sums_of(operation, is_pair);
        ++sums.operations;
        if (local.reason != NotModelled::No) {
            local.state = LocalState::NotModelled;
            ++sums.not_modelled[static_cast<std::size_t>(local.reason)];
        } else if (local.ranks == 0 || (is_of_parts && local.parts == 0) ||
                   (is_pair && !local.is_sent &&
                    found->second.recorded.contains(operation.source))) {
            local.state = LocalState::NotRecorded;
            ++sums.not_recorded;
        } else if (is_of_parts ? local.parts != parts
                               : !is_pair && local.ranks < found->second.expected()) {
            local.state = LocalState::Partial;
            ++sums.partial;
        } else {
            local.state = LocalState::Modelled;
            ++sums.modelled;
        }
    }

    NcclFacts &nccl_;
    LocalFacts &local_;
    std::map<Index, CommRanks> ranks_;
};

} // namespace

std::string_view local_transport_name(LocalTransport transport) {
    switch (transport) {
    case LocalTransport::P2p:
    case LocalTransport::Nvlink:
    case LocalTransport::Pcie:
        return "p2p";
    case LocalTransport::Shm:
        return "shm";
    case LocalTransport::Nvls:
        return "nvls";
    case LocalTransport::Unknown:
        break;
    }
    return "local";
}

std::string_view local_wire_name(LocalTransport transport) {
    switch (transport) {
    case LocalTransport::Nvlink:
    case LocalTransport::Nvls:
        return "nvlink";
    case LocalTransport::Pcie:
        return "pcie";
    case LocalTransport::P2p:
    case LocalTransport::Shm:
    case LocalTransport::Unknown:
        break;
    }
    return {};
}

void LocalBytes::add(const LocalBytes &other) {
    payload_bytes = add_saturating(payload_bytes, other.payload_bytes);
    data_bytes = add_saturating(data_bytes, other.data_bytes);
}

void account_local(Model &model) {
    LocalAccountant(model).run();
}

const std::vector<LocalTask> *local_tasks(const Model &model, Index instance,
                                          std::uint32_t launch) {
    const NcclFacts &nccl = model.nccl;
    const Index shape =
        nccl.gathered.streams[nccl.instances[instance].stream].launches[launch].shape_index;
    const auto found = nccl.local.tasks.find({instance, shape});
    return found == nccl.local.tasks.end() ? nullptr : &found->second;
}

std::vector<GpuLocalBytes> local_bytes_between(const Model &model, Index session,
                                               std::uint64_t begin_ns, std::uint64_t end_ns) {
    const NcclFacts &nccl = model.nccl;
    std::vector<GpuLocalBytes> all;
    if (!nccl.local.has_nodes)
        return all;
    for (Index index = 0; index < nccl.instances.size(); ++index) {
        const Instance &instance = nccl.instances[index];
        if (instance.session != session || !shares_node(instance))
            continue;
        GpuLocalBytes gpu{.instance = index,
                          .host = instance.host,
                          .pid = instance.record.tgid,
                          .rank = instance.record.rank,
                          .cuda_dev = instance.record.cuda_dev,
                          .bus_id = instance.record.bus_id};
        const LaunchList &launches = nccl.gathered.streams[instance.stream].launches;
        const auto end = launches.begin() + instance.first_launch + instance.n_launches;
        const auto first = std::lower_bound(
            launches.begin() + instance.first_launch, end, begin_ns,
            [](const Launch &launch, std::uint64_t time_ns) { return launch.time_ns < time_ns; });
        for (auto launch = first; launch != end && launch->time_ns < end_ns; ++launch) {
            ++gpu.launches;
            const auto *tasks =
                local_tasks(model, index, static_cast<std::uint32_t>(launch - launches.begin()));
            if (tasks == nullptr) {
                ++gpu.not_modelled;
                continue;
            }
            for (const LocalTask &task : *tasks) {
                gpu.not_modelled += task.reason != NotModelled::No ? 1 : 0;
                for (const LocalSend &send : task.edges)
                    (send.edge.sender == gpu.rank
                         ? gpu.sent
                         : gpu.received)[static_cast<std::size_t>(send.transport)]
                        .add({send.edge.payload_bytes, send.edge.data_bytes});
            }
        }
        const CallList &calls = nccl.gathered.streams[instance.stream].calls;
        for (std::uint32_t i = instance.first_call; i < instance.first_call + instance.n_calls; ++i)
            if (calls[i].time_ns >= begin_ns && calls[i].time_ns < end_ns &&
                nccl.call_joins[instance.stream].launch(i) == NONE &&
                !never_launches(calls[i], instance))
                ++gpu.calls_without_launch;
        if (gpu.launches + gpu.calls_without_launch != 0)
            all.push_back(gpu);
    }
    return all;
}

} // namespace collwire::nccl
