// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "correlate/report/table.h"
#include "correlate/report/units.h"

namespace collwire::report {
namespace {

TEST(ReportUnits, NumbersForPeople) {
    EXPECT_EQ(grouped(0), "0");
    EXPECT_EQ(grouped(999), "999");
    EXPECT_EQ(grouped(1000), "1,000");
    EXPECT_EQ(grouped(18446744073709551615ULL), "18,446,744,073,709,551,615");
    EXPECT_EQ(human_bytes(1023), "1023 B");
    EXPECT_EQ(human_bytes(1024), "1.00 KiB");
    EXPECT_EQ(human_bytes(1048575), "1.00 MiB");
    EXPECT_EQ(human_bytes(UINT64_MAX), "16.00 EiB");
    EXPECT_EQ(human_bytes(model::Known{}), "n/a");
    EXPECT_EQ(exact_bytes(1'320'702'443), "1.23 GiB (1,320,702,443 B)");
    EXPECT_EQ(exact_bytes(12), "12 B");
    EXPECT_EQ(share(1, 4), "25.0 %");
    EXPECT_EQ(share({}, 4), "n/a");
    EXPECT_EQ(share(0, 0), "n/a");
    EXPECT_EQ(bar(1, 1000, 10), "#.........") << "a little is not nothing";
    EXPECT_EQ(bar(0, 1000, 10), "..........");
    EXPECT_EQ(utc(1'767'323'045'000'000'042ULL), "2026-01-02T03:04:05.000000042Z");
    EXPECT_EQ(duration(12'340'000'000), "12.3 s");
    EXPECT_EQ(duration(200'000'000'000), "3 min 20 s");
    EXPECT_EQ(short_duration(0), "0 us");
    EXPECT_EQ(short_duration(123'400), "123 us");
    EXPECT_EQ(short_duration(12'340'000), "12.3 ms");
    EXPECT_EQ(short_duration(12'340'000'000), "12.3 s");
    EXPECT_EQ(printable("a\x1b[1mb\n"), "a\\x1b[1mb\\x0a");
}

TEST(ReportTable, ShortensThenDropsColumnsToFit) {
    Table table(
        {{"name", Align::Left, true}, {"bytes", Align::Right}, {"extra", Align::Left, false, 1}});
    table.add({"a very long name indeed", "12", "x"});
    EXPECT_EQ(table.text(80), "  name                     bytes  extra\n"
                              "  a very long name indeed     12  x\n");
    EXPECT_EQ(table.text(30), "  name            bytes  extra\n"
                              "  a very long ..     12  x\n");
    EXPECT_EQ(table.text(22), "  name          bytes\n"
                              "  a very lon..     12\n");
}

} // namespace
} // namespace collwire::report
