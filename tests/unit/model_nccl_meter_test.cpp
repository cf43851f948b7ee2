// SPDX-License-Identifier: Apache-2.0
// What one connection carried, against what was launched on it.
#include "collwire/loss_records.h"
#include "correlate/nccl/link_meter.h"
#include "tests/support/model_of.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

struct Meter {
    Link link;
    std::vector<LinkSample> samples;
    std::vector<std::tuple<double, std::uint64_t, bool>> ops; // when, bytes, whether that is known

    void run(bool is_late = false, bool is_open = false, std::uint32_t eager_until = 0) {
        link.source = ByteSource::Wire;
        for (std::size_t i = 0; i < samples.size(); ++i)
            samples[i].is_quiet = i + 1 == samples.size() ||
                                  samples[i + 1].time_ns >= samples[i].time_ns + seconds(1.5);
        LinkMeter meter(link, samples, is_late, eager_until);
        std::uint32_t order = 0;
        for (const auto &[time, bytes, is_known] : ops)
            meter.launch(op(bytes, is_known), seconds(time), order++);
        meter.finish(order, is_open);
    }
    static ShapeOp op(std::uint64_t bytes, bool is_known = true) {
        ShapeOp op;
        op.payload_bytes = bytes;
        op.is_known = true;
        op.is_bound = !is_known;
        return op;
    }
    [[nodiscard]] OpShare share(std::uint32_t order) const {
        const auto &[time, bytes, is_known] = ops[order];
        return share_of(link, op(bytes, is_known), order, 0);
    }
    void sample(double time, std::uint64_t bytes) { samples.push_back({seconds(time), bytes}); }
};

TEST(LinkMeter, ExpectedBytesAreChecked) {
    Meter meter;
    meter.ops = {{1, 100, true}, {1.1, 200, true}, {5, 300, true}};
    meter.sample(2, 300);
    meter.sample(6, 600);
    meter.run();
    ASSERT_EQ(meter.link.intervals.size(), 2U);
    for (const Interval &interval : meter.link.intervals)
        EXPECT_EQ(interval.kind, IntervalKind::Checked);
    for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(meter.share(i).payload_bytes, std::get<1>(meter.ops[i]));
        EXPECT_EQ(meter.share(i).source, ByteSource::Wire);
        EXPECT_EQ(meter.share(i).rung, Rung::Exact);
    }
}

// A probe that --budget took off: what was launched before is computed where its bytes are missing.
TEST(LinkMeter, NothingIsComparedAfterProbesWereTakenOff) {
    Meter meter;
    meter.link.measured_until_ns = seconds(4);
    meter.ops = {{1, 100, true}, {3.9, 200, true}, {5, 300, true}};
    meter.sample(2, 100);
    meter.sample(3.95, 150);
    meter.run();
    ASSERT_EQ(meter.link.intervals.size(), 2U);
    EXPECT_EQ(meter.link.intervals[0].kind, IntervalKind::Checked);
    EXPECT_EQ(meter.link.intervals[1].kind, IntervalKind::Derived);
    for (const std::uint32_t order : {1U, 2U}) {
        EXPECT_EQ(meter.share(order).payload_bytes, std::get<1>(meter.ops[order]));
        EXPECT_EQ(meter.share(order).source, ByteSource::Derived);
    }
}

// Read 30 ms after its look began, in which an operation was launched and carried.
TEST(ByteSeries, SampleIsAtLeastAsNewAsItsLastByte) {
    ByteSeries series;
    series.add({seconds(1), seconds(1.03), 100, 170});
    series.add({seconds(2), seconds(1.5), 300, 400});
    ASSERT_EQ(series.size(), 2U);
    EXPECT_EQ(series.at(0).time_ns, seconds(1.03));
    EXPECT_EQ(series.at(1).time_ns, seconds(2));
}

// The last frame of the first operation has no payload, and came after a sample.
TEST(LinkMeter, EmptyFramesBelongToTheOperationBefore) {
    Meter meter;
    meter.ops = {{1, 100, true}, {5, 300, true}};
    meter.samples = {{seconds(2), 100, 170},
                     {seconds(3), 100, 248},
                     {seconds(6), 400, 618},
                     {seconds(7), 400, 700}};
    meter.link.measured_bytes = 400;
    meter.link.wire_bytes = 700;
    meter.run();
    EXPECT_EQ(meter.share(0).wire_bytes, 248U);
    EXPECT_EQ(meter.share(1).wire_bytes, 452U);
}

// Of a link that was there before the recording they are of something older.
TEST(LinkMeter, EmptyFramesBeforeTheFirstOperationOfALateLinkAreExcluded) {
    Meter meter;
    meter.ops = {{3, 100, true}};
    meter.samples = {{seconds(2), 0, 78}, {seconds(4), 100, 248}};
    meter.link.measured_bytes = 100;
    meter.link.wire_bytes = 248;
    meter.run(true);
    EXPECT_EQ(meter.share(0).wire_bytes, 170U);
}

// A sample in the middle of an operation is none at which all was done.
TEST(LinkMeter, UnderLoadTheEndDecides) {
    Meter meter;
    for (int i = 0; i < 50; ++i)
        meter.ops.emplace_back(1 + 0.1 * i, 1000, true);
    for (int i = 2; i < 8; ++i)
        meter.sample(i, static_cast<std::uint64_t>(i) * 7777);
    meter.samples.back().payload_bytes = 50'000;
    meter.run();
    ASSERT_EQ(meter.link.intervals.size(), 1U);
    EXPECT_EQ(meter.link.intervals[0].kind, IntervalKind::Checked);
}

TEST(LinkMeter, OneOperationAloneIsMeasured) {
    Meter meter;
    meter.ops = {{1, 100, true}, {5, 999, false}, {10, 100, true}};
    meter.sample(2, 100);
    meter.sample(6, 350);
    meter.sample(11, 450);
    meter.run();
    ASSERT_EQ(meter.link.intervals.size(), 3U);
    EXPECT_EQ(meter.link.intervals[1].kind, IntervalKind::Single);
    EXPECT_EQ(meter.share(1).payload_bytes, 250U);
    EXPECT_EQ(meter.share(1).rung, Rung::Exact);
    EXPECT_EQ(meter.share(2).payload_bytes, 100U);
}

// The mistake stays where it is.
TEST(LinkMeter, MoreBytesThanExpectedAreAnExcess) {
    Meter meter;
    meter.ops = {{1, 100, true}, {1.1, 100, true}, {5, 100, true}, {5.1, 100, true}};
    meter.sample(2, 230);
    meter.sample(6, 430);
    meter.run();
    ASSERT_EQ(meter.link.intervals.size(), 2U);
    EXPECT_EQ(meter.link.intervals[0].kind, IntervalKind::Excess);
    EXPECT_EQ(meter.link.intervals[0].measured_bytes, 230U);
    EXPECT_EQ(meter.link.intervals[1].kind, IntervalKind::Checked);
    EXPECT_EQ(meter.share(0).payload_bytes, 100U);
    EXPECT_EQ(meter.share(0).source, ByteSource::Derived) << "not what was measured";
    EXPECT_EQ(meter.share(3).source, ByteSource::Wire);
}

TEST(LinkMeter, FewerBytesThanExpectedAreAShortage) {
    Meter meter;
    meter.ops = {{1, 100, true}, {1.1, 300, true}, {5, 100, true}, {5.1, 100, true}};
    meter.sample(2, 200);
    meter.sample(6, 400);
    meter.run();
    ASSERT_EQ(meter.link.intervals.size(), 1U) << "bytes may still come";
    EXPECT_EQ(meter.link.intervals[0].kind, IntervalKind::Shortage);
    meter.run(false, false, UINT32_MAX);
    ASSERT_EQ(meter.link.intervals.size(), 2U);
    EXPECT_EQ(meter.link.intervals[0].kind, IntervalKind::Shortage);
    EXPECT_EQ(meter.link.intervals[1].kind, IntervalKind::Checked);
    EXPECT_EQ(meter.share(0).payload_bytes, 50U);
    EXPECT_EQ(meter.share(1).payload_bytes, 150U);
    EXPECT_EQ(meter.share(1).rung, Rung::Inferred);
    EXPECT_EQ(meter.share(2).rung, Rung::Exact);
}

// One that waits for another rank is not done, however long it waits.
TEST(LinkMeter, PauseIsNotTheEnd) {
    Meter meter;
    meter.ops = {{1, 100, true}, {4, 100, true}};
    meter.sample(2, 30);
    meter.sample(9, 200);
    meter.run();
    ASSERT_EQ(meter.link.intervals.size(), 1U);
    EXPECT_EQ(meter.link.intervals[0].kind, IntervalKind::Checked);
}

// Bytes of a single operation that is known may still come, whatever is launched after it.
TEST(LinkMeter, PauseOfASingleOperationIsNotTheEnd) {
    Meter meter;
    meter.ops = {{1, 100, true}, {4, 100, true}};
    meter.sample(2, 30);
    meter.run(false, true, UINT32_MAX);
    EXPECT_EQ(meter.link.intervals[0].kind, IntervalKind::Shortage);
    EXPECT_EQ(meter.share(0).rung, Rung::Inferred);
    meter.run(false, true, 0);
    ASSERT_EQ(meter.link.intervals.size(), 1U);
    EXPECT_EQ(meter.link.intervals[0].kind, IntervalKind::InFlight);
}

TEST(LinkMeter, BytesWithoutALaunchBelongToNoOperation) {
    Meter meter;
    meter.ops = {{5, 100, true}};
    meter.sample(2, 40); // in flight when the recorder came
    meter.sample(6, 140);
    meter.run(true);
    ASSERT_EQ(meter.link.intervals.size(), 2U);
    EXPECT_EQ(meter.link.intervals[0].kind, IntervalKind::Excess);
    EXPECT_EQ(meter.link.intervals[0].n_ops, 0U);
    EXPECT_EQ(meter.link.intervals[1].kind, IntervalKind::Checked);
    EXPECT_EQ(meter.share(0).payload_bytes, 100U);
}

// Of a link that was there before, the bytes may be of others until it once was quiet.
TEST(LinkMeter, SingleOperationOfALateLinkDoesNotGetAllBytes) {
    Meter meter;
    meter.ops = {{1.5, 100, false}, {10, 100, false}};
    meter.sample(1, 40);
    meter.sample(1.9, 200);
    meter.sample(9, 250);
    meter.sample(11, 330);
    meter.run(true);
    EXPECT_EQ(meter.share(0).rung, Rung::Inferred);
    EXPECT_EQ(meter.share(1).rung, Rung::Exact);
    EXPECT_EQ(meter.share(1).payload_bytes, 80U);
    meter.run(false);
    EXPECT_EQ(meter.share(0).rung, Rung::Exact);
}

// What is known of an operation is not changed by bytes that no launch has.
TEST(LinkMeter, SingleOperationDoesNotGetExcessBytes) {
    for (const bool is_late : {false, true}) {
        Meter meter;
        meter.ops = {{1, 100, true}};
        meter.sample(2, 140);
        meter.run(is_late);
        EXPECT_EQ(meter.link.intervals[0].kind, IntervalKind::Excess);
        EXPECT_EQ(meter.link.intervals[0].is_first, is_late);
        EXPECT_EQ(meter.share(0).payload_bytes, 100U);
    }
}

TEST(LinkMeter, RestGoesToUnknownOperations) {
    Meter meter;
    meter.ops = {{1, 100, true}, {1.1, 300, false}, {1.2, 600, false}};
    meter.sample(2, 400);
    meter.run();
    ASSERT_EQ(meter.link.intervals.size(), 1U);
    EXPECT_EQ(meter.link.intervals[0].kind, IntervalKind::Unknown);
    EXPECT_EQ(meter.share(0).payload_bytes, 100U);
    EXPECT_EQ(meter.share(1).payload_bytes, 100U) << "300 of the 900 that they can be at most";
    EXPECT_EQ(meter.share(2).payload_bytes, 200U);
    EXPECT_EQ(meter.share(2).rung, Rung::Inferred);
}

TEST(LinkMeter, WithoutAMeasurementBytesAreDerived) {
    Meter meter;
    meter.ops = {{1, 100, true}, {1.1, 300, false}};
    meter.link.source = ByteSource::None;
    LinkMeter none(meter.link, meter.samples, false);
    none.launch(Meter::op(100), seconds(1), 0);
    none.launch(Meter::op(300, false), seconds(1), 1);
    none.finish(2, false);
    EXPECT_EQ(meter.share(0).payload_bytes, 100U);
    EXPECT_EQ(meter.share(0).source, ByteSource::Derived);
    EXPECT_EQ(meter.share(0).rung, Rung::Exact);
    EXPECT_FALSE(meter.share(1).is_known) << "a bound is no number";
}

// The last counters of a socket that is gone were not read: what was launched is not doubted for
// it.
TEST(LinkMeter, MissingLastCountRemovesNoBytes) {
    Meter meter;
    meter.link.is_cut_short = true;
    meter.ops = {{1, 100, true}, {5, 300, true}, {5.1, 200, true}};
    meter.sample(2, 100);
    meter.sample(5.2, 200);
    meter.run();
    for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(meter.share(i).payload_bytes, std::get<1>(meter.ops[i]));
        EXPECT_EQ(meter.share(i).rung, Rung::Exact);
    }
    EXPECT_EQ(meter.share(0).source, ByteSource::Wire);
    EXPECT_EQ(meter.share(2).source, ByteSource::Derived);
}

TEST(LinkMeter, MissingLastCountIsNotAnOperationsBytes) {
    Meter meter;
    meter.link.is_cut_short = true;
    meter.ops = {{1, 300, false}};
    meter.sample(2, 100);
    meter.run();
    EXPECT_EQ(meter.share(0).rung, Rung::Inferred);
}

TEST(ByteSeries, ThinningOutLosesNoBytes) {
    ByteSeries series;
    for (std::uint64_t i = 1; i <= 100'000; ++i) {
        for (int read = 0; read < 2; ++read)
            series.add({.time_ns = i * 1000, .payload_bytes = i * 10, .wire_bytes = i * 11});
    }
    EXPECT_LE(series.size(), ByteSeries::MAX_SAMPLES);
    EXPECT_GE(series.size(), ByteSeries::MAX_SAMPLES / 2);
    EXPECT_EQ(series.at(series.size() - 1).payload_bytes, 1'000'000U);
    for (std::size_t i = 0; i + 1 < series.size(); ++i)
        ASSERT_EQ(series.at(i).changed_ns, series.at(i).time_ns + 1000) << "no pause";
    EXPECT_EQ(series.at(series.size() - 1).changed_ns, 0U);
    series.set_baseline({.payload_bytes = 1000});
    EXPECT_EQ(series.at(series.size() - 1).payload_bytes, 999'000U);
}

// Of a launch that was not recorded whole it is not known on which connections it sent.
TEST(LinkMeter, IncompleteLaunchMakesLaterBytesInferred) {
    for (const std::uint32_t cut : {0U, 1U, 2U}) {
        SCOPED_TRACE(cut);
        Meter single;
        single.ops = {{1, 100, true}, {5, 500, false}};
        single.sample(2, 100);
        single.sample(6, 500);
        Meter in_flight;
        in_flight.ops = {{1, 100, true}, {5, 500, true}};
        in_flight.sample(2, 100);
        in_flight.sample(6, 300);
        single.run();
        in_flight.run(false, true);
        ASSERT_EQ(single.link.intervals.back().kind, IntervalKind::Single);
        ASSERT_EQ(in_flight.link.intervals.back().kind, IntervalKind::InFlight);
        for (Meter *meter : {&single, &in_flight}) {
            note_cut_launches(meter->link, {cut});
            EXPECT_EQ(meter->share(0).rung, Rung::Exact) << "what was expected was measured";
            EXPECT_EQ(meter->share(1).rung, cut == 2 ? Rung::Exact : Rung::Inferred)
                << "bytes that are the same by chance prove nothing";
        }
    }
}

// The first of its bytes are of no operation, and the others may come later.
TEST(LinkMeter, BytesOfAnIncompleteLaunchMayComeInTwoParts) {
    Meter meter;
    meter.ops = {{1, 100, true}, {5, 500, false}, {9, 100, true}};
    meter.sample(2, 100);
    meter.sample(4, 400);
    meter.sample(6, 1200);
    meter.sample(10, 1300);
    meter.run();
    ASSERT_EQ(meter.link.intervals.size(), 4U);
    EXPECT_EQ(meter.link.intervals[1].kind, IntervalKind::Excess);
    ASSERT_EQ(meter.link.intervals[2].kind, IntervalKind::Single);
    note_cut_launches(meter.link, {1});
    EXPECT_EQ(meter.share(1).rung, Rung::Inferred);
    EXPECT_EQ(meter.share(2).rung, Rung::Exact);
}

TEST(Session, KnowsHowLongACounterDidNotChange) {
    model::Session session;
    const auto unchanged = [&](double from, double until) {
        return session.unchanged_ns(seconds(from), seconds(until));
    };
    EXPECT_EQ(unchanged(10, 90), 0U) << "of an interval that is not known";
    session.sample_interval_ns = NS;
    EXPECT_EQ(unchanged(10, 11), 0U);
    EXPECT_EQ(unchanged(10, 12), NS / 2);
    EXPECT_EQ(unchanged(12, 10), 0U);
    session.sample_interval_ns = 2 * NS;
    EXPECT_EQ(unchanged(10, 12), 0U);
    EXPECT_EQ(unchanged(10, 14), NS);
    session.sample_gaps = {{seconds(10), seconds(14)}, {seconds(20), seconds(29)}};
    EXPECT_EQ(unchanged(10, 14), 0U);
    EXPECT_EQ(unchanged(14, 20), 3 * NS);
    EXPECT_EQ(unchanged(12, 21), 3 * NS) << "less 2 and 1";
    session.loss[{CW_LOSS_RECORD_WRITE, 0}] = 1;
    EXPECT_EQ(unchanged(14, 20), 0U);
}

TEST(Session, KnowsWhenACounterWasReadLast) {
    model::Session session;
    const auto last = [&](double from, double until) {
        return session.read_last_ns(seconds(from), seconds(until));
    };
    EXPECT_EQ(last(10, 90), seconds(10)) << "by an interval that is not known";
    session.sample_interval_ns = 2 * NS;
    EXPECT_EQ(last(10, 12), seconds(10));
    EXPECT_EQ(last(10, 90), seconds(87));
    session.sample_gaps = {{seconds(12), seconds(20)}, {seconds(82), seconds(86)}};
    EXPECT_EQ(last(10, 90), seconds(87)) << "after the gaps";
    session.sample_gaps.push_back({seconds(86), seconds(90)});
    EXPECT_EQ(last(10, 90), seconds(86)) << "between two gaps";
    EXPECT_EQ(last(87, 90), seconds(87));
    EXPECT_EQ(last(10, 84), seconds(81));
    session.loss[{CW_LOSS_RECORD_WRITE, 0}] = 1;
    EXPECT_EQ(last(10, 90), seconds(10));
}

} // namespace
} // namespace collwire::nccl
