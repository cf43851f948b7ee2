// SPDX-License-Identifier: Apache-2.0
// Records in memory as the kernel lays a ring buffer out.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include <linux/bpf.h>

#include "userspace/loader/unread_records.h"

namespace collwire::loader {
namespace {

struct Ring {
    explicit Ring(std::uint64_t at) : begin(at), end(at) {}

    Ring &add(std::uint32_t length_bytes, std::uint32_t state = 0) {
        const std::uint32_t header = length_bytes | state;
        std::memcpy(&bytes[end % bytes.size()], &header, sizeof(header));
        end += BPF_RINGBUF_HDR_SZ + (length_bytes + 7) / 8 * 8;
        return *this;
    }
    [[nodiscard]] std::uint64_t records() const { return records_between(begin, end, bytes); }

    std::vector<std::byte> bytes = std::vector<std::byte>(4096);
    std::uint64_t begin;
    std::uint64_t end;
};

TEST(UnreadRecords, None) {
    EXPECT_EQ(Ring(0).records(), 0U);
    EXPECT_EQ(Ring(1ULL << 40).records(), 0U);
}

TEST(UnreadRecords, FinishedAndNot) {
    EXPECT_EQ(Ring(0).add(80).add(81).add(1).records(), 3U);
    EXPECT_EQ(Ring(0).add(80, BPF_RINGBUF_BUSY_BIT).add(24).add(40).records(), 3U);
    EXPECT_EQ(Ring(0).add(80).add(24, BPF_RINGBUF_DISCARD_BIT).add(40).records(), 2U);
}

TEST(UnreadRecords, AroundTheEnd) {
    EXPECT_EQ(Ring(4096 * 5 - 8).add(100).add(100).records(), 2U);
    EXPECT_EQ(Ring(4096 * 5 - 64).add(100).add(100).records(), 2U);
    Ring full(4096 * 3 + 8);
    for (int i = 0; i < 256; ++i)
        full.add(8);
    EXPECT_EQ(full.end - full.begin, 4096U);
    EXPECT_EQ(full.records(), 256U);
}

} // namespace
} // namespace collwire::loader
