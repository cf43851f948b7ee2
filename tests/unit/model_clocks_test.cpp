// SPDX-License-Identifier: Apache-2.0
// Clocks of hosts from recordings: what counts as a constraint, hosts hours apart, contradictions,
// and that no order is claimed inside the error. Both nodes' monotonic clocks show the same.
#include <gtest/gtest.h>

#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/host_clocks.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;
using clocks::Calibration;
using clocks::Order;

struct Measured {
    RingPair ring;

    explicit Measured(double clock_ahead = 0) : ring({}, false, clock_ahead) {
        ring.all_gather(12, 1000).all_gather(13, 2000);
    }
    // Where the receives end, after the time of their operation.
    Measured &progress(double received_after, double completed_after) {
        for (auto &rank : ring.rank)
            for (std::uint64_t i = 0; i < 2; ++i) {
                const double begin = 12.01 + static_cast<double>(i);
                rank.progress(begin, begin + received_after, RECEIVES_AT, i)
                    .progress(begin, begin + completed_after, SENDS_AT, i);
            }
        return *this;
    }
    model::Model model() { return model_of(ring.captures()); }
};

void expect_truth_inside(const model::Model &model, double at) {
    for (model::Index host = 0; host < 2; ++host) {
        const auto shown = model.clocks.on_reference(host, seconds(at));
        ASSERT_TRUE(shown);
        EXPECT_LE(shown->least_ns, static_cast<std::int64_t>(seconds(at)));
        EXPECT_GE(shown->most_ns, static_cast<std::int64_t>(seconds(at)));
    }
}

TEST(ModelClocks, MeasuredOperationsBoundTheClocksOfTheirRanks) {
    const model::Model model = Measured{}.progress(0.02, 0.03).model();
    const std::vector<HostClock> clocks = host_clocks(model);
    ASSERT_EQ(clocks.size(), 2U);
    EXPECT_EQ(clocks[0].calibration, Calibration::Reference);
    ASSERT_EQ(clocks[1].calibration, Calibration::Bounded);
    EXPECT_TRUE(model.clocks.contradictions.empty());
    for (const double at : {11.0, 12.02, 13.1, 19.0})
        expect_truth_inside(model, at);
    // The narrower of both directions of an operation: it starts at 10 ms and completes at 30 ms.
    const auto shown = model.clocks.nodes[1].shown_at(static_cast<std::int64_t>(seconds(12.02)));
    EXPECT_LE(shown.width_ns(), 41'000'000);
}

TEST(ModelClocks, HostsHoursApartAreJoinedAndTheirRealtimeIsLabelled) {
    const model::Model model = Measured{3600}.progress(0.02, 0.03).model();
    for (const model::Qp &qp : model.qps)
        EXPECT_EQ(qp.pairing, model::Pairing::Paired);
    EXPECT_EQ(model.nccl.communicators.size(), 1U);
    EXPECT_EQ(model.nccl.collectives.size(), 2U);
    expect_truth_inside(model, 13);
    const HostClock clock = host_clocks(model).at(1);
    ASSERT_EQ(clock.calibration, Calibration::Bounded);
    ASSERT_FALSE(clock.windows.empty());
    EXPECT_LE(clock.windows.front().ahead.least_ns, 3600'000'000'000);
    EXPECT_GE(clock.windows.front().ahead.most_ns, 3600'000'000'000);
    const CommonClock common(model);
    const auto apart =
        static_cast<std::int64_t>(common.time_ns(1, seconds(12)) - common.time_ns(0, seconds(12)));
    EXPECT_LT(apart < 0 ? -apart : apart, 50'000'000);
}

TEST(ModelClocks, OrderIsClaimedOutsideTheErrorOnly) {
    const model::Model model = Measured{}.progress(0.002, 0.003).model();
    const CommonClock common(model);
    EXPECT_EQ(common.order(0, seconds(12.01), 1, seconds(12.0101)), Order::Unknown);
    EXPECT_EQ(common.order(0, seconds(12.01), 1, seconds(12.2)), Order::Earlier);
    EXPECT_EQ(common.order(1, seconds(12.2), 0, seconds(12.01)), Order::Later);
    EXPECT_EQ(common.order(1, seconds(12.0101), 1, seconds(12.01)), Order::Later); // one clock
}

TEST(ModelClocks, AReceiveThatEndsBeforeItsSendStartsIsAContradiction) {
    Measured job;
    for (std::uint64_t i = 0; i < 2; ++i) {
        const double begin = 12.01 + static_cast<double>(i);
        job.ring.rank[0].progress(begin + 0.3, begin + 0.4, SENDS_AT, i);
        job.ring.rank[0].progress(begin, begin + 0.02, RECEIVES_AT, i);
        job.ring.rank[1].progress(begin, begin + 0.02, SENDS_AT, i);
        job.ring.rank[1].progress(begin, begin + 0.02, RECEIVES_AT, i);
    }
    const model::Model model = job.model();
    ASSERT_FALSE(model.clocks.contradictions.empty());
    EXPECT_GT(model.clocks.contradictions.front().by_ns, 100'000'000);
    EXPECT_EQ(host_clocks(model).at(1).calibration, Calibration::Contradiction);
    EXPECT_TRUE(has_warning(model, "cannot all be true"));
    EXPECT_EQ(CommonClock(model).order(0, seconds(12), 1, seconds(19)), Order::Unknown);
}

TEST(ModelClocks, OneRecordingAloneIsNotCalibrated) {
    Measured job;
    const model::Model model = model_of({job.ring.captures().front()});
    const std::vector<HostClock> clocks = host_clocks(model);
    ASSERT_EQ(clocks.size(), 1U);
    EXPECT_EQ(clocks[0].calibration, Calibration::None);
    EXPECT_FALSE(clocks[0].worst_error_ns.has_value());
    EXPECT_FALSE(CommonClock(model).time(0, seconds(12)).error_ns().has_value());
    EXPECT_NE(CommonClock(model).time(0, seconds(12)).time_ns, 0U);
}

} // namespace
} // namespace collwire::nccl
