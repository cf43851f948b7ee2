// SPDX-License-Identifier: Apache-2.0
// Intervals of a recording: their bounds, collectives on both sides of a bound, and the outputs.
#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "correlate/intervals/render.h"
#include "correlate/intervals/sequence.h"

namespace collwire::intervals {
namespace {

constexpr std::uint64_t S = 1'000'000'000;

TEST(Intervals, BoundsAreMultiplesOfTheirLength) {
    const auto all = divide({1003 * S, 1025 * S}, 10 * S);
    ASSERT_TRUE(all);
    ASSERT_EQ(all->size(), 3U);
    EXPECT_EQ((*all)[0].begin_ns, 1003 * S);
    EXPECT_EQ((*all)[0].end_ns, 1010 * S);
    EXPECT_EQ((*all)[1].end_ns, 1020 * S);
    EXPECT_EQ((*all)[2].begin_ns, 1020 * S);
    EXPECT_EQ((*all)[2].end_ns, 1025 * S);
    const auto one = divide({1000 * S, 1010 * S}, 10 * S);
    ASSERT_TRUE(one);
    EXPECT_EQ(one->size(), 1U);
    const auto none = divide({5 * S, 5 * S}, 10 * S);
    ASSERT_TRUE(none);
    EXPECT_TRUE(none->empty());
    const auto rest = divide({1008 * S + S / 2, 1021 * S}, 10 * S);
    ASSERT_TRUE(rest);
    ASSERT_EQ(rest->size(), 1U) << "1.5 s and 1 s are too short";
    EXPECT_EQ((*rest)[0].begin_ns, 1008 * S + S / 2);
    EXPECT_EQ((*rest)[0].end_ns, 1021 * S);
    const auto longest = divide({5 * S, 20 * S}, UINT64_MAX);
    ASSERT_TRUE(longest);
    EXPECT_EQ(longest->size(), 1U);
}

TEST(Intervals, TooShortOrTooManyIsRefusedWithAFix) {
    const auto too_short = divide({0, 10 * S}, S / 10);
    ASSERT_FALSE(too_short);
    EXPECT_NE(too_short.failure().message.find("Fix: give 1s"), std::string::npos);
    const auto too_many = divide({0, 86'400 * S}, S);
    ASSERT_FALSE(too_many);
    EXPECT_NE(too_many.failure().message.find("Fix: give 9s"), std::string::npos)
        << too_many.failure().message;
    EXPECT_TRUE(divide({0, 86'400 * S}, 9 * S));
    EXPECT_FALSE(divide({0, UINT64_MAX}, S));
}

Interval interval_of(std::uint64_t collectives, Edges edges) {
    Interval interval;
    interval.row.collectives = collectives;
    interval.row.begin_realtime_ns = 1000 * S;
    interval.row.end_realtime_ns = 1010 * S;
    interval.row.hosts = 2;
    rows::IntervalCommRow comm;
    comm.comm_hash = "0x1";
    comm.n_ranks = 4;
    comm.collectives = collectives;
    interval.comms.push_back(comm);
    interval.edges.push_back(edges);
    return interval;
}

TEST(Intervals, ACollectiveOnBothSidesOfABoundCountsOnce) {
    Sequence sequence;
    Interval first = interval_of(10, {.at_begin = 3, .at_end = 2});
    Interval second = interval_of(10, {.at_begin = 2, .at_end = 1});
    Interval third = interval_of(10, {.at_begin = 0, .at_end = 0});
    Interval fourth = interval_of(10, {.at_begin = 2, .at_end = 0});
    for (Interval *one : {&first, &second, &third, &fourth})
        sequence.add(*one);
    EXPECT_EQ(first.row.collectives, 10U) << "it is the first one";
    EXPECT_EQ(second.row.collectives, 8U);
    EXPECT_EQ(second.comms[0].collectives, 8U);
    EXPECT_EQ(third.row.collectives, 10U) << "the last one of the second never came";
    EXPECT_EQ(fourth.row.collectives, 10U) << "these began in no interval";
    EXPECT_EQ(fourth.row.interval, 3U);
    EXPECT_EQ(fourth.comms[0].interval, 3U);
}

TEST(Intervals, NumbersOfCollectivesDecideWhereTheyAreKnown) {
    const Edges earlier{.first_seq = 100, .last_seq = 120, .at_begin = 0, .at_end = 0};
    EXPECT_EQ(count_shared(earlier, {.first_seq = 121, .last_seq = 140, .at_begin = 3}), 0U);
    EXPECT_EQ(count_shared(earlier, {.first_seq = 120, .last_seq = 140}), 1U);
    EXPECT_EQ(count_shared(earlier, {.first_seq = 118, .last_seq = 119}), 2U);
    EXPECT_EQ(count_shared(earlier, {.first_seq = 130, .last_seq = 140}), 0U);
    EXPECT_EQ(count_shared(earlier, {.at_begin = 3}), 0U) << "one has no numbers";
    EXPECT_EQ(count_shared(earlier, {.first_seq = 118, .last_seq = 140, .is_from_creation = true}),
              0U);
    EXPECT_EQ(count_shared({.at_end = 2}, {.at_begin = 3}), 2U);
}

TEST(Intervals, AnotherCommunicatorsEdgeIsNotTaken) {
    Sequence sequence;
    Interval first = interval_of(10, {.at_begin = 0, .at_end = 2});
    Interval second = interval_of(10, {.at_begin = 2, .at_end = 0});
    second.comms[0].n_ranks = 8;
    sequence.add(first);
    sequence.add(second);
    EXPECT_EQ(second.row.collectives, 10U);
}

TEST(Intervals, TextSaysWhatIsNotKnown) {
    TextLines text({1000 * S, 1010 * S, 10 * S, "local"}, {});
    Interval interval = interval_of(1234, {});
    const std::string unmeasured = text.line(interval);
    EXPECT_NE(unmeasured.find("1,234"), std::string::npos);
    EXPECT_NE(unmeasured.find("n/a"), std::string::npos);
    EXPECT_EQ(unmeasured.find("MB/s"), std::string::npos) << "not measured is not 0";

    interval.row.tx_wire_bytes = 20'000'000'000;
    interval.row.derived_tx_wire_bytes = 10'000'000'000;
    interval.tiers.push_back({.tier = rows::Tier::Leaf, .tx_wire_bytes = 20'000'000'000});
    interval.tiers.push_back({.tier = rows::Tier::Spine, .derived_tx_wire_bytes = 10'000'000'000});
    interval.ports.push_back({.host = "a\033[2J",
                              .device = "mlx5_0",
                              .port = 1,
                              .rate_mbps = 400'000,
                              .tx_wire_bytes = 100'000'000'000,
                              .rx_wire_bytes = 250'000'000'000});
    interval.row.unclear = 7;
    const std::string measured = text.line(interval);
    EXPECT_NE(measured.find("3 GB/s"), std::string::npos) << measured;
    EXPECT_NE(measured.find("leaf 67 %, spine 33 %"), std::string::npos) << measured;
    EXPECT_NE(measured.find("50.0 %"), std::string::npos) << measured;
    EXPECT_NE(measured.find("unclear"), std::string::npos) << measured;
    EXPECT_EQ(measured.find('\033'), std::string::npos) << "a name acts on the terminal";

    interval.row.hosts = 1;
    interval.lost_records = 12;
    EXPECT_NE(text.line(interval).find("recorded on 1 of 2 hosts"), std::string::npos);
    interval.row.hosts = 0;
    EXPECT_NE(text.line(interval).find("nothing was recorded"), std::string::npos);
    EXPECT_NE(text.end().find("12 records were lost"), std::string::npos);
}

TEST(Intervals, JsonIsADocumentOfRows) {
    JsonParts json({1000 * S, 1020 * S, 10 * S, "local"}, "1.2.3");
    Interval interval = interval_of(5, {});
    interval.ports.push_back({.host = "bad \xff name", .device = "mlx5_0", .port = 1});
    interval.lost_records = 3;
    std::string text = json.head() + json.part(interval) + json.part(interval) + json.end();
    const auto document = nlohmann::json::parse(text);
    EXPECT_EQ(document["schema"], "collwire-intervals");
    EXPECT_EQ(document["lost_records"], 3);
    ASSERT_EQ(document["intervals"].size(), 2U);
    const auto &one = document["intervals"][1];
    EXPECT_EQ(one["collectives"], 5);
    EXPECT_TRUE(one["tx_wire_bytes"].is_null());
    EXPECT_EQ(one["ports"][0]["device"], "mlx5_0");
    EXPECT_EQ(one["communicators"][0]["comm_hash"], "0x1");
    JsonParts empty({0, 0, S, ""}, "1");
    EXPECT_EQ(nlohmann::json::parse(empty.head() + empty.end())["intervals"].size(), 0U);
}

} // namespace
} // namespace collwire::intervals
