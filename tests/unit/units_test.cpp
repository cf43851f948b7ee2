// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include <gtest/gtest.h>

namespace collwire {
namespace {

TEST(Units, DurationsAsPeopleTypeThem) {
    EXPECT_EQ(*parse_duration_ns("90"), 90'000'000'000u);
    EXPECT_EQ(*parse_duration_ns("500ms"), 500'000'000u);
    EXPECT_EQ(*parse_duration_ns("1.5h"), 5'400'000'000'000u);
    EXPECT_EQ(*parse_duration_ns("30m"), 1'800'000'000'000u);
    EXPECT_EQ(*parse_duration_ns("2d"), 172'800'000'000'000u);
    EXPECT_EQ(*parse_duration_ns("0"), 0u);
}

TEST(Units, SizesAsPeopleTypeThem) {
    EXPECT_EQ(*parse_size_bytes("4096"), 4096u);
    EXPECT_EQ(*parse_size_bytes("2GiB"), 2'147'483'648u);
    EXPECT_EQ(*parse_size_bytes("500MB"), 500'000'000u);
}

TEST(Units, RefusesWhatIsNeither) {
    for (const char *text :
         {"", "x", "-1", "1 s", "1week", "1e400", "nan", "inf", "99999999999d"}) {
        const auto result = parse_duration_ns(text);
        ASSERT_FALSE(result.ok()) << text;
        EXPECT_EQ(result.failure().kind, ErrorKind::Usage);
        EXPECT_NE(result.failure().message.find("Fix:"), std::string::npos);
    }
    for (const char *text : {"", "GiB", "-2GiB", "2gib", "1e30"})
        EXPECT_FALSE(parse_size_bytes(text).ok()) << text;
}

} // namespace
} // namespace collwire
