// SPDX-License-Identifier: Apache-2.0
// Which ranks call collectives late.
#include <vector>

#include "correlate/nccl/late_ranks.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::int32_t RANKS = 4;

// Ranks on one node.
struct OneNode {
    NodeBuilder node{{.flags = NCCL_NODE_FLAGS}};
    std::vector<NcclBuilder> ranks;

    explicit OneNode(std::int32_t captured = RANKS) {
        node.usual(1);
        for (std::int32_t rank = 0; rank < captured; ++rank) {
            ranks.emplace_back(node, RankOptions{.pid = 100U + static_cast<std::uint32_t>(rank),
                                                 .rank = rank,
                                                 .n_ranks = RANKS,
                                                 .n_nodes = 1});
            ranks.back().comm();
        }
    }
    // All call at `time`, and each so many seconds later.
    OneNode &call(double time, const std::vector<double> &later) {
        for (std::size_t rank = 0; rank < ranks.size(); ++rank)
            ranks[rank].call(time + later[rank], {.count = 1000});
        return *this;
    }
    [[nodiscard]] model::Model model() {
        node.clock(40).end();
        return model_of({node.bytes()});
    }
};

const Lateness &of_rank(const model::Model &model, std::int32_t rank) {
    for (Index i = 0; i < model.nccl.instances.size(); ++i)
        if (model.nccl.instances[i].record.rank == rank)
            return model.nccl.lateness[i];
    ADD_FAILURE() << "no rank " << rank;
    static const Lateness none;
    return none;
}

TEST(NcclLateRanks, AreComparedWithTheMedianRank) {
    OneNode job;
    job.call(12, {0, 0, 0.3, 0}).call(13, {0, 0, 0.1, 0}).call(14, {0, 0, 0.2, 0});
    job.call(15, {0.0001, 0, 0, 0}).call(16, {0, 0, 0.0009, 0});
    const model::Model model = job.model();
    const Lateness &late = of_rank(model, 2);
    EXPECT_EQ(late.compared, 5U);
    EXPECT_EQ(late.last, 4U);
    EXPECT_EQ(late.late, 3U) << "from 1 ms on";
    EXPECT_NEAR(static_cast<double>(late.median_late_ns), 200e6, 10);
    EXPECT_NEAR(static_cast<double>(late.sum_late_ns), 600e6, 30);
    for (const std::int32_t rank : {0, 1, 3}) {
        EXPECT_EQ(of_rank(model, rank).compared, 5U);
        EXPECT_EQ(of_rank(model, rank).last, rank == 0 ? 1U : 0U);
        EXPECT_EQ(of_rank(model, rank).late, 0U);
    }
    const std::vector<Index> ranks = late_ranks(model.nccl);
    ASSERT_EQ(ranks.size(), 1U);
    EXPECT_EQ(model.nccl.instances[ranks[0]].record.rank, 2);
}

TEST(NcclLateRanks, AnEarlyRankMakesNoOtherLate) {
    OneNode job;
    for (int i = 0; i < 5; ++i)
        job.call(12 + i, {0, 0.3, 0.3, 0.3});
    const model::Model model = job.model();
    EXPECT_TRUE(late_ranks(model.nccl).empty());
    EXPECT_EQ(of_rank(model, 0).compared, 5U);
}

TEST(NcclLateRanks, TheLongestSumIsFirst) {
    OneNode job;
    for (int i = 0; i < 4; ++i)
        job.call(12 + i, {0.01, 0, 0, 0.02});
    const model::Model model = job.model();
    const std::vector<Index> ranks = late_ranks(model.nccl);
    ASSERT_EQ(ranks.size(), 2U);
    EXPECT_EQ(model.nccl.instances[ranks[0]].record.rank, 3);
    EXPECT_EQ(model.nccl.instances[ranks[1]].record.rank, 0);
}

TEST(NcclLateRanks, LateSeldomIsNotLate) {
    OneNode job;
    for (int i = 0; i < 31; ++i)
        job.call(12 + 0.5 * i, {0, i < 3 ? 0.1 : 0.0, 0, i < 2 ? 0.1 : 0.0});
    const model::Model model = job.model();
    EXPECT_EQ(of_rank(model, 1).late, 3U);
    EXPECT_TRUE(late_ranks(model.nccl).empty()) << "3 of 31, and twice";
}

TEST(NcclLateRanks, NothingIsComparedWithoutAllRanks) {
    OneNode job(RANKS - 1);
    for (int i = 0; i < 5; ++i)
        job.call(12 + i, {0, 0.3, 0});
    const model::Model model = job.model();
    EXPECT_EQ(of_rank(model, 1).compared, 0U);
    EXPECT_TRUE(late_ranks(model.nccl).empty());
}

} // namespace
} // namespace collwire::nccl
