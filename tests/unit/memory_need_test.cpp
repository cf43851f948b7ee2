// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "tests/support/capture_builder.h"
#include "tools/cli/memory_need.h"

namespace collwire::cli {
namespace {

using test::make_record;

constexpr std::uint64_t S = 1'000'000'000;
constexpr std::uint64_t BOOT_NS = 1000 * S; // CLOCK_REALTIME of a monotonic 0

class MemoryNeed : public testing::Test {
protected:
    // A node's record, then a block of 100 calls in each of ten minutes.
    void SetUp() override {
        test::CaptureBuilder capture;
        auto node = make_record<cw_node>(CW_KIND_NODE, S);
        node.realtime_ns = BOOT_NS + S;
        capture.add(node).end_block();
        for (std::uint64_t minute = 1; minute <= 10; ++minute) {
            for (std::uint64_t i = 0; i < 100; ++i)
                capture.add(make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, minute * 60 * S + i));
            capture.end_block();
        }
        const std::vector<std::byte> bytes = capture.add_end(660 * S).bytes();
        std::ofstream(path_, std::ios::binary)
            .write(reinterpret_cast<const char *>(bytes.data()),
                   static_cast<std::streamsize>(bytes.size()));
        chosen_.captures.push_back({path_, {}});
    }

    void TearDown() override { std::filesystem::remove(path_); }

    std::string path_ = testing::TempDir() + "memory_need.cwc";
    ChosenCaptures chosen_;
};

TEST_F(MemoryNeed, AllRecordsCount) {
    EXPECT_EQ(count_records(chosen_, nullptr), 1U + 1000 + 1);
    chosen_.captures.push_back({path_ + ".absent", {}});
    EXPECT_EQ(count_records(chosen_, nullptr), 1U + 1000 + 1);
}

TEST_F(MemoryNeed, OfAWindowTheBlocksThatItNeedsCount) {
    const capture::Window window{BOOT_NS + 290 * S, BOOT_NS + 310 * S};
    const std::uint64_t records = count_records(chosen_, &window);
    EXPECT_GE(records, 1U + 100);
    EXPECT_LE(records, 1U + 300);
}

TEST_F(MemoryNeed, MuchIsWarnedOf) {
    EXPECT_FALSE(memory_warning(1'000'000'000, 0)) << "free memory is not known";
    EXPECT_FALSE(memory_warning(1'000'000, 1ULL << 30));
    const auto warning = memory_warning(182'000'000, 8ULL << 30);
    ASSERT_TRUE(warning);
    EXPECT_EQ(warning->find("182,000,000 records may need 9.32 GiB to 18.65 GiB of memory"), 0U)
        << *warning;
    EXPECT_NE(warning->find("8.00 GiB"), std::string::npos);
    EXPECT_NE(warning->find("--last 60s"), std::string::npos);
}

TEST(MemoryNeedOfIntervals, DecidesHowManyAreReadAtOnce) {
    EXPECT_EQ(intervals_at_once(1'000'000, 60, 0, 4), 4U) << "free memory is not known";
    EXPECT_EQ(intervals_at_once(1'000'000, 60, 8ULL << 30, 4), 4U);
    EXPECT_EQ(intervals_at_once(1'000'000, 60, 8ULL << 30, 128), 8U);
    EXPECT_EQ(intervals_at_once(1'000'000'000, 60, 8ULL << 30, 8), 1U);
    EXPECT_EQ(intervals_at_once(600'000'000, 60, 8ULL << 30, 8), 2U);
    EXPECT_EQ(intervals_at_once(0, 0, 8ULL << 30, 0), 1U);
    EXPECT_FALSE(memory_warning_of_interval(600'000'000, 60, 8ULL << 30));
    const auto warning = memory_warning_of_interval(60'000'000'000, 60, 8ULL << 30);
    ASSERT_TRUE(warning);
    EXPECT_NE(warning->find("8.00 GiB are free. Fix, if it ends: a shorter interval"),
              std::string::npos)
        << *warning;
}

TEST(FreeMemory, IsThatOfTheMachineOrLess) {
    EXPECT_GT(free_memory_bytes(), 1U << 20);
    EXPECT_LT(free_memory_bytes(), 1ULL << 50);
}

} // namespace
} // namespace collwire::cli
