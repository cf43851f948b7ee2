// SPDX-License-Identifier: Apache-2.0
// Operations of one connection, and what was seen of it, in milliseconds.
#include <vector>

#include <gtest/gtest.h>

#include "correlate/nccl/connection_times.h"

namespace collwire::nccl {
namespace {

constexpr std::uint64_t MS = 1'000'000;
constexpr Birth MADE{1 * MS, true};
constexpr Birth MET{1 * MS, false};

TimedOp op(std::uint64_t launch_ms, std::uint32_t nsteps = 4, std::uint32_t chunk_steps = 1) {
    return {launch_ms * MS, nsteps, chunk_steps};
}
enum State { UNKNOWN, IDLE, BUSY };
StepSample sample(std::uint64_t ms, std::uint64_t steps, State state,
                  std::uint64_t unchanged_ms = 0) {
    return {ms * MS, ms * MS + 1000, unchanged_ms * MS, steps, state == IDLE, state == BUSY};
}
ProgressEvent begin(std::uint64_t ms, std::uint32_t nsteps = 4, std::uint64_t group = 7) {
    return {ms * MS, group, 0, nsteps, false};
}
ProgressEvent end(std::uint64_t ms, std::uint64_t base, std::uint32_t nsteps = 4,
                  std::uint64_t group = 7) {
    return {ms * MS, group, base, nsteps, true};
}

std::vector<OpTime> times_of(const std::vector<Birth> &births, const std::vector<TimedOp> &ops,
                             const std::vector<StepSample> &samples,
                             const std::vector<ProgressEvent> &events = {}) {
    ConnectionTimes times{births, samples, events};
    for (const TimedOp &each : ops)
        times.learn(each);
    times.learned();
    std::vector<OpTime> all;
    for (const TimedOp &each : ops)
        all.push_back(times.next(each));
    return all;
}

void expect_between(const OpTime &time, std::uint64_t after_ms, std::uint64_t before_ms) {
    EXPECT_EQ(time.known, EndKnown::Sampled);
    EXPECT_EQ(time.after_ns, after_ms * MS);
    EXPECT_EQ(time.before_ns, before_ms * MS + 1000);
    EXPECT_EQ(time.end_ns, 0U);
}
void expect_nothing(const OpTime &time) {
    EXPECT_EQ(time.known, EndKnown::No);
    EXPECT_EQ(time.before_ns, 0U);
    EXPECT_EQ(time.begin_ns, 0U);
    EXPECT_EQ(time.end_ns, 0U);
}

TEST(ConnectionTimes, MeasuredFromTheFirstOn) {
    const auto times =
        times_of({MADE}, {op(10), op(20), op(21, 2, 4)}, {},
                 {begin(11), end(15, 0), begin(21), begin(22, 2, 8), end(30, 4), end(40, 8, 2, 8)});
    for (const OpTime &time : times)
        EXPECT_EQ(time.known, EndKnown::Measured);
    EXPECT_EQ(times[0].begin_ns, 11 * MS);
    EXPECT_EQ(times[0].end_ns, 15 * MS);
    EXPECT_EQ(times[1].begin_ns, 21 * MS);
    EXPECT_EQ(times[1].end_ns, 30 * MS);
    EXPECT_EQ(times[2].begin_ns, 30 * MS) << "it was taken up at 22 and had to wait";
    EXPECT_EQ(times[2].end_ns, 40 * MS);
}

TEST(ConnectionTimes, AnOperationBeginsAtAMultipleOfItsChunk) {
    const auto times = times_of({MADE}, {op(10, 1), op(20, 4, 4)}, {},
                                {begin(11, 1), end(12, 0, 1), begin(21), end(22, 4)});
    EXPECT_EQ(times[1].known, EndKnown::Measured);
    const auto without = times_of({MADE}, {op(10, 1), op(20, 4, 1)}, {},
                                  {begin(11, 1), end(12, 0, 1), begin(21), end(22, 4)});
    expect_nothing(without[1]);
}

TEST(ConnectionTimes, AnEndThatIsOfAnotherSizeIsOfNoOperation) {
    const auto times = times_of({MADE}, {op(10), op(20)}, {}, {end(15, 0), end(25, 4, 5)});
    EXPECT_EQ(times[0].known, EndKnown::Measured);
    EXPECT_EQ(times[0].begin_ns, 0U) << "its begin was not seen";
    expect_nothing(times[1]);
    expect_nothing(times_of({MADE}, {op(10)}, {}, {end(15, 1, 3)})[0]);
    const auto other = times_of({MADE}, {op(10)}, {}, {begin(11, 5), end(15, 0)});
    EXPECT_EQ(other[0].end_ns, 15 * MS);
    EXPECT_EQ(other[0].begin_ns, 0U) << "that was the begin of another one";
}

TEST(ConnectionTimes, ALostEndIsBoundedByTheNext) {
    const auto times =
        times_of({MADE}, {op(10), op(20)}, {}, {begin(11), begin(21, 4, 8), end(25, 4, 4, 8)});
    EXPECT_EQ(times[0].known, EndKnown::Bounded);
    EXPECT_EQ(times[0].after_ns, 10 * MS);
    EXPECT_EQ(times[0].before_ns, 25 * MS);
    EXPECT_EQ(times[1].known, EndKnown::Measured);
}

TEST(ConnectionTimes, SampledBetweenTwoLooks) {
    const auto times = times_of({MADE}, {op(10), op(1010), op(1020)},
                                {sample(5, 0, IDLE), sample(1000, 4, IDLE, 5),
                                 sample(2000, 8, BUSY, 1000), sample(3000, 12, IDLE, 2900)});
    expect_between(times[0], 10, 1000);
    expect_between(times[1], 2900, 3000);
    expect_between(times[2], 2900, 3000);
}

// At 2000 the second has begun, so the first is done; of the second it is not known.
TEST(ConnectionTimes, WhatHasBegunIsNotDone) {
    const auto times = times_of(
        {MADE}, {op(10), op(20)},
        {sample(1000, 4, BUSY), sample(2000, 8, UNKNOWN, 1900), sample(3000, 8, IDLE, 2900)});
    expect_between(times[0], 1900, 2000);
    expect_between(times[1], 1900, 3000);
}

TEST(ConnectionTimes, UnderWayAtTheLastLook) {
    const auto times = times_of({MADE}, {op(10)}, {sample(1000, 4, BUSY)});
    expect_nothing(times[0]);
    EXPECT_EQ(times[0].after_ns, 1000 * MS) << "it had not ended then";
}

TEST(ConnectionTimes, NoSampleIsOfBeforeTheLaunch) {
    const auto times =
        times_of({MADE}, {op(10), op(500)}, {sample(100, 4, IDLE), sample(1000, 8, IDLE, 450)});
    expect_between(times[0], 10, 100);
    expect_between(times[1], 500, 1000);
    // While the connection is looked at.
    const TimedOp in_between{100 * MS + 500, 4, 1};
    const auto during =
        times_of({MADE}, {in_between}, {sample(100, 0, IDLE), sample(1000, 4, IDLE)});
    EXPECT_EQ(during[0].after_ns, in_between.launch_ns);
}

TEST(ConnectionTimes, MeasuredEndsLieWithinWhatIsSampled) {
    const auto times = times_of({MADE}, {op(10)}, {sample(1000, 4, IDLE)}, {begin(11), end(15, 0)});
    EXPECT_EQ(times[0].known, EndKnown::Measured);
    EXPECT_EQ(times[0].end_ns, 15 * MS);
    EXPECT_EQ(times[0].after_ns, 10 * MS);
    EXPECT_EQ(times[0].before_ns, 1000 * MS + 1000);
}

// Equal operations, attached in the middle: one more or one less would do as well, but for pauses.
TEST(ConnectionTimes, LateBetweenTwoPauses) {
    const std::vector<TimedOp> ops{op(100), op(2000), op(2001), op(4000)};
    const auto times =
        times_of({MET}, ops,
                 {sample(1000, 400, IDLE), sample(3000, 408, IDLE, 1900), sample(5000, 412, BUSY)},
                 {end(105, 396), end(2005, 400), end(2010, 404), end(5100, 408)});
    expect_nothing(times[0]);
    EXPECT_EQ(times[1].end_ns, 2005 * MS);
    EXPECT_EQ(times[2].end_ns, 2010 * MS);
    EXPECT_EQ(times[3].end_ns, 5100 * MS) << "what follows a stretch that fits";
}

TEST(ConnectionTimes, LateWithoutAPause) {
    const auto times = times_of({MET}, {op(1000), op(1500), op(2000)},
                                {sample(1100, 400, BUSY), sample(2100, 408, BUSY)},
                                {end(1200, 396), end(1600, 400)});
    for (const OpTime &time : times)
        expect_nothing(time);
}

// One pause alone: what was launched before it may have come to the proxy after it.
TEST(ConnectionTimes, LateWithOnePause) {
    const auto times = times_of({MET}, {op(1000), op(2000)}, {sample(1500, 400, IDLE)},
                                {end(1200, 396), end(2100, 400)});
    for (const OpTime &time : times)
        expect_nothing(time);
}

TEST(ConnectionTimes, APauseThatIsNone) {
    // Launched 5 ms before: it may not be with its proxy yet.
    const auto times = times_of({MET}, {op(1000), op(1995), op(3000)},
                                {sample(2000, 400, IDLE), sample(4000, 408, IDLE, 3900)},
                                {end(2010, 400), end(3010, 404)});
    for (const OpTime &time : times)
        expect_nothing(time);
    // Twice the same: what was added between is of the first of them.
    const auto twice = times_of({MET}, {op(1000), op(1995), op(3000), op(4000)},
                                {sample(2000, 400, IDLE), sample(3005, 404, IDLE, 2900)},
                                {end(2010, 400), end(3010, 404), end(4005, 408)});
    for (const OpTime &time : twice)
        expect_nothing(time);
}

// The first operation of all ends, launched before the first sample.
TEST(ConnectionTimes, LateAfterTheFirstLaunch) {
    expect_nothing(times_of({MET}, {op(1000)}, {}, {begin(1002), end(1005, 0)})[0]);
}

TEST(ConnectionTimes, PausesThatDoNotFit) {
    const auto times =
        times_of({MET}, {op(2000), op(4000), op(6000)},
                 {sample(1000, 400, IDLE), sample(3000, 408, IDLE), sample(5000, 412, IDLE, 4500)});
    expect_nothing(times[0]);
    expect_between(times[1], 4500, 5000);
    expect_nothing(times[2]); // launched after the last sample
}

// A launch that was lost, or an operation that never was.
TEST(ConnectionTimes, WhatWasCountedIsNotWhatWasLaunched) {
    for (const std::uint64_t counted : {12U, 6U, 4U}) {
        const auto times = times_of({MADE}, {op(10), op(20)}, {sample(1000, counted, IDLE)});
        for (const OpTime &time : times)
            expect_nothing(time);
    }
}

TEST(ConnectionTimes, ItContinuesAfterALostLaunch) {
    const auto times = times_of(
        {MADE}, {op(10), op(2000), op(4000)},
        {sample(1000, 8, IDLE), sample(3000, 12, IDLE, 1990), sample(5000, 16, IDLE, 4500)});
    expect_nothing(times[0]);
    expect_between(times[1], 2000, 3000);
    expect_between(times[2], 4500, 5000);
}

TEST(ConnectionTimes, AnAddressThatIsUsedAgain) {
    const auto times =
        times_of({MADE, {5000 * MS, true}}, {op(10), op(6000)},
                 {sample(1000, 4, IDLE), sample(7000, 4, IDLE, 5900)}, {end(15, 0), end(6005, 0)});
    EXPECT_EQ(times[0].end_ns, 15 * MS);
    EXPECT_EQ(times[1].end_ns, 6005 * MS);
    EXPECT_EQ(times[1].after_ns, 6000 * MS);
    EXPECT_EQ(times[1].before_ns, 7000 * MS + 1000);
    const auto without =
        times_of({MADE}, {op(10), op(6000)}, {sample(1000, 4, IDLE), sample(7000, 4, IDLE, 5900)});
    expect_nothing(without[1]);
}

TEST(ConnectionTimes, TheSameTwice) {
    const auto twice =
        times_of({MADE, MADE}, {op(10)}, {sample(1000, 4, IDLE), sample(1000, 4, IDLE)},
                 {begin(11), begin(11), end(15, 0), end(15, 0)});
    EXPECT_EQ(twice[0].begin_ns, 11 * MS);
    EXPECT_EQ(twice[0].end_ns, 15 * MS);
}

} // namespace
} // namespace collwire::nccl
