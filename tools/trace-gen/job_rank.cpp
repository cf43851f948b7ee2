// SPDX-License-Identifier: Apache-2.0
#include "tools/trace-gen/job_rank.h"

#include <algorithm>

#include "collwire/nccl_layout.h"
#include "collwire/record_kinds.h"
#include "tools/trace-gen/made_record.h"

namespace collwire::trace_gen {
namespace {

constexpr std::uint8_t INT8 = 0, FLOAT32 = 7, BFLOAT16 = 9; // ncclDataType_t
constexpr std::uint64_t BUFFER = 0x7f1000000000;
constexpr std::uint64_t BUFFER_STRIDE = 0x40000000;
constexpr std::uint64_t STREAM = 0x55d000001000;
constexpr std::uint32_t FIRST_PID = 20'000;

std::uint8_t datatype_of(const CollectiveSize &size) {
    return size.element_bytes == 4 ? FLOAT32 : BFLOAT16;
}

} // namespace

std::uint32_t pid_of_rank(std::uint32_t global_rank) {
    return FIRST_PID + global_rank / GPUS % 1000 * 10 + global_rank % GPUS;
}

std::uint64_t comm_address(std::uint32_t comm) {
    return 0x7f2000000000 + comm * std::uint64_t{0x100000};
}

std::uint64_t connection_address(const RankEdge &edge) {
    return 0x7e0000000000 + edge.edge * std::uint64_t{0x1000} + (edge.is_send ? 0x800 : 0);
}

RankProgram::RankProgram(const JobPlan &plan, const JobTraffic &traffic, std::uint32_t global_rank)
    : plan_(plan), traffic_(traffic), global_(global_rank), pid_(pid_of_rank(global_rank)) {
    for (const std::uint32_t index : plan.edges_of_node(global_rank / GPUS)) {
        const JobEdge &edge = plan.edges()[index];
        const JobCommunicator &comm = plan.communicators()[edge.comm];
        if (comm.global_of(edge.from) == global_rank)
            edges_.push_back({.edge = index, .is_send = true});
        if (comm.global_of(edge.to) == global_rank)
            edges_.push_back({.edge = index, .is_send = false});
    }
    for (std::uint32_t i = 0; i < plan.operations().size(); i++)
        switch (plan.operations()[i].kind) {
        case JobKind::Collective:
            add_collective(i);
            break;
        case JobKind::Transfer:
            add_transfers(i);
            break;
        case JobKind::AllToAll:
            add_exchange(i);
            break;
        }
}

std::uint32_t RankProgram::own_edge(std::uint32_t comm, std::uint32_t from, std::uint32_t to,
                                    std::uint32_t channel, std::uint32_t index) const {
    const std::uint32_t edge = plan_.find_edge({.comm = comm,
                                                .from = from,
                                                .to = to,
                                                .channel = static_cast<std::uint16_t>(channel),
                                                .index = static_cast<std::uint16_t>(index)});
    const auto found = std::lower_bound(
        edges_.begin(), edges_.end(), edge,
        [](const RankEdge &own, std::uint32_t wanted) { return own.edge < wanted; });
    return found != edges_.end() && found->edge == edge
               ? static_cast<std::uint32_t>(found - edges_.begin())
               : ~0U;
}

RankStep RankProgram::step(std::uint32_t operation, const JobMembership &member,
                           std::uint32_t stage, std::uint32_t side) const {
    RankStep step{.operation = operation, .comm = member.comm, .stage = stage, .side = side};
    step.shape_slot = plan_.operations()[operation].shape * 2 + side;
    step.launch = make<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, 0);
    cw_nccl_launch &launch = step.launch;
    launch.header.cpu = static_cast<std::uint16_t>(global_ % GPUS * 12);
    launch.comm = comm_address(member.comm);
    launch.tgid = launch.tid = pid_;
    launch.plan = launch.comm + 0x8000 + step.shape_slot * std::uint64_t{0x400};
    launch.shape = 0x5a00000000000000 + (std::uint64_t{member.comm} << 20) + step.shape_slot + 1;
    launch.flags = CW_NCCL_LAUNCH_LAUNCHED;
    return step;
}

void RankProgram::add_call(RankStep &step, cw_nccl_func func, std::uint64_t count,
                           std::uint8_t datatype, std::int32_t root) const {
    auto call = make<cw_nccl_call>(CW_KIND_NCCL_CALL, 0);
    call.header.cpu = step.launch.header.cpu;
    call.comm = step.launch.comm;
    call.tgid = call.tid = pid_;
    call.count = count;
    call.stream = STREAM + step.comm * std::uint64_t{0x100};
    call.root = root;
    call.func = func;
    call.datatype = datatype;
    const std::uint64_t buffer =
        BUFFER + (step.operation * std::uint64_t{64} + step.calls.size()) * BUFFER_STRIDE;
    call.arguments_hash = cw_nccl_arguments_hash(func, buffer, buffer + BUFFER_STRIDE / 2, count,
                                                 static_cast<std::uint32_t>(root));
    step.calls.push_back(call);
}

std::uint32_t RankProgram::add_task(RankStep &step, std::uint32_t call) const {
    const std::uint32_t index = step.launch.n_tasks++;
    const cw_nccl_task_ref ref{.arguments_hash = step.calls[call].arguments_hash,
                               .task = 0x1000 + index * 0x200};
    if (index < CW_NCCL_LAUNCH_TASKS) {
        step.launch.tasks[index] = ref;
        return index;
    }
    const std::uint32_t more = index - CW_NCCL_LAUNCH_TASKS;
    if (more % CW_NCCL_MORE_TASKS == 0) {
        auto record = make<cw_nccl_launch_tasks>(CW_KIND_NCCL_LAUNCH_TASKS, 0);
        record.header.cpu = step.launch.header.cpu;
        record.comm = step.launch.comm;
        record.plan = step.launch.plan;
        record.tgid = pid_;
        record.first = static_cast<std::uint16_t>(index);
        step.more_tasks.push_back(record);
    }
    cw_nccl_launch_tasks &record = step.more_tasks.back();
    record.tasks[record.n++] = ref;
    return index;
}

void RankProgram::add_op(RankStep &step, std::uint32_t edge, std::uint32_t task,
                         cw_nccl_op op) const {
    auto record = make<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS, 0);
    record.header.cpu = step.launch.header.cpu;
    record.comm = step.launch.comm;
    record.shape = step.launch.shape;
    record.tgid = pid_;
    record.first = static_cast<std::uint32_t>(step.shape_ops.size());
    record.n = 1;
    op.connection = connection_address(edges_[edge]);
    op.task = task;
    op.proxy_index = static_cast<std::uint8_t>(global_ % GPUS);
    record.ops[0] = op;
    record.proxy_indices[0] = global_ % GPUS;
    step.shape_ops.push_back(record);
    step.moves.push_back({.edge = edge});
    step.launch.n_ops++;
    step.launch.channel_mask |= 1ULL << op.channel;
}

void RankProgram::finish(RankStep step) {
    step.has_launch = step.launch.n_ops != 0;
    const JobOperation &operation = plan_.operations()[step.operation];
    if (!step.has_launch && step.is_collective && plan_.options().has_local_launches) {
        step.has_launch = true;
        step.launch.flags |= CW_NCCL_LAUNCH_LOCAL;
    }
    for (cw_nccl_shape_ops &ops : step.shape_ops)
        ops.n_ops = step.launch.n_ops;
    const auto &amounts = traffic_.of(operation, plan_.communicators()[step.comm], step.stage);
    for (RankMove &move : step.moves) {
        const auto found = std::lower_bound(
            amounts.begin(), amounts.end(), edges_[move.edge].edge,
            [](const EdgeAmount &amount, std::uint32_t edge) { return amount.edge < edge; });
        move.carried = &found->carried;
    }
    steps_.push_back(std::move(step));
}

void RankProgram::add_collective(std::uint32_t index) {
    const JobOperation &operation = plan_.operations()[index];
    const JobMembership member = plan_.membership(operation.role, global_);
    if (member.comm == ~0U)
        return;
    const JobCommunicator &comm = plan_.communicators()[member.comm];
    const CollectiveSize &size = operation.size;
    RankStep step = this->step(index, member, 0, 0);
    step.is_collective = true;
    add_call(step, size.func, size.count, datatype_of(size), 0);
    const std::vector<ChannelPart> parts = channel_parts(size, comm.n_ranks(), comm.channels);
    add_task(step, 0);
    auto task = make<cw_nccl_shape_task>(CW_KIND_NCCL_SHAPE_TASK, 0);
    task.header.cpu = step.launch.header.cpu;
    task.comm = step.launch.comm;
    task.shape = step.launch.shape;
    task.tgid = pid_;
    task.count = size.count;
    task.bytes = size.count * size.element_bytes;
    task.func = task.api_func = size.func;
    task.datatype = datatype_of(size);
    task.algorithm = size.algorithm;
    task.protocol = size.protocol;
    task.n_channels = static_cast<std::uint8_t>(parts.size());
    step.shape_tasks.push_back(task);
    for (const ChannelPart &part : parts) {
        cw_nccl_op op{};
        op.nbytes = part.fifo_bytes;
        op.chunk_bytes = part.chunk_bytes;
        op.slice_bytes = part.slice_bytes;
        op.loop_bytes = part.loop_bytes;
        op.loop_offset_bytes = part.offset_bytes;
        op.channel_bytes = part.channel_bytes;
        op.nsteps = part.steps;
        op.channel = static_cast<std::uint8_t>(part.channel);
        op.func = size.func;
        op.protocol = size.protocol;
        op.algorithm = size.algorithm;
        op.slice_steps = static_cast<std::uint8_t>(part.slice_steps);
        op.chunk_steps = static_cast<std::uint8_t>(part.chunk_steps);
        op.datatype = datatype_of(size);
        const auto add = [&](std::uint32_t peer, bool is_send) {
            const std::uint32_t edge = own_edge(comm.id, is_send ? member.rank : peer,
                                                is_send ? peer : member.rank, part.channel, 0);
            if (edge == ~0U)
                return;
            op.peer = static_cast<std::int32_t>(peer);
            add_op(step, edge, 0, op);
        };
        if (size.algorithm == CW_NCCL_RING) {
            const std::uint32_t n = comm.n_ranks();
            const std::uint32_t place = comm.place_of(member.rank, part.channel);
            op.ring_index = static_cast<std::int32_t>(place);
            op.pattern =
                size.func == CW_NCCL_ALL_REDUCE ? CW_NCCL_PATTERN_RING_TWICE : CW_NCCL_PATTERN_RING;
            add(comm.at_place((place + n - 1) % n, part.channel), false);
            add(comm.at_place((place + 1) % n, part.channel), true);
            continue;
        }
        op.pattern = CW_NCCL_PATTERN_TREE_UP_DOWN;
        const std::uint32_t node = member.rank / comm.width();
        if (!comm.crosses_nodes() || comm.tree_head(node, part.channel) != member.rank)
            continue;
        const JobCommunicator::Tree tree = comm.tree_of(node, part.channel);
        const auto head = [&](std::int32_t other) {
            return comm.tree_head(static_cast<std::uint32_t>(other), part.channel);
        };
        for (const std::int32_t down : tree.down)
            if (down >= 0)
                add(head(down), false);
        if (tree.up >= 0)
            add(head(tree.up), true);
        for (const std::int32_t down : tree.down)
            if (down >= 0)
                add(head(down), true);
        if (tree.up >= 0)
            add(head(tree.up), false);
    }
    finish(std::move(step));
}

void RankProgram::add_transfer(RankStep &step, const JobOperation &operation,
                               const JobMembership &member, std::uint32_t peer, bool is_send,
                               std::uint32_t call) const {
    const JobCommunicator &comm = plan_.communicators()[member.comm];
    const std::uint32_t own_node = member.rank / comm.width();
    const std::uint32_t peer_node = peer / comm.width();
    if (own_node == peer_node)
        return;
    const TransferPlan transfer =
        transfer_plan(operation.transfer_bytes,
                      {.n_ranks = comm.n_ranks(),
                       .p2p_channels = comm.p2p_channels,
                       .channels_a_peer = comm.channels_a_peer,
                       .base_channel = is_send ? comm.base_channel(own_node, peer_node)
                                               : comm.base_channel(peer_node, own_node)});
    const std::uint32_t task_index = add_task(step, call);
    auto task = make<cw_nccl_shape_task>(CW_KIND_NCCL_SHAPE_TASK, 0);
    task.header.cpu = step.launch.header.cpu;
    task.comm = step.launch.comm;
    task.shape = step.launch.shape;
    task.tgid = pid_;
    task.index = task_index;
    task.count = step.calls[call].count;
    task.bytes = operation.transfer_bytes;
    task.root = static_cast<std::int32_t>(peer);
    task.func = task.api_func = step.calls[call].func;
    task.datatype = step.calls[call].datatype;
    // As recorded from NCCL 2.28.9: a send's task has neither.
    task.algorithm = CW_NCCL_TREE;
    task.protocol = CW_NCCL_SIMPLE;
    task.n_channels = static_cast<std::uint8_t>(transfer.n_channels);
    step.shape_tasks.push_back(task);
    for (const TransferPart &part : transfer.parts) {
        cw_nccl_op op{};
        op.nbytes = part.first_bytes;
        op.chunk_bytes = part.chunk_bytes;
        op.nsteps = part.steps;
        op.root = op.peer = static_cast<std::int32_t>(peer);
        op.channel = static_cast<std::uint8_t>(part.channel);
        op.func = task.func;
        op.pattern = is_send ? CW_NCCL_PATTERN_SEND : CW_NCCL_PATTERN_RECV;
        op.protocol = CW_NCCL_SIMPLE;
        op.algorithm = CW_NCCL_TREE;
        op.slice_steps = op.chunk_steps = 1;
        op.datatype = INT8;
        const std::uint32_t edge = own_edge(comm.id, is_send ? member.rank : peer,
                                            is_send ? peer : member.rank, part.channel, 1);
        add_op(step, edge, task_index, op);
    }
}

// A stage first receives, then sends.
void RankProgram::add_transfers(std::uint32_t index) {
    const JobOperation &operation = plan_.operations()[index];
    const JobMembership member = plan_.membership(operation.role, global_);
    const auto n_stages = static_cast<std::int32_t>(plan_.options().pipeline_stages);
    const auto own = static_cast<std::int32_t>(member.rank);
    const std::int32_t direction = operation.is_backward ? -1 : 1;
    for (const bool is_send : {false, true}) {
        const std::int32_t peer = own + (is_send ? direction : -direction);
        if (peer < 0 || peer >= n_stages)
            continue;
        RankStep step = this->step(index, member, static_cast<std::uint32_t>(std::min(own, peer)),
                                   is_send ? 1 : 0);
        add_call(step, is_send ? CW_NCCL_SEND : CW_NCCL_RECV, operation.transfer_bytes / 2,
                 BFLOAT16, peer);
        add_transfer(step, operation, member, static_cast<std::uint32_t>(peer), is_send, 0);
        finish(std::move(step));
    }
}

// Every rank to every other one, itself left out, in one group.
void RankProgram::add_exchange(std::uint32_t index) {
    const JobOperation &operation = plan_.operations()[index];
    const JobMembership member = plan_.membership(operation.role, global_);
    const JobCommunicator &comm = plan_.communicators()[member.comm];
    RankStep step = this->step(index, member, 0, 0);
    const std::uint32_t n = comm.n_ranks();
    for (std::uint32_t peer = 0; peer < n; peer++)
        for (const cw_nccl_func func : {CW_NCCL_SEND, CW_NCCL_RECV})
            if (peer != member.rank)
                add_call(step, func, operation.transfer_bytes / 2, BFLOAT16,
                         static_cast<std::int32_t>(peer));
    const auto call_of = [&](std::uint32_t peer, bool is_send) {
        return 2 * (peer - (peer > member.rank ? 1 : 0)) + (is_send ? 0 : 1);
    };
    const std::uint32_t k = comm.width();
    const auto n_nodes = static_cast<std::uint32_t>(comm.nodes.size());
    const std::uint32_t own_node = member.rank / k;
    const std::uint32_t own_local = member.rank % k;
    for (const std::uint32_t distance : comm.round_distances)
        for (std::uint32_t delta = 0; delta < k; delta++) {
            const std::uint32_t from =
                (own_node + n_nodes - distance) % n_nodes * k + (own_local + k - delta) % k;
            const std::uint32_t to = (own_node + distance) % n_nodes * k + (own_local + delta) % k;
            if (distance == 0)
                continue;
            add_transfer(step, operation, member, from, false, call_of(from, false));
            add_transfer(step, operation, member, to, true, call_of(to, true));
        }
    finish(std::move(step));
}

} // namespace collwire::trace_gen
