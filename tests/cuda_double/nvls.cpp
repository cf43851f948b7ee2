// SPDX-License-Identifier: Apache-2.0
// NVLink SHARP. Each rank scatters its data to the heads, in its own memory; each head loads its
// part from all devices through the switch, reduced, and stores the result to all through it; each
// rank gathers from its own memory. With NVLS_TREE the heads of the nodes are a tree in between.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/cuda_double/schedules.h"
#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

constexpr int kBetweenUserAndHeads = 1; // index of the connections of a scatter and a gather
constexpr int kMostStepsPerCall = 16;
// What a last, short loop is cut to.
constexpr std::int64_t kTreeGrainBytes = 16;
constexpr std::int64_t kOneNodeGrainBytes = 16384;

// The heads' pieces of one step: at `begin`, one after the other at a distance.
struct Pieces {
    char *begin = nullptr;
    std::int64_t distance_bytes = 0;
    std::int64_t piece_bytes = 0;
    std::int64_t all_bytes = 0; // from `begin`: the last pieces may be short, or empty

    [[nodiscard]] char *at(std::size_t head) const {
        return begin + static_cast<std::int64_t>(head) * distance_bytes;
    }
    [[nodiscard]] std::int64_t bytes_of(std::size_t head) const {
        const auto before = static_cast<std::int64_t>(head) * distance_bytes;
        return std::clamp<std::int64_t>(all_bytes - before, 0, piece_bytes);
    }
};

// A scatter (send) or a gather (receive): a step of all heads at a time.
class HeadsRun : public Run {
public:
    HeadsRun(const ChannelContext &context, const Collective &collective, Direction direction,
             std::vector<Pieces> steps)
        : truth_(context.truth), channel_(context.channel.id()), work_(collective.work),
          direction_(direction), slot_bytes_(context.communicator.slot_bytes(Protocol::Simple)),
          steps_(std::move(steps)) {
        for (const int peer : context.channel.nvls().up)
            heads_.emplace_back(context.channel, peer, direction, kBetweenUserAndHeads);
    }

    bool advance(bool &progressed) override {
        if (!is_open_) {
            for (Connection &head : heads_)
                head.open(Protocol::Simple, slot_bytes_, 1);
            is_open_ = true;
        }
        for (int i = 0; i < kMostStepsPerCall && current_ < steps_.size(); i++) {
            if (!std::all_of(heads_.begin(), heads_.end(), [&](Connection &head) {
                    return direction_ == Direction::Send ? head.has_free(1) : head.has_filled(1);
                }))
                return false;
            play(steps_[current_++]);
            progressed = true;
        }
        if (current_ < steps_.size())
            return false;
        for (const Connection &head : heads_)
            head.save_step();
        return true;
    }

    [[nodiscard]] std::string state() const override {
        std::string text = direction_ == Direction::Send ? "scatter" : "gather";
        for (const Connection &head : heads_)
            text += ", " + head.state();
        return text;
    }

private:
    void play(const Pieces &pieces) {
        for (std::size_t i = 0; i < heads_.size(); i++) {
            Connection &head = heads_[i];
            const std::int64_t bytes = pieces.bytes_of(i);
            if (bytes > 0 && direction_ == Direction::Send)
                std::memcpy(head.slot(), pieces.at(i), static_cast<std::size_t>(bytes));
            else if (bytes > 0)
                std::memcpy(pieces.at(i), head.slot(), static_cast<std::size_t>(bytes));
            truth_.add(work_, channel_, head.peer(), direction_, head.index(), Protocol::Simple,
                       head.step(), 1, static_cast<std::uint64_t>(bytes));
            head.advance(1);
            if (direction_ == Direction::Send)
                head.post_tail();
            else
                head.post_head();
        }
    }

    KernelTruth &truth_;
    int channel_;
    int work_;
    Direction direction_;
    std::int64_t slot_bytes_;
    std::vector<Connection> heads_;
    std::vector<Pieces> steps_;
    std::size_t current_ = 0;
    bool is_open_ = false;
};

class Nvls {
public:
    Nvls(const ChannelContext &context, const Collective &collective)
        : context_(context), collective_(collective), nvls_(context.channel.nvls()),
          heads_(static_cast<std::int64_t>(nvls_.up.size())),
          element_bytes_(static_cast<std::int64_t>(bytes_of(collective.function.type))) {}

    // `down`, `up`: the peers of the reduction; without `up` the result goes back down.
    Phase all_reduce(const std::vector<int> &down, int up, std::int64_t grain_bytes) {
        std::vector<Pieces> scatter;
        std::vector<Pieces> gather;
        std::vector<Primitive> primitives;
        const std::int64_t loop = heads_ * collective_.chunk_count;
        for (std::int64_t at = 0; at < collective_.part_count; at += loop) {
            const std::int64_t remaining = collective_.part_count - at;
            const std::int64_t chunk =
                remaining < loop ? last_chunk(grain_bytes) : collective_.chunk_count;
            const std::int64_t elements = std::min(loop, remaining);
            scatter.push_back(pieces(user_input(at), chunk, chunk, elements));
            gather.push_back(pieces(user_output(at), chunk, chunk, elements));
            primitives.push_back(Primitive::receive_copy_send(
                nullptr, std::min(chunk, remaining - nvls_.head * chunk)));
        }
        Phase phase;
        add_heads(phase, Direction::Send, std::move(scatter));
        add_heads(phase, Direction::Receive, std::move(gather));
        if (nvls_.head < 0)
            return phase;
        if (up < 0) {
            add_primitives(phase, down, down, std::move(primitives));
            return phase;
        }
        add_primitives(phase, down, {up}, primitives);
        add_primitives(phase, {up}, down, std::move(primitives));
        return phase;
    }

    // Each rank is a head.
    Phase all_gather() {
        std::vector<Pieces> gather;
        std::vector<Primitive> primitives;
        for_each_chunk([&](std::int64_t at, std::int64_t elements) {
            gather.push_back(
                pieces(user_output(at), collective_.count, elements, heads_ * collective_.count));
            primitives.push_back(Primitive::send(user_input(at), elements));
        });
        Phase phase;
        add_heads(phase, Direction::Receive, std::move(gather));
        add_primitives(phase, {}, {nvls_.down}, std::move(primitives));
        return phase;
    }

    Phase reduce_scatter() {
        std::vector<Pieces> scatter;
        std::vector<Primitive> primitives;
        for_each_chunk([&](std::int64_t at, std::int64_t elements) {
            scatter.push_back(
                pieces(user_input(at), collective_.count, elements, heads_ * collective_.count));
            primitives.push_back(Primitive::receive(user_output(at), elements));
        });
        Phase phase;
        add_heads(phase, Direction::Send, std::move(scatter));
        add_primitives(phase, {nvls_.down}, {}, std::move(primitives));
        return phase;
    }

private:
    [[nodiscard]] char *user_input(std::int64_t at) const {
        return const_cast<char *>(collective_.input) +
               (collective_.part_offset + at) * element_bytes_;
    }
    [[nodiscard]] char *user_output(std::int64_t at) const {
        return collective_.output + (collective_.part_offset + at) * element_bytes_;
    }
    [[nodiscard]] Pieces pieces(char *begin, std::int64_t distance, std::int64_t piece,
                                std::int64_t all) const {
        return {begin, distance * element_bytes_, piece * element_bytes_, all * element_bytes_};
    }

    [[nodiscard]] std::int64_t last_chunk(std::int64_t grain_bytes) const {
        if (collective_.last_chunk_count)
            return *collective_.last_chunk_count;
        const std::int64_t grain = grain_bytes / element_bytes_;
        const std::int64_t remaining = collective_.part_count % (heads_ * collective_.chunk_count);
        const std::int64_t even = (remaining + heads_ - 1) / heads_;
        return (even + grain - 1) / grain * grain;
    }

    template <class Call> void for_each_chunk(Call call) const {
        for (std::int64_t at = 0; at < collective_.part_count; at += collective_.chunk_count)
            call(at, std::min(collective_.chunk_count, collective_.part_count - at));
    }

    void add_heads(Phase &phase, Direction direction, std::vector<Pieces> steps) const {
        phase.push_back(
            std::make_unique<HeadsRun>(context_, collective_, direction, std::move(steps)));
    }

    void add_primitives(Phase &phase, const std::vector<int> &from, const std::vector<int> &to,
                        std::vector<Primitive> primitives) const {
        PrimitivesSetup setup = collective_setup(context_, collective_);
        for (const int peer : from)
            setup.receive.emplace_back(context_.channel, peer, Direction::Receive, 0);
        for (const int peer : to)
            setup.send.emplace_back(context_.channel, peer, Direction::Send, 0);
        setup.primitives = std::move(primitives);
        for (Primitive &primitive : setup.primitives)
            primitive.work = collective_.work;
        phase.push_back(Primitives::make(std::move(setup)));
    }

    const ChannelContext &context_;
    const Collective &collective_;
    Channel::Nvls nvls_;
    std::int64_t heads_;
    std::int64_t element_bytes_;
};

} // namespace

Phase schedule_nvls(const ChannelContext &context, const Collective &collective) {
    const Function &function = collective.function;
    const bool scales =
        function.reduction == Reduction::PreMulSum || function.reduction == Reduction::SumPostDiv;
    const bool is_tree = function.algorithm == Algorithm::NvlsTree;
    const Channel::Nvls nvls = context.channel.nvls();
    // NVLS of several nodes goes through CollNet.
    if (scales || (!is_tree && !collective.is_one_node))
        refuse_function(function);
    Nvls schedule(context, collective);
    if (is_tree)
        return schedule.all_reduce(nvls.tree_down, nvls.tree_up, kTreeGrainBytes);
    switch (function.operation) {
    case Operation::AllReduce:
        return schedule.all_reduce({nvls.down}, -1, kOneNodeGrainBytes);
    case Operation::AllGather:
        return schedule.all_gather();
    case Operation::ReduceScatter:
        return schedule.reduce_scatter();
    default:
        refuse_function(function);
    }
}

} // namespace collwire::cuda_double
