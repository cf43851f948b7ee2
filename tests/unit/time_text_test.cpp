// SPDX-License-Identifier: Apache-2.0
#include "base/time_text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace collwire {
namespace {

constexpr std::uint64_t S = 1'000'000'000;
// 2026-11-27T22:00:00Z, by date(1), and three hours more.
constexpr TimeRange RANGE{1'795'816'800 * S, 1'795'827'600 * S};

class TimeText : public ::testing::Test {
protected:
    void SetUp() override { in_zone("UTC"); }
    void TearDown() override { in_zone("UTC"); }
    static void in_zone(const char *zone) {
        ::setenv("TZ", zone, 1);
        ::tzset();
    }
    static std::uint64_t ns_of(std::string_view text, DayOf day = DayOf::Begin) {
        const auto parsed = parse_time_ns(text, RANGE, day);
        EXPECT_TRUE(parsed) << text << ": " << parsed.failure().message;
        return parsed ? *parsed : 0;
    }
};

TEST_F(TimeText, ZAndOffsetsAreOfUtc) {
    EXPECT_EQ(ns_of("2026-11-27T22:00:00Z"), 1'795'816'800 * S);
    EXPECT_EQ(ns_of("2026-11-27T22:00Z"), 1'795'816'800 * S);
    EXPECT_EQ(ns_of("2026-11-27 23:00:00+01:00"), 1'795'816'800 * S);
    EXPECT_EQ(ns_of("2026-11-28T03:30:00+0530"), 1'795'816'800 * S);
    EXPECT_EQ(ns_of("2026-11-27T14:00:00-08"), 1'795'816'800 * S);
    EXPECT_EQ(ns_of("2026-11-27T22:00:00.25Z"), 1'795'816'800 * S + S / 4);
    EXPECT_EQ(ns_of("2026-11-27T22:00:00.000000001Z"), 1'795'816'800 * S + 1);
    EXPECT_EQ(ns_of("2024-02-29T00:00:00Z"), 1'709'164'800 * S);
}

TEST_F(TimeText, ATextWithoutZoneIsLocal) {
    in_zone("EST5");
    EXPECT_EQ(ns_of("2026-11-27T17:00:00"), 1'795'816'800 * S);
    EXPECT_EQ(ns_of("2026-11-27T22:00:00Z"), 1'795'816'800 * S);
    EXPECT_EQ(local_time_text(1'795'816'800 * S + 1'500'000), "17:00:00.001 EST");
}

TEST_F(TimeText, ATimeOfDayIsOnTheDayThatHasIt) {
    EXPECT_EQ(ns_of("22:30"), 1'795'818'600 * S);
    EXPECT_EQ(ns_of("00:30:15"), 1'795'825'815 * S) << "after midnight, the range's second day";
    EXPECT_EQ(ns_of("23:30+01:00"), 1'795'818'600 * S);
    in_zone("EST5");
    EXPECT_EQ(ns_of("17:30"), 1'795'818'600 * S);
}

TEST_F(TimeText, ATimeOfDayOutsideIsOnTheChosenDay) {
    EXPECT_EQ(ns_of("12:00", DayOf::Begin), 1'795'780'800 * S);
    EXPECT_EQ(ns_of("12:00", DayOf::End), 1'795'867'200 * S);
}

TEST_F(TimeText, AnythingElseIsRefusedInOneLine) {
    for (const char *text : {"",
                             "x",
                             "2026",
                             "2026-11-27",
                             "2026-13-01T00:00:00Z",
                             "2026-02-29T00:00:00Z",
                             "2026-11-27T24:00:00Z",
                             "2026-11-27T22:60:00Z",
                             "2026-11-27T22:00:60Z",
                             "2026-11-27T22:00:00.Z",
                             "2026-11-27T22:00:00.0000000001Z",
                             "2026-11-27T22:00:00Q",
                             "2026-11-27T22:00:00+15",
                             "2026-11-27T22:00:00+01:0",
                             "2026-11-27T22:00:00Z ",
                             " 22:00",
                             "2:00",
                             "22:0",
                             "22",
                             "22:00:",
                             "-1:00",
                             "1969-12-31T23:59:59Z",
                             "9999-01-01T00:00:00Z",
                             "2026-11-27T22:00:00Z2026",
                             "now"}) {
        const auto parsed = parse_time_ns(text, RANGE, DayOf::Begin);
        ASSERT_FALSE(parsed) << text;
        EXPECT_EQ(parsed.failure().kind, ErrorKind::Usage);
        EXPECT_EQ(parsed.failure().message.find('\n'), std::string::npos);
        EXPECT_NE(parsed.failure().message.find("Fix: "), std::string::npos);
    }
}

} // namespace
} // namespace collwire
