// SPDX-License-Identifier: Apache-2.0
// Plays the plans of PAT between ranks of this process, with connections of eight slots.
#include "tests/cuda_double/pat_plan.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "tests/cuda_double/device_state.h"

namespace collwire::cuda_double {
namespace {

// Whose data is in what a rank has of a block.
using Block = std::set<int>;

class Exchange {
public:
    explicit Exchange(const PatShape &shape) : shape_(shape), plan_(plan_pat(shape)) {
        for (int rank = 0; rank < shape.ranks; rank++) {
            for (int distance = 0; distance < shape.ranks; distance++) {
                if (distance == 0 || !shape.is_gather)
                    blocks_[{rank, distance}] = {rank};
            }
        }
    }

    // False where it gets stuck.
    bool play() {
        bool moved = true;
        while (moved) {
            moved = false;
            for (int rank = 0; rank < shape_.ranks; rank++) {
                for (std::size_t dimension = 0; dimension < plan_.size(); dimension++)
                    moved = send(rank, dimension) || take(rank, dimension) || moved;
            }
        }
        for (const auto &[key, sent] : sent_) {
            if (sent != plan_[key.second].size() || !wire_[key].empty())
                return false;
        }
        return true;
    }
    [[nodiscard]] Block block(int rank, int distance) const {
        const auto found = blocks_.find({rank, distance});
        return found != blocks_.end() ? found->second : Block{};
    }
    [[nodiscard]] const PatPlan &plan() const { return plan_; }

private:
    using Key = std::pair<int, std::size_t>; // rank that sends, dimension

    [[nodiscard]] int peer(int rank, int step) const {
        return (rank + step + shape_.ranks) % shape_.ranks;
    }
    // In a ReduceScatter a block waits for all that come before it in the tree.
    [[nodiscard]] bool is_complete(int rank, int distance) {
        if (shape_.is_gather)
            return blocks_.count({rank, distance}) != 0;
        std::size_t sources = 1;
        for (int bit = 1; distance + bit < shape_.ranks && (distance & bit) == 0; bit *= 2)
            sources += arrived_.count({rank, {distance, bit}}) != 0 ? 1 : 100;
        return sources < 100;
    }

    bool send(int rank, std::size_t dimension) {
        std::size_t &sent = sent_[{rank, dimension}];
        auto &wire = wire_[{rank, dimension}];
        if (sent == plan_[dimension].size() || wire.size() == kFifoSlots)
            return false;
        const int bit = 1 << dimension;
        std::vector<std::pair<int, Block>> content;
        for (const int named : plan_[dimension][sent].distances) {
            const int here = shape_.is_gather ? named - bit : named;
            if (named != kAbsent && !is_complete(rank, here))
                return false;
            if (named != kAbsent)
                content.emplace_back(named, blocks_[{rank, here}]);
        }
        wire.push_back(content);
        sent++;
        return true;
    }

    bool take(int rank, std::size_t dimension) {
        const int bit = 1 << dimension;
        auto &wire = wire_[{peer(rank, shape_.is_gather ? bit : -bit), dimension}];
        if (wire.empty())
            return false;
        for (const auto &[named, content] : wire.front()) {
            const int here = shape_.is_gather ? named : named - bit;
            blocks_[{rank, here}].insert(content.begin(), content.end());
            arrived_.insert({rank, {here, bit}});
        }
        wire.pop_front();
        return true;
    }

    PatShape shape_;
    PatPlan plan_;
    std::map<std::pair<int, int>, Block> blocks_; // by rank and distance
    std::set<std::pair<int, std::pair<int, int>>> arrived_;
    std::map<Key, std::size_t> sent_;
    std::map<Key, std::deque<std::vector<std::pair<int, Block>>>> wire_;
};

TEST(pat_plan, every_block_arrives_in_an_all_gather) {
    for (int ranks = 2; ranks <= 20; ranks++) {
        for (const std::int64_t slot_bytes : {100, 250, 1000, 100000}) {
            Exchange exchange({ranks, 100, slot_bytes, true});
            ASSERT_TRUE(exchange.play()) << ranks << " ranks, " << slot_bytes;
            for (int rank = 0; rank < ranks; rank++) {
                for (int distance = 0; distance < ranks; distance++)
                    EXPECT_EQ(exchange.block(rank, distance), Block{(rank + distance) % ranks});
            }
        }
    }
}

TEST(pat_plan, every_rank_is_in_each_sum_of_a_reduce_scatter) {
    for (int ranks = 2; ranks <= 20; ranks++) {
        Block all;
        for (int rank = 0; rank < ranks; rank++)
            all.insert(rank);
        for (const std::int64_t slot_bytes : {100, 250, 1000, 100000}) {
            Exchange exchange({ranks, 100, slot_bytes, false});
            ASSERT_TRUE(exchange.play()) << ranks << " ranks, " << slot_bytes;
            for (int rank = 0; rank < ranks; rank++)
                EXPECT_EQ(exchange.block(rank, 0), all);
        }
    }
}

TEST(pat_plan, a_message_holds_what_fits_into_a_slot) {
    const Exchange eight({16, 100, 450, true});
    for (const auto &messages : eight.plan()) {
        for (const PatMessage &message : messages)
            EXPECT_LE(message.distances.size(), 4U);
    }
    EXPECT_EQ(eight.plan()[0].size(), 2U); // eight blocks of the nearest dimension
}

} // namespace
} // namespace collwire::cuda_double
