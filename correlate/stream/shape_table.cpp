// SPDX-License-Identifier: Apache-2.0
#include "correlate/stream/shape_table.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include "correlate/nccl/op_bytes.h"

namespace collwire::stream {
namespace {

// Tasks, or operations, of a launch: as the reader of whole recordings has it.
constexpr std::uint32_t MAX_ITEMS = 65'536;

bool is_transfer(const cw_nccl_op &op) {
    return op.pattern == CW_NCCL_PATTERN_SEND || op.pattern == CW_NCCL_PATTERN_RECV;
}

} // namespace

void ShapeTable::add(const cw_nccl_shape_task &task) {
    Shape &shape = shapes_[{task.tgid, task.shape}];
    if (shape.is_ready || task.index >= MAX_ITEMS)
        return;
    if (shape.tasks.size() <= task.index)
        shape.tasks.resize(task.index + 1);
    shape.tasks[task.index] = task;
}

void ShapeTable::add(const cw_nccl_shape_ops &ops) {
    Shape &shape = shapes_[{ops.tgid, ops.shape}];
    if (shape.is_ready || ops.n_ops > MAX_ITEMS)
        return;
    shape.n_ops = ops.n_ops;
    shape.ops.resize(ops.n_ops);
    shape.is_there.resize(ops.n_ops);
    for (std::uint32_t i = 0; i < std::min<std::uint32_t>(ops.n, CW_NCCL_SHAPE_OPS); ++i) {
        const std::uint64_t at = std::uint64_t{ops.first} + i;
        if (at >= shape.ops.size() || shape.is_there[at])
            continue;
        shape.ops[at] = ops.ops[i];
        shape.is_there[at] = true;
        ++shape.n_there;
    }
}

void ShapeTable::add(const cw_nccl_connection &connection) {
    connections_[{connection.tgid, connection.connection}] = {
        connection.header.time_ns, connection.peer,
        (connection.flags & CW_NCCL_CONNECTION_SEND) != 0,
        connection.transport != CW_NCCL_TRANSPORT_LOCAL};
}

void ShapeTable::add(const cw_nccl_nvls &nvls) {
    nvls_[{nvls.tgid, nvls.comm}] = nvls;
}

void ShapeTable::forget_process(std::uint32_t tgid) {
    std::erase_if(shapes_, [tgid](const auto &entry) { return entry.first.first == tgid; });
    std::erase_if(connections_, [tgid](const auto &entry) { return entry.first.first == tgid; });
    std::erase_if(nvls_, [tgid](const auto &entry) { return entry.first.first == tgid; });
}

const std::vector<TaskBytes> *ShapeTable::find(std::uint32_t tgid, std::uint64_t shape,
                                               const LaunchingRank &rank,
                                               std::span<const cw_nccl_task_ref> refs) {
    const auto found = shapes_.find({tgid, shape});
    if (found == shapes_.end())
        return nullptr;
    Shape &of = found->second;
    if (!of.is_ready && !compute(tgid, of, rank, refs))
        return nullptr;
    return &of.bytes;
}

// The sums of the operations that send, as op_bytes.h computes them. False: records are missing.
bool ShapeTable::compute(std::uint32_t tgid, Shape &shape, const LaunchingRank &rank,
                         std::span<const cw_nccl_task_ref> refs) const {
    if (shape.n_there != shape.n_ops)
        return false;
    const auto first_of = [refs](std::uint32_t task) {
        if (task >= refs.size())
            return task;
        return static_cast<std::uint32_t>(
            std::ranges::find(refs, refs[task].task, &cw_nccl_task_ref::task) - refs.begin());
    };
    const auto nvls = nvls_.find({tgid, rank.comm});
    std::vector<nccl::OpFacts> facts;
    for (const cw_nccl_op &op : shape.ops) {
        if (op.pattern == CW_NCCL_PATTERN_PROFILER)
            continue;
        auto found = connections_.find({tgid, op.connection});
        if (found != connections_.end() && found->second.time_ns < rank.begin_ns)
            found = connections_.end();
        // Another rank's proxy (PXN) has the connection under its own process.
        if (found == connections_.end() && (op.flags & CW_NCCL_OP_OTHER_PROXY) == 0)
            return false;
        if (found != connections_.end() && !found->second.is_on_network)
            continue;
        nccl::OpFacts &one = facts.emplace_back();
        one.op = op;
        one.op.task = first_of(op.task);
        if (op.task < shape.tasks.size())
            one.task = shape.tasks[op.task];
        one.n_ranks = rank.n_ranks;
        one.rank = rank.rank;
        one.is_send = found == connections_.end() || found->second.is_send;
        one.peer = op.peer >= 0 || found == connections_.end() ? op.peer : found->second.peer;
        one.version = rank.version;
        if (nvls != nvls_.end() && nvls->second.header.time_ns >= rank.begin_ns)
            one.head_rank = nvls->second.head_rank;
    }
    std::map<std::pair<std::uint32_t, bool>, std::vector<std::size_t>> parts;
    for (std::size_t i = 0; i < facts.size(); ++i)
        if (is_transfer(facts[i].op))
            parts[{facts[i].op.task, facts[i].is_send}].push_back(i);
    for (const auto &[task, ops] : parts) {
        std::vector<nccl::OpFacts> together;
        together.reserve(ops.size());
        for (const std::size_t i : ops)
            together.push_back(facts[i]);
        nccl::find_part_bytes(together,
                              std::has_single_bit(rank.p2p_channels) ? rank.p2p_channels : 0);
        for (std::size_t i = 0; i < ops.size(); ++i)
            facts[ops[i]].part_bytes = together[i].part_bytes;
    }
    shape.bytes.assign(shape.tasks.size(), {});
    for (std::size_t i = 0; i < shape.tasks.size(); ++i) {
        const cw_nccl_shape_task &task = shape.tasks[i];
        shape.bytes[i].func = task.func;
        shape.bytes[i].api_func = task.api_func;
        shape.bytes[i].algorithm = task.algorithm;
        shape.bytes[i].protocol = task.protocol;
        shape.bytes[i].root = task.root;
        shape.bytes[i].call_bytes = task.bytes;
    }
    for (const nccl::OpFacts &one : facts) {
        if (one.op.task >= shape.bytes.size()) {
            // Of grouped broadcasts: which part is whose needs the place of the rank in the ring.
            // Before 2.24 no operation names its task.
            const bool is_grouped = one.op.func == CW_NCCL_ALL_GATHER_V;
            for (TaskBytes &task : shape.bytes)
                task.is_known = task.is_known && is_grouped && task.func != CW_NCCL_BROADCAST;
            continue;
        }
        TaskBytes &task = shape.bytes[one.op.task];
        if (task.protocol == CW_NCCL_PROTOCOL_UNKNOWN)
            task.protocol = one.op.protocol;
        if (!one.is_send)
            continue;
        const std::optional<nccl::OpBytes> bytes = nccl::derive_op_bytes(one);
        if (!bytes) {
            task.is_known = false;
            continue;
        }
        task.payload_bytes += bytes->payload_bytes;
        task.data_bytes += bytes->data_bytes;
        task.messages += bytes->messages;
        task.is_bound = task.is_bound || bytes->is_bound;
    }
    // Which part of a send is on which channel may be unknown; all parts together are the send.
    for (std::size_t i = 0; i < shape.tasks.size(); ++i) {
        TaskBytes &task = shape.bytes[i];
        if (!task.is_bound || task.func != CW_NCCL_SEND || task.protocol != CW_NCCL_SIMPLE)
            continue;
        task.payload_bytes = task.data_bytes = shape.tasks[i].bytes;
        task.is_bound = false;
    }
    shape.is_ready = true;
    shape.tasks = {};
    shape.ops = {};
    shape.is_there = {};
    return true;
}

} // namespace collwire::stream
