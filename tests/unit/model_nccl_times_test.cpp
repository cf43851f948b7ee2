// SPDX-License-Identifier: Apache-2.0
// When operations ended, over all connections of all ranks.
#include "collwire/nccl_comm_records.h"
#include "correlate/nccl/parts.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::uint64_t MS = 1'000'000;

// Two operations; `after` and `before` of the second are in seconds of the builder's clock.
struct Timed {
    RingPair ring;

    Timed() { ring.all_gather(12, 1000).all_gather(13, 2000); }
    Timed &measured(int rank, double end_of_first, double end_of_second) {
        for (const std::uint64_t connection : {SENDS_AT, RECEIVES_AT})
            ring.rank[rank]
                .progress(12.01, end_of_first, connection, 0)
                .progress(13.01, end_of_second, connection, 1);
        return *this;
    }
    Timed &sampled(int rank) {
        for (const std::uint64_t connection : {SENDS_AT, RECEIVES_AT})
            ring.rank[rank].steps(12.5, connection, 1).steps(13.5, connection, 2);
        return *this;
    }
    model::Model model() { return model_of(ring.captures()); }
};

std::uint64_t realtime(const model::Model &model, double time) {
    return model.hosts[0].realtime_ns(seconds(time));
}

TEST(NcclTimes, WithoutSamplesTheEndIsUnknown) {
    const model::Model model = Timed{}.model();
    ASSERT_EQ(model.nccl.collectives.size(), 2U);
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_EQ(operation.end_known, EndKnown::No);
        EXPECT_EQ(operation.end_after_realtime_ns, 0U);
        EXPECT_EQ(operation.end_before_realtime_ns, 0U);
        EXPECT_NE(operation.begin_realtime_ns, 0U);
        EXPECT_EQ(operation.most_duration_ns, 0U);
    }
}

TEST(NcclTimes, EndIsThatOfTheLastRank) {
    const model::Model model = Timed{}.measured(0, 12.1, 13.1).measured(1, 12.2, 13.05).model();
    ASSERT_EQ(model.nccl.collectives.size(), 2U);
    const Operation &first = model.nccl.collectives[0];
    EXPECT_EQ(first.end_known, EndKnown::Measured);
    EXPECT_EQ(first.begin_realtime_ns, realtime(model, 12.002));
    EXPECT_EQ(first.end_before_realtime_ns, realtime(model, 12.2));
    EXPECT_EQ(first.end_after_realtime_ns, first.end_before_realtime_ns);
    EXPECT_NEAR(static_cast<double>(first.most_duration_ns), 197.0 * MS, MS / 100.0)
        << "rank 1 launched it at 12.003";
    EXPECT_EQ(first.least_duration_ns, first.most_duration_ns);
    EXPECT_EQ(model.nccl.collectives[1].end_before_realtime_ns, realtime(model, 13.1));
}

TEST(NcclTimes, BetweenTwoSamples) {
    const model::Model model = Timed{}.sampled(0).sampled(1).model();
    const Operation &second = model.nccl.collectives[1];
    EXPECT_EQ(second.end_known, EndKnown::Sampled);
    EXPECT_EQ(second.end_after_realtime_ns, realtime(model, 13.003)) << "its last launch";
    EXPECT_EQ(second.end_before_realtime_ns, realtime(model, 13.5));
    EXPECT_LT(second.least_duration_ns, second.most_duration_ns);
}

TEST(NcclTimes, OneRankMeasuredTheOtherSampled) {
    const model::Model model = Timed{}.measured(0, 12.1, 13.6).sampled(1).model();
    EXPECT_EQ(model.nccl.collectives[0].end_known, EndKnown::Sampled);
    EXPECT_EQ(model.nccl.collectives[0].end_after_realtime_ns, realtime(model, 12.1));
    EXPECT_EQ(model.nccl.collectives[0].end_before_realtime_ns, realtime(model, 12.5));
    EXPECT_EQ(model.nccl.collectives[1].end_known, EndKnown::Measured)
        << "the last one was measured";
    EXPECT_EQ(model.nccl.collectives[1].end_before_realtime_ns, realtime(model, 13.6));
}

TEST(NcclTimes, RankWithoutSamplesMakesTheEndUnknown) {
    const model::Model model = Timed{}.measured(0, 12.1, 13.1).model();
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_EQ(operation.end_known, EndKnown::No);
        EXPECT_EQ(operation.end_before_realtime_ns, 0U);
        EXPECT_NE(operation.end_after_realtime_ns, 0U) << "of the other it is";
    }
}

TEST(NcclTimes, PartByPart) {
    const model::Model model =
        Timed{}.measured(0, 12.1, 13.1).measured(1, 12.2, 13.05).sampled(0).model();
    const Parts parts(model);
    const auto of_first = parts.of(model.nccl.collectives[0]);
    ASSERT_EQ(of_first.size(), 4U);
    for (const Part &part : of_first) {
        const bool is_rank_0 = model.nccl.instances[part.instance].record.rank == 0;
        EXPECT_EQ(part.time.known, EndKnown::Measured);
        EXPECT_EQ(part.time.begin_ns, seconds(12.01));
        EXPECT_EQ(part.time.end_ns, seconds(is_rank_0 ? 12.1 : 12.2));
        EXPECT_EQ(part.time.before_ns, is_rank_0 ? seconds(12.5) : 0U);
    }
}

// Attached late: by the sizes alone one more or one less would do as well.
TEST(NcclTimes, LateConnectionIsNotGuessed) {
    for (const bool has_pauses : {false, true}) {
        RingPair ring({.flags = CW_NCCL_COMM_LAUNCHED, .launched = 7});
        ring.all_gather(12, 1000).all_gather(13, 1000);
        for (int i = 0; i < 2; ++i)
            for (const std::uint64_t connection : {SENDS_AT, RECEIVES_AT}) {
                ring.rank[i].progress(12.01, 12.1, connection, 7);
                ring.rank[i].progress(13.01, 13.1, connection, 8);
                if (has_pauses)
                    ring.rank[i].steps(11.9, connection, 7).steps(13.5, connection, 9);
            }
        const model::Model model = model_of(ring.captures());
        ASSERT_EQ(model.nccl.collectives.size(), 2U);
        for (const Operation &operation : model.nccl.collectives)
            EXPECT_EQ(operation.end_known, has_pauses ? EndKnown::Measured : EndKnown::No);
    }
}

TEST(NcclTimes, ConnectionsOfTheParentAreAsOldAsIt) {
    RingPair ring;
    ring.all_gather(12, 1000);
    // A child that shares the connections: the steps go on.
    const CallOptions call{.count = 500, .buffer = 0x7e0000000000};
    for (int i = 0; i < 2; ++i) {
        RankOptions child = ring.rank[i].options();
        child.comm = 0xc41d;
        child.hash = 0x99;
        child.parent = ring.rank[i].options().comm;
        child.created = 12.5;
        child.flags |= CW_NCCL_COMM_SHARED;
        child.version = 0;
        NcclBuilder of(ring.node[i], child);
        of.comm();
        of.connection(12.9, SENDS_AT, true, 1 - i, {RING_QPS[i][0].qpn});
        of.connection(12.9, RECEIVES_AT, false, 1 - i, {RING_QPS[i][1].qpn});
        of.call(13, call).shape(13, 77, {call}, ring.ops(i, 2000)).launch(13.001, 77, {call});
        for (const std::uint64_t connection : {SENDS_AT, RECEIVES_AT})
            ring.rank[i].steps(12.4, connection, 1).steps(13.5, connection, 2);
    }
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 2U);
    for (const Operation &operation : model.nccl.collectives)
        EXPECT_EQ(operation.end_known, EndKnown::Sampled);
}

} // namespace
} // namespace collwire::nccl
