// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/roles_layouts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace collwire::roles::test {
namespace {

constexpr std::uint64_t MIB = 1U << 20;
constexpr std::uint64_t ACTIVATIONS = 48 * MIB, KEYS_AND_VALUES = 6 * MIB;
constexpr std::uint64_t FULL_BUCKET = 100 * MIB, LAST_BUCKET = 37 * MIB;
constexpr std::uint64_t LAYER = 160 * MIB, ROOT = 220 * MIB;

class MadeJobWriter {
public:
    explicit MadeJobWriter(const JobLayout &layout)
        : layout_(layout), random_(layout.seed), n_(layout.ranks()) {
        place();
    }

    MadeJob run() {
        if (layout_.has_world)
            world();
        if (layout_.tensor > 1)
            tensor();
        if (layout_.context > 1)
            context();
        if (layout_.data * layout_.context > 1)
            gradients();
        if (layout_.stages > 1)
            pipeline();
        if (layout_.experts > 1)
            experts();
        leave_out();
        return std::move(job_);
    }

private:
    using Ranks = std::vector<std::int32_t>;

    void place() {
        const std::int32_t nodes = n_ / layout_.gpus;
        std::vector<std::int32_t> at(static_cast<std::size_t>(n_));
        std::iota(at.begin(), at.end(), 0);
        if (layout_.order == RankOrder::Scattered)
            std::shuffle(at.begin(), at.end(), random_);
        for (const std::int32_t slot : at) {
            Place place{static_cast<std::uint32_t>(slot / layout_.gpus),
                        static_cast<std::uint32_t>(slot % layout_.gpus)};
            if (layout_.order == RankOrder::Cyclic)
                place = {static_cast<std::uint32_t>(slot % nodes),
                         static_cast<std::uint32_t>(slot / nodes)};
            if (layout_.order == RankOrder::GpusReversed)
                place.gpu = static_cast<std::uint32_t>(layout_.gpus) - 1 - place.gpu;
            job_.facts.places.push_back(place);
        }
    }

    GroupFacts &add(const Ranks &ranks, std::string role) {
        GroupFacts group;
        group.n_ranks = static_cast<std::int32_t>(ranks.size());
        std::set<std::uint32_t> nodes;
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            const auto place = static_cast<std::size_t>(ranks[i]);
            group.members.push_back({static_cast<std::int32_t>(i), place});
            nodes.insert(job_.facts.places[place].node);
        }
        group.n_nodes = static_cast<std::int32_t>(nodes.size());
        job_.facts.groups.push_back(std::move(group));
        job_.roles.push_back(std::move(role));
        return job_.facts.groups.back();
    }

    static void move(GroupFacts &group, Movement movement, std::uint64_t bytes) {
        ++group.collectives[{movement, bytes}];
        if (bytes >= LARGE_BYTES)
            group.latest.push_back({movement, bytes});
    }

    // All ranks that differ in the chosen numbers alone, for each value of the others.
    template <typename Key> std::vector<Ranks> divide(Key key) const {
        std::map<decltype(key(0)), Ranks> groups;
        for (std::int32_t rank = 0; rank < n_; ++rank)
            groups[key(rank)].push_back(rank);
        std::vector<Ranks> all;
        all.reserve(groups.size());
        for (auto &[of, ranks] : groups)
            all.push_back(std::move(ranks));
        return all;
    }
    std::int32_t t(std::int32_t rank) const { return rank % layout_.tensor; }
    std::int32_t c(std::int32_t rank) const { return rank / layout_.tensor % layout_.context; }
    // Among the ranks that reduce gradients together.
    std::int32_t dc(std::int32_t rank) const {
        return rank / layout_.tensor % (layout_.context * layout_.data);
    }
    std::int32_t p(std::int32_t rank) const {
        return rank / (layout_.tensor * layout_.context * layout_.data);
    }

    void world() {
        Ranks all(static_cast<std::size_t>(n_));
        std::iota(all.begin(), all.end(), 0);
        GroupFacts &group = add(all, "");
        for (std::int32_t step = 0; step < layout_.steps; ++step)
            move(group, Movement::AllReduce, 4);
    }

    void tensor() {
        for (const Ranks &ranks :
             divide([&](std::int32_t rank) { return std::pair(p(rank), dc(rank)); })) {
            GroupFacts &group = add(ranks, "tp");
            for (std::int32_t i = 0; i < layout_.steps * layout_.microbatches; ++i) {
                for (std::int32_t half = 0; half < layout_.layers * 2; ++half)
                    pass(group, false);
                move(group, Movement::AllReduce, 32 << 10); // of the loss
                for (std::int32_t half = 0; half < layout_.layers * 2; ++half)
                    pass(group, true);
            }
        }
    }
    void pass(GroupFacts &group, bool is_backward) const {
        if (!layout_.has_sequence_parallel) {
            move(group, Movement::AllReduce, ACTIVATIONS);
            return;
        }
        for (std::int32_t i = 0; i < (is_backward ? 2 : 1); ++i)
            move(group, Movement::AllGather, ACTIVATIONS);
        move(group, Movement::ReduceScatter, ACTIVATIONS);
    }

    void context() {
        for (const Ranks &ranks : divide([&](std::int32_t rank) {
                 return std::pair(rank / (layout_.tensor * layout_.context), t(rank));
             })) {
            GroupFacts &group = add(ranks, "");
            const std::int32_t rounds = layout_.steps * layout_.microbatches * layout_.layers;
            if (layout_.context_exchange == ContextExchange::AllToAll)
                all_to_all(group, 8 * rounds, false);
            for (std::int32_t i = 0; i < rounds; ++i)
                if (layout_.context_exchange == ContextExchange::AllGather) {
                    for (int twice = 0; twice < 2; ++twice)
                        move(group, Movement::AllGather, KEYS_AND_VALUES);
                    move(group, Movement::ReduceScatter, KEYS_AND_VALUES);
                } else if (layout_.context_exchange == ContextExchange::Ring) {
                    ring(group);
                }
        }
    }
    // Keys and values forward, their gradients back.
    static void ring(GroupFacts &group) {
        const std::int32_t n = group.n_ranks;
        const auto hops = static_cast<std::uint64_t>(n - 1);
        for (std::int32_t rank = 0; rank < n; ++rank) {
            group.transfers[{rank, (rank + 1) % n}] += hops;
            group.transfers[{rank, (rank + n - 1) % n}] += hops;
            group.transfer_sizes[KEYS_AND_VALUES] += 2 * hops;
        }
        group.takes_turns = false;
    }

    void gradients() {
        if (layout_.gradients == Gradients::TwoSteps) {
            two_steps();
            return;
        }
        for (const Ranks &ranks :
             divide([&](std::int32_t rank) { return std::pair(p(rank), t(rank)); })) {
            GroupFacts &group = add(ranks, "dp");
            for (std::int32_t step = 0; step < layout_.steps; ++step)
                reduce(group);
        }
    }
    void reduce(GroupFacts &group) const {
        switch (layout_.gradients) {
        case Gradients::OneBucket:
            move(group, Movement::AllReduce, FULL_BUCKET);
            break;
        case Gradients::Sharded:
            for (const Movement movement : {Movement::ReduceScatter, Movement::AllGather})
                for (const std::uint64_t bytes : {FULL_BUCKET, FULL_BUCKET, LAST_BUCKET})
                    move(group, movement, bytes);
            break;
        case Gradients::LayerByLayer:
            layer_by_layer(group);
            break;
        default:
            for (const std::uint64_t bytes : {FULL_BUCKET, FULL_BUCKET, LAST_BUCKET})
                move(group, Movement::AllReduce, bytes);
        }
        move(group, Movement::AllReduce, 4096);
    }
    void layer_by_layer(GroupFacts &group) const {
        const auto layers = static_cast<std::size_t>(layout_.layers);
        std::vector<std::uint64_t> sizes(layers, LAYER);
        sizes.insert(sizes.begin(), ROOT);
        for (const std::uint64_t bytes : sizes)
            move(group, Movement::AllGather, bytes);
        std::ranges::reverse(sizes);
        for (const std::uint64_t bytes : sizes) {
            move(group, Movement::AllGather, bytes);
            move(group, Movement::ReduceScatter, bytes);
        }
    }
    // Sharded inside groups of neighbours, reduced again between them.
    void two_steps() {
        const std::int32_t all = layout_.data * layout_.context;
        const std::int32_t inner = std::max(2, std::min(all, layout_.gpus / layout_.tensor));
        for (const Ranks &ranks : divide([&](std::int32_t rank) {
                 return std::tuple(p(rank), t(rank), dc(rank) / inner);
             })) {
            GroupFacts &group = add(ranks, "dp or none");
            for (std::int32_t step = 0; step < layout_.steps; ++step)
                layer_by_layer(group);
        }
        for (const Ranks &ranks : divide([&](std::int32_t rank) {
                 return std::tuple(p(rank), t(rank), dc(rank) % inner);
             })) {
            if (ranks.size() < 2)
                continue;
            GroupFacts &group = add(ranks, "dp or none");
            for (std::int32_t step = 0; step < layout_.steps; ++step)
                for (std::int32_t layer = 0; layer <= layout_.layers; ++layer)
                    move(group, Movement::AllReduce,
                         (layer == layout_.layers ? ROOT : LAYER) /
                             static_cast<std::uint64_t>(inner));
        }
    }

    void pipeline() {
        for (const Ranks &ranks : divide([&](std::int32_t rank) {
                 return rank % (layout_.tensor * layout_.context * layout_.data);
             })) {
            GroupFacts &group = add(ranks, "pp");
            const auto n = static_cast<std::int32_t>(ranks.size());
            for (std::int32_t rank = 0; rank < n; ++rank) {
                const bool is_last = rank == n - 1;
                const std::int32_t times =
                    layout_.steps * layout_.microbatches * (layout_.rounds - (is_last ? 1 : 0));
                if (times == 0)
                    continue;
                group.transfers[{rank, (rank + 1) % n}] += static_cast<std::uint64_t>(times);
                group.transfers[{(rank + 1) % n, rank}] += static_cast<std::uint64_t>(times);
                group.transfer_sizes[ACTIVATIONS] += 2 * static_cast<std::uint64_t>(times);
            }
            group.takes_turns = layout_.microbatches > 1;
            // Tied embeddings of the first and the last stage.
            GroupFacts &ends = add({ranks.front(), ranks.back()}, "");
            for (std::int32_t step = 0; step < layout_.steps; ++step)
                move(ends, Movement::AllReduce, ROOT);
        }
    }

    static void all_to_all(GroupFacts &group, std::int32_t rounds, bool is_uneven) {
        for (std::int32_t from = 0; from < group.n_ranks; ++from)
            for (std::int32_t to = 0; to < group.n_ranks; ++to) {
                if (from == to)
                    continue;
                group.transfers[{from, to}] += static_cast<std::uint64_t>(rounds);
                for (std::int32_t i = 0; i < rounds; ++i)
                    ++group.transfer_sizes[is_uneven ? MIB + static_cast<std::uint64_t>(
                                                                 from * 7919 + to * 131 + i)
                                                     : MIB];
            }
        group.takes_turns = false;
    }

    void experts() {
        const std::int32_t rounds = layout_.steps * layout_.microbatches * layout_.layers;
        for (const Ranks &ranks : divide([&](std::int32_t rank) {
                 return std::tuple(p(rank), t(rank), dc(rank) / layout_.experts);
             })) {
            GroupFacts &group = add(ranks, "ep");
            if (layout_.expert_exchange != ExpertExchange::AllGather)
                all_to_all(group, 4 * rounds, layout_.expert_exchange == ExpertExchange::Uneven);
            else
                for (std::int32_t i = 0; i < rounds; ++i)
                    for (const Movement movement : {Movement::AllGather, Movement::ReduceScatter})
                        move(group, movement, ACTIVATIONS);
        }
        // Gradients of the experts.
        for (const Ranks &ranks : divide([&](std::int32_t rank) {
                 return std::tuple(p(rank), t(rank), dc(rank) % layout_.experts);
             })) {
            if (ranks.size() < 2)
                continue;
            GroupFacts &group = add(ranks, "dp or none");
            for (std::int32_t step = 0; step < layout_.steps; ++step)
                reduce(group);
        }
    }

    void leave_out() {
        if (layout_.missing_node < 0)
            return;
        const auto is_missing = [&](const Member &member) {
            return job_.facts.places[member.place].node ==
                   static_cast<std::uint32_t>(layout_.missing_node);
        };
        MadeJob left;
        std::vector<std::size_t> number(job_.facts.places.size());
        for (std::size_t i = 0; i < number.size(); ++i) {
            number[i] = left.facts.places.size();
            if (!is_missing({0, i}))
                left.facts.places.push_back(job_.facts.places[i]);
        }
        for (std::size_t i = 0; i < job_.roles.size(); ++i) {
            GroupFacts group = job_.facts.groups[i];
            std::set<std::int32_t> missing;
            for (const Member &member : group.members)
                if (is_missing(member))
                    missing.insert(member.rank);
            std::erase_if(group.members, is_missing);
            std::erase_if(group.transfers, [&](const auto &transfer) {
                return missing.contains(transfer.first.first) &&
                       missing.contains(transfer.first.second);
            });
            if (group.members.empty())
                continue;
            for (Member &member : group.members)
                member.place = number[member.place];
            left.facts.groups.push_back(std::move(group));
            left.roles.push_back(job_.roles[i]);
        }
        job_ = std::move(left);
    }

    const JobLayout &layout_;
    std::mt19937 random_;
    const std::int32_t n_;
    MadeJob job_;
};

} // namespace

bool JobLayout::is_possible() const {
    const std::int32_t all = data * context;
    return ranks() > 1 && ranks() % gpus == 0 && all % experts == 0 &&
           (gradients != Gradients::TwoSteps ||
            (all > 1 && all % std::max(2, std::min(all, gpus / tensor)) == 0)) &&
           (rounds == 1 || stages > 2) && missing_node < ranks() / gpus &&
           (missing_node < 0 || ranks() > gpus);
}

std::string JobLayout::text() const {
    return fmt::format("tp {} cp {} dp {} pp {} ep {}, {} GPUs a node, order {}, gradients {}, "
                       "context {}, experts {}, sequence parallel {}, world {}, microbatches {}, "
                       "rounds {}, missing node {}, seed {}",
                       tensor, context, data, stages, experts, gpus, static_cast<int>(order),
                       static_cast<int>(gradients), static_cast<int>(context_exchange),
                       static_cast<int>(expert_exchange), has_sequence_parallel, has_world,
                       microbatches, rounds, missing_node, seed);
}

MadeJob make_job(const JobLayout &layout) {
    return MadeJobWriter(layout).run();
}

} // namespace collwire::roles::test
