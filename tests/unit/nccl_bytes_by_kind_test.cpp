// SPDX-License-Identifier: Apache-2.0
// What operations carried that are alike, by the sums of stretches of a connection.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "correlate/nccl/bytes_by_kind.h"

namespace collwire::nccl {
namespace {

struct Sums {
    Link link;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> operations; // order, kind
    std::uint64_t least = 0, most = 1000;                            // of each operation

    // Between two moments at which nothing moved: these operations, by kind, and their bytes.
    Interval &add(std::uint64_t bytes, const std::vector<std::uint32_t> &kinds) {
        Interval interval;
        interval.begin = static_cast<std::uint32_t>(operations.size());
        for (const std::uint32_t kind : kinds)
            operations.emplace_back(static_cast<std::uint32_t>(operations.size()), kind);
        interval.end = static_cast<std::uint32_t>(operations.size());
        interval.measured_bytes = bytes;
        link.intervals.push_back(interval);
        return link.intervals.back();
    }
    // "s": solved, of each interval.
    std::string solve() {
        link.bytes_of_kind.clear();
        for (Interval &interval : link.intervals)
            interval.is_solved = false;
        KindSums sums(link);
        for (const auto &[order, kind] : operations) {
            ShapeOp op;
            op.kind = kind;
            op.data_bytes = least;
            op.payload_bytes = most;
            sums.add(order, op);
        }
        sums.solve();
        std::string text;
        for (const Interval &interval : link.intervals)
            text += interval.is_solved ? 's' : '-';
        return text;
    }
    [[nodiscard]] std::uint64_t bytes_of(std::uint32_t kind) const {
        const auto found = link.bytes_of_kind.find(kind);
        return found == link.bytes_of_kind.end() ? UINT64_MAX : found->second;
    }
};

TEST(BytesByKind, OnceIsNotEnough) {
    Sums sums;
    sums.add(300, {7, 7, 7});
    EXPECT_EQ(sums.solve(), "-");
    sums.add(100, {7});
    EXPECT_EQ(sums.solve(), "ss");
    EXPECT_EQ(sums.bytes_of(7), 100U);
}

TEST(BytesByKind, DifferencesSeparateKinds) {
    Sums sums;
    sums.add(1 + 20 + 300, {1, 2, 3});
    sums.add(2 * 1 + 20 + 300, {1, 2, 3, 1});
    sums.add(1 + 20 + 2 * 300, {3, 1, 2, 3});
    EXPECT_EQ(sums.solve(), "---") << "each is needed";
    sums.add(5 * 1 + 4 * 20 + 300, {1, 2, 1, 2, 3, 1, 2, 1, 2, 1});
    EXPECT_EQ(sums.solve(), "ssss");
    EXPECT_EQ(sums.bytes_of(1), 1U);
    EXPECT_EQ(sums.bytes_of(2), 20U);
    EXPECT_EQ(sums.bytes_of(3), 300U);
}

// The sum of the two is seen twice, how much is whose once.
TEST(BytesByKind, WhatRestsOnOneStretchIsNotKnown) {
    Sums sums;
    sums.add(100, {1});
    sums.add(130, {1, 2});
    sums.add(130, {1, 2});
    EXPECT_EQ(sums.solve(), "---");
    sums.add(100, {1});
    EXPECT_EQ(sums.solve(), "ssss");
    EXPECT_EQ(sums.bytes_of(2), 30U);
}

TEST(BytesByKind, WhatAlwaysComesTogetherIsNotKnown) {
    Sums sums;
    sums.add(321, {1, 2, 3});
    sums.add(642, {1, 2, 3, 1, 2, 3});
    EXPECT_EQ(sums.solve(), "--");
    EXPECT_TRUE(sums.link.bytes_of_kind.empty());
}

// A device that lags: what the first one left is taken for the second one's, all along.
TEST(BytesByKind, OneContradictionIsEnough) {
    Sums sums;
    sums.add(100, {1, 2});
    for (int i = 0; i < 10; ++i) {
        sums.add(20, {1});
        sums.add(100, {2});
    }
    EXPECT_EQ(sums.solve(), std::string(21, '-'));
}

TEST(BytesByKind, PartsOfAByteAndLessThanNothingAreNoBytes) {
    for (const auto &[bytes, kinds] :
         {std::pair{101U, std::vector<std::uint32_t>{2, 2}}, {50U, {1, 2}}}) {
        Sums sums;
        sums.add(100, {1});
        sums.add(100, {1});
        sums.add(bytes, kinds);
        sums.add(bytes, kinds);
        EXPECT_EQ(sums.solve(), "----");
    }
}

// More than the call can make of it: others' operations are sent there, too (PXN), or replays.
TEST(BytesByKind, ACallHasItsBounds) {
    for (const auto &[least, most] : {std::pair{0U, 99U}, {101U, 1000U}, {100U, 100U}}) {
        Sums sums;
        sums.least = least;
        sums.most = most;
        sums.add(100, {1});
        sums.add(100, {1});
        EXPECT_EQ(sums.solve(), least <= 100 && most >= 100 ? "ss" : "--");
    }
}

TEST(BytesByKind, BytesThatNothingWasCalledFor) {
    Sums sums;
    sums.add(100, {1});
    sums.add(100, {1});
    sums.add(0, {});
    EXPECT_EQ(sums.solve(), "ss-");
    sums.add(100, {});
    EXPECT_EQ(sums.solve(), "----");
}

TEST(BytesByKind, WhatWasOnItsWayAtTheEndIsNoSum) {
    Sums sums;
    sums.add(100, {1});
    sums.add(100, {1});
    sums.add(70, {1, 1}).is_under_way = true;
    EXPECT_EQ(sums.solve(), "ss-");
}

TEST(BytesByKind, ManyKindsAndManySums) {
    Sums sums;
    for (std::uint32_t kind = 0; kind < KindSums::MAX_KINDS; ++kind)
        for (int i = 0; i < 2; ++i)
            sums.add(kind + 1, {kind});
    EXPECT_EQ(sums.solve(), std::string(2 * KindSums::MAX_KINDS, 's'));
    Sums more = sums;
    more.add(1000, {1000});
    EXPECT_EQ(more.solve(), std::string(2 * KindSums::MAX_KINDS + 1, '-')) << "one kind too many";
    for (std::uint32_t i = 2; i < 2 + KindSums::MAX_SUMS; ++i)
        sums.add(2 * i, std::vector<std::uint32_t>(i, 1));
    EXPECT_EQ(sums.solve().find('s'), std::string::npos) << "more sums than are looked at";
}

// Numbers that grow with each step end it with nothing.
TEST(BytesByKind, NumbersThatGrowAreGivenUp) {
    Sums sums;
    std::uint64_t seed = 1;
    for (std::size_t i = 0; i < KindSums::MAX_KINDS; ++i) {
        std::vector<std::uint32_t> kinds;
        for (std::uint32_t kind = 0; kind < KindSums::MAX_KINDS; ++kind) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            kinds.insert(kinds.end(), 1 + (seed >> 58U), kind);
        }
        sums.add(seed >> 1U, kinds);
    }
    EXPECT_EQ(sums.solve().find('s'), std::string::npos);
}

} // namespace
} // namespace collwire::nccl
