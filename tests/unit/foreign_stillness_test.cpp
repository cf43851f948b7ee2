// SPDX-License-Identifier: Apache-2.0
#include "userspace/foreign/stillness.h"

#include <gtest/gtest.h>

namespace collwire::foreign::test {
namespace {

TEST(ForeignStillness, LooksAddUpUntilItMoves) {
    Stillness stillness(1000, 25);
    stillness.look(1020, false);
    stillness.look(1040, false);
    EXPECT_EQ(stillness.ns(), 40U);
    stillness.look(1060, true);
    EXPECT_EQ(stillness.ns(), 0U);
    stillness.look(1070, false);
    EXPECT_EQ(stillness.ns(), 10U);
}

// A recorder with a quota of some percent of a CPU stands still for most of each period.
TEST(ForeignStillness, AStandstillOfTheCallerCountsAsOneLook) {
    Stillness stillness(0, 25);
    stillness.look(5000, false);
    EXPECT_EQ(stillness.ns(), 25U);
    stillness.look(5010, false);
    EXPECT_EQ(stillness.ns(), 35U);
}

} // namespace
} // namespace collwire::foreign::test
