// SPDX-License-Identifier: Apache-2.0
// How long ranks waited for the last one to call, and how long the transfer took from then on.
#include <cstdint>
#include <map>
#include <vector>

#include "correlate/nccl/waiting.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::uint64_t MS = 1'000'000;
constexpr std::uint64_t COUNT = 1000;

// AllGathers of two ranks on one node over its NIC: rank 1 calls later, and both end some time
// after that.
struct WaitingRing {
    NodeBuilder node{{.flags = NCCL_NODE_FLAGS}};
    NcclBuilder rank[2] = {NcclBuilder(node, RingPair::of_rank({}, 0)),
                           NcclBuilder(node, RingPair::of_rank({}, 1))};
    std::uint64_t launched = 0;

    WaitingRing() {
        node.usual(1);
        for (int i = 0; i < 2; ++i) {
            node.qp(RING_QPS[i][0]).qp(RING_QPS[i][1]);
            rank[i].comm();
            rank[i].connection(11.2, SENDS_AT, true, 1 - i, {RING_QPS[i][0].qpn});
            rank[i].connection(11.2, RECEIVES_AT, false, 1 - i, {RING_QPS[i][1].qpn});
        }
    }
    WaitingRing &all_gather(double time, double later, double transfer, bool is_measured = true) {
        const CallOptions call{.count = COUNT};
        ++launched;
        for (int i = 0; i < 2; ++i) {
            const double called = time + later * i;
            rank[i].call(called, call);
            rank[i].shape(
                called, COUNT, {call},
                {rank[i].ring({.connection = RECEIVES_AT, .bytes = COUNT * 4, .peer = 1 - i}),
                 rank[i].ring({.connection = SENDS_AT, .bytes = COUNT * 4, .peer = 1 - i})});
            rank[i].launch(called, COUNT, {call}, {.launched = launched});
            for (const std::uint64_t connection : {SENDS_AT, RECEIVES_AT})
                if (is_measured)
                    rank[i].progress(called + 0.0001, time + later + transfer, connection,
                                     launched - 1);
        }
        return *this;
    }
    std::vector<WaitingTimes> waiting() {
        node.clock(40).end();
        return find_waiting(model_of({node.bytes()}));
    }
};

TEST(NcclWaiting, IsToldFromTransfer) {
    WaitingRing job;
    job.all_gather(12, 0.3, 0.1).all_gather(13, 0.4, 0.1).all_gather(14, 0.001, 0.3);
    const std::vector<WaitingTimes> all = job.waiting();
    ASSERT_EQ(all.size(), 1U);
    const WaitingTimes &of = all.front();
    EXPECT_EQ(of.size_bytes, COUNT * 4);
    EXPECT_EQ(of.for_rank, 2U);
    EXPECT_EQ(of.for_the_rest, 1U);
    EXPECT_EQ(of.unclear, 0U);
    EXPECT_NEAR(static_cast<double>(of.sum_waited_ns), 700.0 * MS, 10);
    EXPECT_EQ(of.last_ranks, (std::map<std::int32_t, std::uint64_t>{{1, 2}}));
    EXPECT_EQ(of.spread.n, 3U);
    EXPECT_NEAR(static_cast<double>(of.spread.least_p50_ns), 300.0 * MS, 10);
    EXPECT_EQ(of.spread.most_p50_ns, of.spread.least_p50_ns) << "on one clock";
    EXPECT_NEAR(static_cast<double>(of.spread.most_p95_ns), 400.0 * MS, 10);
    EXPECT_EQ(of.transfer.n, 3U);
    EXPECT_NEAR(static_cast<double>(of.transfer.most_p50_ns), 100.0 * MS, 10);
    EXPECT_NEAR(static_cast<double>(of.transfer.most_p95_ns), 300.0 * MS, 10);
}

TEST(NcclWaiting, IsUnclearWithoutAnEnd) {
    WaitingRing job;
    job.all_gather(12, 0.3, 0.1, false);
    const std::vector<WaitingTimes> all = job.waiting();
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all.front().unclear, 1U);
    EXPECT_EQ(all.front().for_rank, 0U);
    EXPECT_EQ(all.front().spread.n, 1U);
    EXPECT_EQ(all.front().transfer.n, 0U);
}

} // namespace
} // namespace collwire::nccl
