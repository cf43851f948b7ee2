// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

constexpr std::int64_t kRingAlignBytes = 16;

// Cuts a channel's part of a collective into primitives.
class Cutter {
public:
    explicit Cutter(const Collective &collective)
        : collective_(collective),
          element_bytes_(static_cast<std::int64_t>(bytes_of(collective.function.type))) {}

    [[nodiscard]] const char *input(std::int64_t element) const {
        return collective_.input + element * element_bytes_;
    }
    [[nodiscard]] char *output(std::int64_t element) const {
        return collective_.output + element * element_bytes_;
    }
    [[nodiscard]] std::int64_t align(std::int64_t elements) const {
        const std::int64_t grain = kRingAlignBytes / element_bytes_;
        return (elements + grain - 1) / grain * grain;
    }
    // Of each chunk of the part: where it begins in the buffers, and its elements.
    template <class Call> void for_each_chunk(Call call) const {
        for (std::int64_t at = 0; at < collective_.part_count; at += collective_.chunk_count)
            call(collective_.part_offset + at,
                 std::min(collective_.chunk_count, collective_.part_count - at));
    }

private:
    const Collective &collective_;
    std::int64_t element_bytes_;
};

PrimitivesSetup ring_setup(const ChannelContext &context, const Collective &collective,
                           int slices_per_chunk, int steps_per_slice) {
    PrimitivesSetup setup = collective_setup(context, collective);
    setup.slices_per_chunk = slices_per_chunk;
    setup.steps_per_slice = steps_per_slice;
    setup.receive.emplace_back(context.channel, context.channel.previous(), Direction::Receive, 0);
    setup.send.emplace_back(context.channel, context.channel.next(), Direction::Send, 0);
    return setup;
}

Phase one_run(PrimitivesSetup setup, int work) {
    for (Primitive &primitive : setup.primitives)
        primitive.work = work;
    Phase phase;
    phase.push_back(Primitives::make(std::move(setup)));
    return phase;
}

// Reduce-scatter, then all-gather, over chunks of the ring's ranks.
Phase all_reduce_ring(const ChannelContext &context, const Collective &collective) {
    const Cutter cutter(collective);
    PrimitivesSetup setup = ring_setup(context, collective, 2, 2);
    const int ranks = context.communicator.ranks();
    const int index = context.channel.ring_index();
    const std::int64_t loop = ranks * collective.chunk_count;
    for (std::int64_t at = 0; at < collective.part_count; at += loop) {
        const std::int64_t remaining = collective.part_count - at;
        std::int64_t chunk = collective.chunk_count;
        if (remaining < loop)
            chunk =
                collective.last_chunk_count.value_or(cutter.align((remaining + ranks - 1) / ranks));
        // `place`: of the ring's chunks.
        const auto add = [&](int place, auto make) {
            const std::int64_t offset = place % ranks * chunk;
            setup.primitives.push_back(
                make(collective.part_offset + at + offset, std::min(chunk, remaining - offset)));
        };
        add(index + ranks - 1, [&](std::int64_t begin, std::int64_t elements) {
            return Primitive::send(cutter.input(begin), elements);
        });
        for (int step = 2; step < ranks; step++) {
            add(index + ranks - step, [&](std::int64_t begin, std::int64_t elements) {
                return Primitive::receive_reduce_send(cutter.input(begin), elements);
            });
        }
        add(index, [&](std::int64_t begin, std::int64_t elements) {
            return Primitive::receive_reduce_copy_send(cutter.input(begin), cutter.output(begin),
                                                       elements);
        });
        for (int step = 1; step < ranks - 1; step++) {
            add(index + ranks - step, [&](std::int64_t begin, std::int64_t elements) {
                return Primitive::receive_copy_send(cutter.output(begin), elements);
            });
        }
        add(index + 1, [&](std::int64_t begin, std::int64_t elements) {
            return Primitive::receive(cutter.output(begin), elements);
        });
    }
    return one_run(std::move(setup), collective.work);
}

PrimitivesSetup tree_setup(const ChannelContext &context, const Collective &collective,
                           const std::vector<int> &from, const std::vector<int> &to) {
    PrimitivesSetup setup = collective_setup(context, collective);
    for (const int peer : from)
        setup.receive.emplace_back(context.channel, peer, Direction::Receive, 0);
    for (const int peer : to)
        setup.send.emplace_back(context.channel, peer, Direction::Send, 0);
    return setup;
}

// Up and down at the same time, but at the root, where they meet.
Phase all_reduce_tree(const ChannelContext &context, const Collective &collective) {
    const Cutter cutter(collective);
    const int up = context.channel.tree_up();
    const std::vector<int> down = context.channel.tree_down();
    if (up == -1) {
        PrimitivesSetup root = tree_setup(context, collective, down, down);
        cutter.for_each_chunk([&](std::int64_t begin, std::int64_t elements) {
            root.primitives.push_back(Primitive::receive_reduce_copy_send(
                cutter.input(begin), cutter.output(begin), elements));
        });
        return one_run(std::move(root), collective.work);
    }
    PrimitivesSetup reduce = tree_setup(context, collective, down, {up});
    PrimitivesSetup broadcast = tree_setup(context, collective, {up}, down);
    cutter.for_each_chunk([&](std::int64_t begin, std::int64_t elements) {
        const bool is_leaf = down.empty();
        reduce.primitives.push_back(
            is_leaf ? Primitive::send(cutter.input(begin), elements)
                    : Primitive::receive_reduce_send(cutter.input(begin), elements));
        broadcast.primitives.push_back(
            is_leaf ? Primitive::receive(cutter.output(begin), elements)
                    : Primitive::receive_copy_send(cutter.output(begin), elements));
    });
    Phase phase = one_run(std::move(reduce), collective.work);
    phase.push_back(std::move(one_run(std::move(broadcast), collective.work).front()));
    return phase;
}

Phase all_gather_ring(const ChannelContext &context, const Collective &collective) {
    const Cutter cutter(collective);
    PrimitivesSetup setup = ring_setup(context, collective, 2, 2);
    const int ranks = context.communicator.ranks();
    const auto output_of = [&](int distance, std::int64_t begin) {
        return cutter.output(begin + context.channel.ring_rank(distance) * collective.count);
    };
    cutter.for_each_chunk([&](std::int64_t begin, std::int64_t elements) {
        char *own = output_of(0, begin);
        const char *input = cutter.input(begin);
        setup.primitives.push_back(Primitive::send(input, elements, input == own ? nullptr : own));
        for (int step = 1; step < ranks - 1; step++)
            setup.primitives.push_back(
                Primitive::receive_copy_send(output_of(ranks - step, begin), elements));
        setup.primitives.push_back(Primitive::receive(output_of(1, begin), elements));
    });
    return one_run(std::move(setup), collective.work);
}

Phase reduce_scatter_ring(const ChannelContext &context, const Collective &collective) {
    const Cutter cutter(collective);
    PrimitivesSetup setup = ring_setup(context, collective, 2, 2);
    const int ranks = context.communicator.ranks();
    const auto input_of = [&](int distance, std::int64_t begin) {
        return cutter.input(begin + context.channel.ring_rank(distance) * collective.count);
    };
    cutter.for_each_chunk([&](std::int64_t begin, std::int64_t elements) {
        setup.primitives.push_back(Primitive::send(input_of(ranks - 1, begin), elements));
        for (int step = 2; step < ranks; step++)
            setup.primitives.push_back(
                Primitive::receive_reduce_send(input_of(ranks - step, begin), elements));
        setup.primitives.push_back(
            Primitive::receive_reduce_copy(input_of(0, begin), cutter.output(begin), elements));
    });
    return one_run(std::move(setup), collective.work);
}

Phase broadcast_ring(const ChannelContext &context, const Collective &collective) {
    const Cutter cutter(collective);
    PrimitivesSetup setup = ring_setup(context, collective, 1, 1);
    const bool is_root = context.channel.ring_rank(0) == collective.root;
    const bool is_last = context.channel.ring_rank(1) == collective.root;
    cutter.for_each_chunk([&](std::int64_t begin, std::int64_t elements) {
        const char *input = cutter.input(begin);
        char *output = cutter.output(begin);
        setup.primitives.push_back(
            is_root   ? Primitive::send(input, elements, input == output ? nullptr : output)
            : is_last ? Primitive::receive(output, elements)
                      : Primitive::receive_copy_send(output, elements));
    });
    return one_run(std::move(setup), collective.work);
}

Phase reduce_ring(const ChannelContext &context, const Collective &collective) {
    const Cutter cutter(collective);
    PrimitivesSetup setup = ring_setup(context, collective, 1, 1);
    const int ranks = context.communicator.ranks();
    const bool is_root = context.channel.ring_rank(0) == collective.root;
    const bool is_first = context.channel.ring_rank(ranks - 1) == collective.root;
    cutter.for_each_chunk([&](std::int64_t begin, std::int64_t elements) {
        const char *input = cutter.input(begin);
        setup.primitives.push_back(
            is_first  ? Primitive::send(input, elements)
            : is_root ? Primitive::receive_reduce_copy(input, cutter.output(begin), elements)
                      : Primitive::receive_reduce_send(input, elements));
    });
    return one_run(std::move(setup), collective.work);
}

} // namespace

void refuse_function(const Function &function) {
    fatal(fmt::format("{} has no double. Fix: NCCL_ALGO=Ring,Tree", name_of(function)));
}

PrimitivesSetup collective_setup(const ChannelContext &context, const Collective &collective) {
    const Function &function = collective.function;
    PrimitivesSetup setup;
    setup.protocol = function.protocol;
    setup.reduction = {function.reduction, function.type, collective.reduction_argument};
    setup.channel = context.channel.id();
    setup.slot_bytes = context.communicator.slot_bytes(function.protocol);
    setup.truth = &context.truth;
    return setup;
}

Phase schedule_collective(const ChannelContext &context, const Collective &collective) {
    const Function &function = collective.function;
    const bool is_ring = function.algorithm == Algorithm::Ring;
    if (function.algorithm == Algorithm::Nvls || function.algorithm == Algorithm::NvlsTree)
        return schedule_nvls(context, collective);
    switch (function.operation) {
    case Operation::AllReduce:
        if (is_ring)
            return all_reduce_ring(context, collective);
        if (function.algorithm == Algorithm::Tree)
            return all_reduce_tree(context, collective);
        break;
    case Operation::AllGather:
        if (is_ring)
            return all_gather_ring(context, collective);
        if (function.algorithm == Algorithm::Pat)
            return schedule_pat(context, collective);
        break;
    case Operation::ReduceScatter:
        if (is_ring)
            return reduce_scatter_ring(context, collective);
        if (function.algorithm == Algorithm::Pat)
            return schedule_pat(context, collective);
        break;
    case Operation::Broadcast:
        return broadcast_ring(context, collective);
    case Operation::Reduce:
        return reduce_ring(context, collective);
    case Operation::None:
    case Operation::SendRecv:
    case Operation::AllGatherV:
        break;
    }
    refuse_function(function);
}

// Connections of index 1 are those of p2p.
Phase schedule_transfers(const ChannelContext &context, const std::vector<Transfer> &transfers) {
    Phase phase;
    for (const Transfer &transfer : transfers) {
        const bool is_send = transfer.direction == Direction::Send;
        PrimitivesSetup setup;
        setup.protocol = transfer.protocol;
        setup.channel = context.channel.id();
        setup.slot_bytes = transfer.protocol == Protocol::Simple
                               ? context.communicator.p2p_chunk_bytes()
                               : context.communicator.slot_bytes(transfer.protocol);
        setup.truth = &context.truth;
        (is_send ? setup.send : setup.receive)
            .emplace_back(context.channel, transfer.peer, transfer.direction, 1);
        if (transfer.chunk_bytes == 0)
            fatal("a transfer in chunks of 0 bytes. Fix: report the version");
        // A transfer of nothing takes one empty step.
        std::uint64_t done_bytes = 0;
        do {
            const std::uint64_t bytes = std::min(transfer.chunk_bytes, transfer.bytes - done_bytes);
            char *address = transfer.address + done_bytes;
            setup.primitives.push_back(
                is_send ? Primitive::send(address, static_cast<std::int64_t>(bytes))
                        : Primitive::receive(address, static_cast<std::int64_t>(bytes)));
            done_bytes += bytes;
        } while (done_bytes < transfer.bytes);
        phase.push_back(std::move(one_run(std::move(setup), transfer.work).front()));
    }
    return phase;
}

Phase schedule_broadcasts(const ChannelContext &context, const Function &function,
                          std::vector<GroupedBroadcast> broadcasts) {
    Collective shared;
    shared.function = function;
    PrimitivesSetup setup = ring_setup(context, shared, 1, 1);
    const int last_distance = context.communicator.ranks() - 1;
    for (bool any = true; any;) {
        any = false;
        for (GroupedBroadcast &broadcast : broadcasts) {
            if (broadcast.bytes == 0)
                continue;
            if (broadcast.chunk_bytes == 0)
                fatal("a broadcast in chunks of 0 bytes. Fix: report the version");
            const std::uint64_t bytes = std::min(broadcast.bytes, broadcast.chunk_bytes);
            const auto elements = static_cast<std::int64_t>(bytes);
            char *output = broadcast.output + broadcast.done_bytes;
            Primitive primitive;
            if (broadcast.distance == 0)
                primitive = Primitive::send(broadcast.input + broadcast.done_bytes, elements,
                                            broadcast.input == broadcast.output ? nullptr : output);
            else if (broadcast.distance == last_distance)
                primitive = Primitive::receive(output, elements);
            else
                primitive = Primitive::receive_copy_send(output, elements);
            primitive.work = broadcast.work;
            setup.primitives.push_back(primitive);
            broadcast.bytes -= bytes;
            broadcast.done_bytes += bytes;
            any = true;
        }
    }
    Phase phase;
    phase.push_back(Primitives::make(std::move(setup)));
    return phase;
}

} // namespace collwire::cuda_double
