// SPDX-License-Identifier: Apache-2.0
#include "tools/trace-gen/job_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>
#include <utility>

namespace collwire::trace_gen {
namespace {

constexpr std::uint64_t MS_NS = 1'000'000;
constexpr std::uint32_t FIRST_QPN = 0x100;
constexpr std::uint64_t SMALL_BYTES = 4096;
constexpr std::uint32_t BF16_BYTES = 2;
constexpr std::uint32_t F32_BYTES = 4;
constexpr std::uint32_t NVLINK_CHANNELS = 24;
constexpr std::uint32_t CHANNELS_A_NIC = 2;
// Sizes of buckets in turn, as shares of the largest: the last one of a model is smaller.
constexpr std::array<std::uint64_t, 3> BUCKET_EIGHTHS = {8, 8, 3};

std::vector<std::uint32_t> count_up(std::uint32_t first, std::uint32_t n, std::uint32_t step = 1) {
    std::vector<std::uint32_t> numbers(n);
    for (std::uint32_t i = 0; i < n; i++)
        numbers[i] = first + i * step;
    return numbers;
}

std::uint64_t mix(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

// ncclGetBtree of graph/trees.cc, as it is described there: node i's lowest set bit is its height;
// it hangs below the neighbour at that height that has the next bit, or, past the end, the one
// without it.
JobCommunicator::Tree binary_tree(std::int32_t n, std::int32_t node) {
    JobCommunicator::Tree tree;
    if (node == 0) {
        tree.down[1] =
            n > 1 ? static_cast<std::int32_t>(std::bit_ceil(static_cast<unsigned>(n)) / 2) : -1;
        return tree;
    }
    const std::int32_t height = node & -node;
    const std::int32_t without = node - height;
    const std::int32_t parent = without | (2 * height);
    tree.up = parent < n ? parent : without;
    if (height == 1)
        return tree;
    tree.down[0] = node - height / 2;
    for (std::int32_t reach = height / 2; reach >= 1 && tree.down[1] < 0; reach /= 2)
        if (node + reach < n)
            tree.down[1] = node + reach;
    return tree;
}

std::uint32_t reverse_bits(std::uint32_t value, std::uint32_t bits) {
    std::uint32_t result = 0;
    for (std::uint32_t bit = 0; bit < bits; bit++)
        result |= ((value >> bit) & 1) << (bits - 1 - bit);
    return result;
}

// The distances of ncclP2pSchedule: 0, 1, 3, 6, ... modulo the next power of two, those below n.
std::vector<std::uint32_t> distances_in_order(std::uint32_t n) {
    const std::uint32_t power = std::bit_ceil(n);
    std::vector<std::uint32_t> distances;
    std::uint32_t distance = 0;
    for (std::uint32_t round = 0; round < power; round++) {
        distance = (distance + round) % power;
        if (distance < n)
            distances.push_back(distance);
    }
    return distances;
}

cw_nccl_protocol protocol_of(BucketProtocol protocol) {
    switch (protocol) {
    case BucketProtocol::LL:
        return CW_NCCL_LL;
    case BucketProtocol::LL128:
        return CW_NCCL_LL128;
    case BucketProtocol::Simple:
        break;
    }
    return CW_NCCL_SIMPLE;
}

auto key_of(const JobEdge &edge) {
    return std::tuple(edge.comm, edge.from, edge.to, edge.channel, edge.index);
}

} // namespace

const char *role_name(JobRole role) {
    constexpr std::array<const char *, JOB_ROLES> NAMES = {"data", "tensor", "pipeline", "expert"};
    return NAMES[static_cast<std::size_t>(role)];
}

bool JobEdge::operator<(const JobEdge &other) const {
    return key_of(*this) < key_of(other);
}

std::uint32_t JobCommunicator::n_ranks() const {
    return static_cast<std::uint32_t>(nodes.size() * locals.size());
}

std::uint32_t JobCommunicator::place_of(std::uint32_t rank, std::uint32_t channel) const {
    const std::uint32_t k = width();
    const std::uint32_t first = (channel + 1) % k;
    return rank / k * k + (rank % k + k - first) % k;
}

std::uint32_t JobCommunicator::at_place(std::uint32_t place, std::uint32_t channel) const {
    const std::uint32_t k = width();
    return place / k * k + (place % k + channel + 1) % k;
}

std::uint32_t JobCommunicator::tree_head(std::uint32_t node_index, std::uint32_t channel) const {
    return node_index * width() + channel % width();
}

JobCommunicator::Tree JobCommunicator::tree_of(std::uint32_t node_index,
                                               std::uint32_t channel) const {
    const auto n = static_cast<std::int32_t>(nodes.size());
    const auto node = static_cast<std::int32_t>(node_index);
    if (channel < channels / 2)
        return binary_tree(n, node);
    // The other tree: mirrored, or with an odd number of nodes shifted by one.
    const bool is_mirrored = n % 2 == 0;
    Tree tree = binary_tree(n, is_mirrored ? n - 1 - node : (node + n - 1) % n);
    for (std::int32_t *other : {&tree.up, &tree.down[0], &tree.down[1]})
        if (*other >= 0)
            *other = is_mirrored ? n - 1 - *other : (*other + 1) % n;
    return tree;
}

std::uint32_t JobCommunicator::base_channel(std::uint32_t from_node_index,
                                            std::uint32_t to_node_index) const {
    const auto n = static_cast<std::uint32_t>(nodes.size());
    const std::uint32_t distance = (to_node_index + n - from_node_index) % n;
    const auto found = std::find(round_distances.begin(), round_distances.end(), distance);
    return reverse_bits(static_cast<std::uint32_t>(found - round_distances.begin()),
                        static_cast<std::uint32_t>(std::countr_zero(p2p_channels)));
}

JobPlan::JobPlan(const JobOptions &options) : options_(options) {
    for (auto &members : members_)
        members.resize(options_.n_ranks());
    add_communicators();
    add_operations();
    add_edges();
    move_nics();
    number_queue_pairs();
}

void JobPlan::add(JobRole role, std::vector<std::uint32_t> nodes,
                  std::vector<std::uint32_t> locals) {
    JobCommunicator comm;
    comm.id = static_cast<std::uint32_t>(comms_.size());
    comm.index = static_cast<std::uint32_t>(of_role(role).size());
    comm.role = role;
    comm.hash = mix(options_.seed * 1'000'003 + comm.id);
    comm.nodes = std::move(nodes);
    comm.locals = std::move(locals);
    comm.channels = comm.crosses_nodes() ? CHANNELS_A_NIC * comm.width() : NVLINK_CHANNELS;
    comm.p2p_channels = std::bit_ceil(comm.channels);
    comm.channels_a_peer = std::min(2U, comm.p2p_channels);
    comm.round_distances = distances_in_order(static_cast<std::uint32_t>(comm.nodes.size()));
    for (std::uint32_t rank = 0; rank < comm.n_ranks(); rank++)
        members_[static_cast<std::size_t>(role)][comm.global_of(rank)] = {comm.id, rank};
    by_role_[static_cast<std::size_t>(role)].push_back(comm.id);
    comms_.push_back(std::move(comm));
}

// Tensor parallelism within a node, stages of a pipeline are blocks of nodes, and data parallelism
// is across the nodes of a stage. Expert parallelism cuts data parallelism into groups.
void JobPlan::add_communicators() {
    const std::uint32_t tensor = options_.tensor_parallel;
    const std::uint32_t of_stage = options_.nodes / options_.pipeline_stages;
    const std::uint32_t of_node = GPUS / tensor;
    for (std::uint32_t stage = 0; stage < options_.pipeline_stages; stage++)
        for (std::uint32_t place = 0; place < tensor; place++)
            add(JobRole::Data, count_up(stage * of_stage, of_stage),
                count_up(place, of_node, tensor));
    if (tensor > 1)
        for (std::uint32_t node = 0; node < options_.nodes; node++)
            for (std::uint32_t group = 0; group < of_node; group++)
                add(JobRole::Tensor, {node}, count_up(group * tensor, tensor));
    if (options_.pipeline_stages > 1)
        for (std::uint32_t node = 0; node < of_stage; node++)
            for (std::uint32_t local = 0; local < GPUS; local++)
                add(JobRole::Pipeline, count_up(node, options_.pipeline_stages, of_stage), {local});
    if (options_.expert_parallel == 0)
        return;
    const std::uint32_t of_group = options_.expert_parallel / of_node;
    for (std::uint32_t first = 0; first < options_.nodes; first += of_group)
        for (std::uint32_t place = 0; place < tensor; place++)
            add(JobRole::Expert, count_up(first, of_group), count_up(place, of_node, tensor));
}

void JobPlan::add_operation(JobOperation operation) {
    for (const JobOperation &other : operations_)
        if (other.kind == operation.kind && other.role == operation.role &&
            other.size == operation.size && other.transfer_bytes == operation.transfer_bytes &&
            other.is_backward == operation.is_backward) {
            operation.shape = other.shape;
            operations_.push_back(operation);
            return;
        }
    operation.shape = n_shapes_++;
    operations_.push_back(operation);
}

void JobPlan::add_operations() {
    const auto collective = [&](JobRole role, cw_nccl_func func, std::uint64_t count,
                                std::uint32_t element_bytes = BF16_BYTES) {
        return JobOperation{.role = role,
                            .size = {.func = func, .count = count, .element_bytes = element_bytes}};
    };
    const auto transfer = [&](bool is_backward) {
        return JobOperation{.kind = JobKind::Transfer,
                            .role = JobRole::Pipeline,
                            .transfer_bytes = options_.transfer_bytes,
                            .is_backward = is_backward};
    };
    const std::uint64_t layer_count =
        options_.transfer_bytes / BF16_BYTES / options_.tensor_parallel;
    const auto pass = [&](bool is_backward) {
        if (options_.pipeline_stages > 1)
            for (std::uint32_t i = 0; i < options_.microbatches; i++)
                add_operation(transfer(is_backward));
        for (std::uint32_t layer = 0; layer < options_.layers; layer++) {
            if (options_.tensor_parallel > 1) {
                add_operation(collective(JobRole::Tensor, CW_NCCL_ALL_GATHER, layer_count));
                add_operation(collective(JobRole::Tensor, CW_NCCL_REDUCE_SCATTER, layer_count));
            }
            if (options_.expert_parallel != 0)
                add_operation({.kind = JobKind::AllToAll,
                               .role = JobRole::Expert,
                               .transfer_bytes = options_.transfer_bytes});
        }
    };
    pass(false);
    pass(true);
    const std::uint32_t data_ranks = comms_[of_role(JobRole::Data)[0]].n_ranks();
    const auto bucket = [&](cw_nccl_func func, std::uint64_t count) {
        JobOperation operation = collective(JobRole::Data, func, count);
        operation.size.protocol = protocol_of(options_.bucket_protocol);
        add_operation(operation);
    };
    for (std::uint32_t i = 0; i < options_.buckets; i++) {
        const std::uint64_t bytes =
            options_.bucket_bytes * BUCKET_EIGHTHS[i % BUCKET_EIGHTHS.size()] / 8;
        if (!options_.is_sharded) {
            bucket(CW_NCCL_ALL_REDUCE, bytes / BF16_BYTES);
            continue;
        }
        const std::uint64_t share = std::max<std::uint64_t>(1, bytes / BF16_BYTES / data_ranks);
        bucket(CW_NCCL_REDUCE_SCATTER, share);
        bucket(CW_NCCL_ALL_GATHER, share);
    }
    if (options_.has_small) { // the norm of the gradients
        JobOperation small =
            collective(JobRole::Data, CW_NCCL_ALL_REDUCE, SMALL_BYTES / F32_BYTES, F32_BYTES);
        small.size.algorithm = CW_NCCL_TREE;
        small.size.protocol = CW_NCCL_LL;
        add_operation(small);
    }
    const std::uint64_t spacing_ns =
        options_.step_ns * 6 / 10 / std::max<std::size_t>(1, operations_.size());
    for (std::size_t i = 0; i < operations_.size(); i++)
        operations_[i].offset_ns = i * std::max<std::uint64_t>(spacing_ns, MS_NS / 100);
}

void JobPlan::add_edges_of(const JobCommunicator &comm, const JobOperation &operation) {
    const auto n_nodes = static_cast<std::uint32_t>(comm.nodes.size());
    if (n_nodes < 2)
        return;
    const auto add = [&](std::uint32_t from, std::uint32_t to, std::uint32_t channel,
                         std::uint16_t index) {
        edges_.push_back({.comm = comm.id,
                          .from = from,
                          .to = to,
                          .channel = static_cast<std::uint16_t>(channel),
                          .index = index,
                          .from_nic = static_cast<std::uint16_t>(comm.local_of(from)),
                          .to_nic = static_cast<std::uint16_t>(comm.local_of(to))});
    };
    if (operation.kind == JobKind::Collective) {
        const std::uint32_t k = comm.width();
        for (std::uint32_t channel = 0; channel < comm.channels; channel++)
            for (std::uint32_t node = 0; node < n_nodes; node++) {
                if (operation.size.algorithm == CW_NCCL_RING) {
                    const std::uint32_t place = node * k + k - 1;
                    add(comm.at_place(place, channel),
                        comm.at_place((place + 1) % comm.n_ranks(), channel), channel, 0);
                    edges_.back().to_nic = edges_.back().from_nic;
                    continue;
                }
                const std::int32_t up = comm.tree_of(node, channel).up;
                if (up < 0)
                    continue;
                const std::uint32_t child = comm.tree_head(node, channel);
                const std::uint32_t parent =
                    comm.tree_head(static_cast<std::uint32_t>(up), channel);
                add(child, parent, channel, 0);
                add(parent, child, channel, 0);
            }
        return;
    }
    for (const std::uint32_t from : count_up(0, comm.n_ranks()))
        for (const std::uint32_t to : count_up(0, comm.n_ranks())) {
            const bool is_neighbour = operation.is_backward ? from == to + 1 : from + 1 == to;
            const std::uint32_t from_node = from / comm.width();
            const std::uint32_t to_node = to / comm.width();
            if (from_node == to_node || (operation.kind == JobKind::Transfer && !is_neighbour))
                continue;
            const TransferPlan plan = transfer_plan(
                operation.transfer_bytes, {.n_ranks = comm.n_ranks(),
                                           .p2p_channels = comm.p2p_channels,
                                           .channels_a_peer = comm.channels_a_peer,
                                           .base_channel = comm.base_channel(from_node, to_node)});
            for (const TransferPart &part : plan.parts)
                add(from, to, part.channel, 1);
        }
}

void JobPlan::add_edges() {
    std::vector<char> is_done(n_shapes_);
    for (const JobOperation &operation : operations_) {
        if (std::exchange(is_done[operation.shape], 1) != 0)
            continue;
        for (const std::uint32_t id : of_role(operation.role))
            add_edges_of(comms_[id], operation);
    }
    std::sort(edges_.begin(), edges_.end());
    const auto is_same = [](const JobEdge &a, const JobEdge &b) { return key_of(a) == key_of(b); };
    edges_.erase(std::unique(edges_.begin(), edges_.end(), is_same), edges_.end());
    edges_.shrink_to_fit();
}

void JobPlan::move_nics() {
    for (JobEdge &edge : edges_)
        for (const MovedNic &moved : options_.moved) {
            const JobCommunicator &comm = comms_[edge.comm];
            if (comm.node_of(edge.from) == moved.node && edge.from_nic == moved.from)
                edge.from_nic = static_cast<std::uint16_t>(moved.to);
            if (comm.node_of(edge.to) == moved.node && edge.to_nic == moved.from)
                edge.to_nic = static_cast<std::uint16_t>(moved.to);
        }
}

void JobPlan::number_queue_pairs() {
    of_node_.resize(options_.nodes);
    std::vector<std::uint32_t> next(options_.n_ranks(), FIRST_QPN); // of each NIC
    for (std::uint32_t i = 0; i < edges_.size(); i++) {
        JobEdge &edge = edges_[i];
        const JobCommunicator &comm = comms_[edge.comm];
        edge.from_qpn = next[comm.node_of(edge.from) * GPUS + edge.from_nic]++;
        edge.to_qpn = next[comm.node_of(edge.to) * GPUS + edge.to_nic]++;
        of_node_[comm.node_of(edge.from)].push_back(i);
        of_node_[comm.node_of(edge.to)].push_back(i);
    }
}

std::uint32_t JobPlan::find_edge(const JobEdge &edge) const {
    const auto found = std::lower_bound(edges_.begin(), edges_.end(), edge);
    return found != edges_.end() && key_of(*found) == key_of(edge)
               ? static_cast<std::uint32_t>(found - edges_.begin())
               : ~0U;
}

namespace {

// A ring's sender has few kinds of amounts: those of its place are computed once for each size.
class CollectiveAmounts {
public:
    CollectiveAmounts(const JobPlan &plan, const JobCommunicator &comm,
                      const JobOperation &operation)
        : plan_(plan), comm_(comm), operation_(operation),
          parts_(channel_parts(operation.size, comm.n_ranks(), comm.channels)) {}

    std::vector<EdgeAmount> all() {
        if (operation_.size.algorithm == CW_NCCL_RING)
            rings();
        else
            trees();
        return std::move(amounts_);
    }

private:
    void add(std::uint32_t from, std::uint32_t to, std::uint32_t channel, const Carried &carried) {
        const std::uint32_t edge =
            plan_.find_edge({.comm = comm_.id,
                             .from = from,
                             .to = to,
                             .channel = static_cast<std::uint16_t>(channel)});
        amounts_.push_back({.edge = edge, .carried = carried});
    }

    void rings() {
        const std::uint32_t k = comm_.width();
        for (std::uint32_t node = 0; node < comm_.nodes.size(); node++) {
            const std::uint32_t place = node * k + k - 1;
            std::uint64_t known_bytes = ~0ULL;
            Carried carried;
            for (const ChannelPart &part : parts_) {
                if (part.channel_bytes != known_bytes) {
                    carried = sent_on_ring(operation_.size, part, comm_.n_ranks(), place);
                    known_bytes = part.channel_bytes;
                }
                add(comm_.at_place(place, part.channel),
                    comm_.at_place((place + 1) % comm_.n_ranks(), part.channel), part.channel,
                    carried);
            }
        }
    }

    void trees() {
        for (const ChannelPart &part : parts_) {
            const Carried carried = sent_on_tree(operation_.size, part);
            for (std::uint32_t node = 0; node < comm_.nodes.size(); node++) {
                const std::int32_t up = comm_.tree_of(node, part.channel).up;
                if (up < 0)
                    continue;
                const std::uint32_t child = comm_.tree_head(node, part.channel);
                const std::uint32_t parent =
                    comm_.tree_head(static_cast<std::uint32_t>(up), part.channel);
                add(child, parent, part.channel, carried);
                add(parent, child, part.channel, carried);
            }
        }
    }

    const JobPlan &plan_;
    const JobCommunicator &comm_;
    const JobOperation &operation_;
    std::vector<ChannelPart> parts_;
    std::vector<EdgeAmount> amounts_;
};

} // namespace

std::vector<EdgeAmount> sent_by_operation(const JobPlan &plan, const JobCommunicator &comm,
                                          const JobOperation &operation, std::uint32_t stage) {
    std::vector<EdgeAmount> amounts;
    if (!comm.crosses_nodes())
        return amounts;
    if (operation.kind == JobKind::Collective)
        amounts = CollectiveAmounts(plan, comm, operation).all();
    const auto send = [&](std::uint32_t from, std::uint32_t to) {
        const std::uint32_t from_node = from / comm.width();
        const std::uint32_t to_node = to / comm.width();
        if (from_node == to_node)
            return;
        const TransferPlan transfer = transfer_plan(
            operation.transfer_bytes, {.n_ranks = comm.n_ranks(),
                                       .p2p_channels = comm.p2p_channels,
                                       .channels_a_peer = comm.channels_a_peer,
                                       .base_channel = comm.base_channel(from_node, to_node)});
        for (const TransferPart &part : transfer.parts)
            amounts.push_back(
                {.edge = plan.find_edge({.comm = comm.id,
                                         .from = from,
                                         .to = to,
                                         .channel = static_cast<std::uint16_t>(part.channel),
                                         .index = 1}),
                 .carried = sent_of_transfer(part)});
    };
    if (operation.kind == JobKind::Transfer)
        send(stage + (operation.is_backward ? 1 : 0), stage + (operation.is_backward ? 0 : 1));
    if (operation.kind == JobKind::AllToAll)
        for (std::uint32_t from = 0; from < comm.n_ranks(); from++)
            for (std::uint32_t to = 0; to < comm.n_ranks(); to++)
                send(from, to);
    std::sort(amounts.begin(), amounts.end(),
              [](const EdgeAmount &a, const EdgeAmount &b) { return a.edge < b.edge; });
    return amounts;
}

std::uint64_t local_payload_bytes(const JobCommunicator &comm, const JobOperation &operation) {
    if (operation.kind != JobKind::Collective)
        return 0;
    const std::uint32_t n = comm.n_ranks();
    const std::uint32_t k = comm.width();
    std::uint64_t bytes = 0;
    for (const ChannelPart &part : channel_parts(operation.size, n, comm.channels)) {
        if (operation.size.algorithm == CW_NCCL_TREE) { // a chain in each node, both directions
            bytes +=
                sent_on_tree(operation.size, part).payload_bytes * 2 * (k - 1) * comm.nodes.size();
            continue;
        }
        for (std::uint32_t place = 0; place < n; place++)
            if (!comm.crosses_nodes() || place % k != k - 1)
                bytes += sent_on_ring(operation.size, part, n, place).payload_bytes;
    }
    return bytes;
}

} // namespace collwire::trace_gen
