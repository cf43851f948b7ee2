// SPDX-License-Identifier: Apache-2.0
// Bytes computed from NCCL's operations against those posted in slices.
#include "collwire/post_records.h"
#include "correlate/nccl/nccl_facts.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

#include <algorithm>

namespace collwire::nccl {
namespace {

using namespace collwire::test;

// Four operations on each connection, of 4, 8, 12 and 2 kB, which end at steps 1 to 4. No frame is
// counted, and posts only from 12.8 s to 14.8 s.
struct SlicedRing {
    RingPair ring;

    // `altered_bytes`: the second operation's own fields say that many bytes more than it has.
    explicit SlicedRing(std::uint64_t altered_bytes = 0, RankOptions options = {}) : ring(options) {
        for (NodeBuilder &node : ring.node)
            node.source("rxe_wire", CW_SOURCE_UNAVAILABLE).source("posts");
        ring.all_gather(12, 1000);
        if (altered_bytes == 0)
            ring.all_gather(13, 2000);
        else
            altered(13, 2000, altered_bytes);
        ring.all_gather(14, 3000).all_gather(15, 500);
        for (int i = 0; i < 2; ++i) {
            for (const std::uint64_t connection : {SENDS_AT, RECEIVES_AT})
                for (std::uint64_t steps = 1; steps <= 4; ++steps)
                    ring.rank[i].steps(11.5 + static_cast<double>(steps), connection, steps);
            counted(i, 12.8, CW_POSTS_SLICE);
            counted(i, 14.8, CW_POSTS_PAUSED);
        }
    }
    void altered(double time, std::uint64_t count, std::uint64_t more_bytes) {
        const CallOptions call{.count = count, .buffer = 0x7f0000000000};
        ++ring.launched;
        for (int i = 0; i < 2; ++i)
            ring.rank[i]
                .call(time + 0.001 * i, call)
                .shape(time + 0.0011 * i, count, {call}, ring.ops(i, count * 4 + more_bytes))
                .launch(time + 0.002 + 0.001 * i, count, {call}, {.launched = ring.launched});
    }
    void counted(int i, double time, cw_posts_counted counted) {
        auto record = make_record<cw_post_slice>(CW_KIND_POST_SLICE, seconds(time));
        record.on_ns = 2 * NS;
        record.period_ns = 60 * NS;
        record.counted = counted;
        ring.node[i].add(record);
    }
    SlicedRing &posted(int i, std::uint64_t from, std::uint64_t to, std::uint64_t bytes,
                       std::uint32_t flags = 0) {
        auto record = make_record<cw_post_operations>(CW_KIND_POST_OPERATIONS, seconds(14.8));
        record.begin_ns = seconds(12.8);
        record.connection = SENDS_AT;
        record.from_steps = from;
        record.to_steps = to;
        record.bytes = bytes;
        record.operations = to - from;
        record.tgid = ring.rank[i].options().pid;
        record.flags = flags;
        ring.node[i].add(record);
        return *this;
    }
    model::Model model() { return model_of(ring.captures()); }
};

std::size_t n_findings(const model::Model &model) {
    return static_cast<std::size_t>(
        std::ranges::count(model.nccl.findings, "posts_differ", &Finding::kind));
}

TEST(NcclVerifyPosts, EqualBytesAreVerified) {
    const model::Model model = SlicedRing{}.posted(0, 1, 3, 20000).posted(1, 1, 3, 20000).model();
    const PostVerification &verified = model.nccl.verified;
    EXPECT_EQ(verified.connections_equal, 2U);
    EXPECT_EQ(verified.operations, 4U);
    EXPECT_EQ(verified.verified_bytes, 40000U);
    EXPECT_EQ(verified.derived_bytes, 2 * 26000U);
    EXPECT_EQ(verified.slices, 2U);
    EXPECT_EQ(verified.slices_ns, 4 * NS);
    EXPECT_EQ(verified.period_ns, 60 * NS);
    EXPECT_TRUE(verified.not_compared.empty());
    EXPECT_TRUE(verified.differences.empty());
    EXPECT_EQ(n_findings(model), 0U);
}

TEST(NcclVerifyPosts, OneOtherMessageIsAFinding) {
    const model::Model model =
        SlicedRing{512}.posted(0, 1, 3, 20000).posted(1, 1, 3, 20512).model();
    const PostVerification &verified = model.nccl.verified;
    ASSERT_EQ(verified.differences.size(), 1U);
    EXPECT_EQ(verified.differences[0].posted_bytes, 20000U);
    EXPECT_EQ(verified.differences[0].derived_bytes, 20512U);
    EXPECT_EQ(verified.differences[0].operations, 2U);
    EXPECT_EQ(verified.connections_equal, 1U);
    EXPECT_EQ(verified.verified_bytes, 20512U);
    ASSERT_EQ(n_findings(model), 1U);
    const Finding &finding =
        *std::ranges::find(model.nccl.findings, "posts_differ", &Finding::kind);
    EXPECT_EQ(finding.evidence.at("less_bytes"), 512U);
    EXPECT_EQ(finding.evidence.at("more_bytes"), 0U);
    EXPECT_EQ(finding.hosts, std::vector<std::string>{"node0"});
    EXPECT_NE(finding.what.find("rank 0 to rank 1 channel 0: 20000 B posted"), std::string::npos)
        << finding.what;
}

TEST(NcclVerifyPosts, PausedQueuePairsHaveComputedBytes) {
    SlicedRing sliced;
    // A part of what the queue pair sent.
    sliced.ring.node[0].posts(RING_QPS[0][0], 14.8, CW_POST_WRITE, 2, 10000);
    const model::Model model = sliced.posted(0, 1, 3, 20000).model();
    for (const model::Qp &qp : model.qps) {
        EXPECT_EQ(qp.bytes.rung, model::BytesRung::None);
        EXPECT_FALSE(qp.posted_tx_payload_bytes.has_value());
    }
    EXPECT_EQ(model.total.derived_tx_payload_bytes, 2 * 26000U);
    EXPECT_EQ(model.nccl.totals.by_source[static_cast<std::size_t>(ByteSource::Derived)],
              2 * 26000U);
    EXPECT_EQ(model.nccl.verified.queue_pairs_not_counted, 0U);
}

TEST(NcclVerifyPosts, QueuePairOfBeforeThePauseKeepsItsPosts) {
    SlicedRing sliced;
    constexpr QpOptions other{.qpn = 99, .created = 11, .remote_qpn = 98};
    sliced.ring.node[0].qp(other).posts(other, 12, CW_POST_SEND, 3, 100).destroy(other, 13);
    constexpr QpOptions later{.qpn = 199, .created = 13, .remote_qpn = 198, .tid = 77};
    sliced.ring.node[0].qp(later).posts(later, 14, CW_POST_SEND, 3, 100);
    const model::Model model = sliced.model();
    const auto posted_on = [&](std::uint32_t qpn) {
        const auto found = std::ranges::find_if(
            model.qps, [qpn](const model::Qp &qp) { return qp.key.qpn == qpn; });
        return found == model.qps.end() ? model::Known() : found->posted_tx_payload_bytes;
    };
    EXPECT_EQ(posted_on(99), 300U);
    EXPECT_EQ(posted_on(199), std::nullopt) << "it lived in the pause";
    EXPECT_EQ(model.nccl.verified.queue_pairs_not_counted, 1U);
}

std::string only_reason(SlicedRing &sliced) {
    const model::Model model = sliced.model();
    EXPECT_EQ(model.nccl.verified.connections_equal, 0U);
    EXPECT_EQ(n_findings(model), 0U);
    return model.nccl.verified.not_compared.size() == 1
               ? model.nccl.verified.not_compared.begin()->first
               : "";
}

TEST(NcclVerifyPosts, WhatCannotBeComparedIsCounted) {
    EXPECT_EQ(only_reason(SlicedRing{}.posted(0, 2, 2, 0)), "no_whole_operation");
    EXPECT_EQ(only_reason(SlicedRing{}.posted(0, 1, 3, 1, CW_POST_OPERATIONS_FAULT)), "unreadable");
    EXPECT_EQ(only_reason(SlicedRing{}.posted(0, 1, 7, 1)), "position_unknown")
        << "beyond what was launched";
    EXPECT_EQ(only_reason(SlicedRing{}.posted(0, 17, 18, 1)), "position_unknown");
}

// The operations of another connection are posted on the same queue pair.
TEST(NcclVerifyPosts, SharedQueuePairsAreNotCompared) {
    SlicedRing sliced;
    sliced.ring.rank[0].connection(11.3, SENDS_AT + 0x1000, true, 1, {RING_QPS[0][0].qpn}, 1);
    EXPECT_EQ(only_reason(sliced.posted(0, 1, 3, 20000)), "shared_queue_pairs");
}

// A sample that contradicts the launches: the first operation has no certain place.
TEST(NcclVerifyPosts, LostLaunchesAreNoDifference) {
    SlicedRing sliced;
    sliced.ring.rank[0].steps(12.2, SENDS_AT, 5);
    EXPECT_EQ(only_reason(sliced.posted(0, 1, 3, 20000)), "position_unknown");
}

TEST(NcclVerifyPosts, WithoutSlicesNothingIsVerified) {
    RingPair ring;
    ring.all_gather(12, 1000);
    const model::Model model = model_of(ring.captures());
    EXPECT_EQ(model.nccl.verified.slices, 0U);
    EXPECT_EQ(model.nccl.verified.derived_bytes, 0U);
}

} // namespace
} // namespace collwire::nccl
