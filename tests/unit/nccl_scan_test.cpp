// SPDX-License-Identifier: Apache-2.0
// Communicators in the memory of this process, which lists none.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "userspace/nccl/memory/scan_comms.h"

namespace collwire::nccl::test {
namespace {

// Not the number itself: this program's constants are no communicators.
constexpr std::uint64_t HALF_MAGIC = 0x0140014001400140;
constexpr std::size_t COMM_BYTES = 300'000;
constexpr std::size_t END = COMM_BYTES - 8;

std::uint64_t magic() {
    return HALF_MAGIC * 2;
}

struct Free {
    void operator()(void *memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<char, Free>;

void mark(char *at) {
    const std::uint64_t number = magic();
    std::memcpy(at, &number, sizeof(number));
    std::memcpy(at + END, &number, sizeof(number));
}

class ScanComms : public testing::Test {
protected:
    void SetUp() override {
        layout_.offsets["ncclComm.startMagic"].value = 0;
        layout_.offsets["ncclComm.endMagic"].value = END;
    }
    bool finds(const void *comm) {
        process::ProcessView process{getpid()};
        EXPECT_TRUE(process.refresh());
        const auto found = scan_comms(process, layout_,
                                      std::chrono::steady_clock::now() + std::chrono::minutes(1));
        return std::ranges::find(found.addresses, reinterpret_cast<std::uint64_t>(comm)) !=
               found.addresses.end();
    }
    LibraryLayout layout_;
};

TEST_F(ScanComms, AreFoundWhereMallocPutsLargeObjects) {
    // As malloc lays out what it gets pages of its own for, whichever malloc this program has.
    void *pages =
        mmap(nullptr, COMM_BYTES + 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    char *comm = static_cast<char *>(pages) + 16;
    EXPECT_FALSE(finds(comm));
    mark(comm);
    EXPECT_TRUE(finds(comm));
    std::memset(comm + END, 0, 8);
    EXPECT_FALSE(finds(comm));
    munmap(pages, COMM_BYTES + 16);
}

TEST_F(ScanComms, AreFoundAnywhereElse) {
    const Memory memory{static_cast<char *>(std::calloc(1, COMM_BYTES + 4096))};
    char *comm = memory.get() + 2096 - reinterpret_cast<std::uint64_t>(memory.get()) % 8;
    mark(comm);
    EXPECT_TRUE(finds(comm));
}

// glibc gives a large object pages of its own until the program has freed one.
TEST_F(ScanComms, AreFoundInAHeapBesideOneWithPagesOfItsOwn) {
    constexpr std::uint64_t ARENA_BYTES = 64U << 20U;
    void *pages =
        mmap(nullptr, COMM_BYTES + 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    void *reserved = mmap(nullptr, 2 * ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(reserved, MAP_FAILED);
    char *arena = static_cast<char *>(reserved) + ARENA_BYTES -
                  reinterpret_cast<std::uint64_t>(reserved) % ARENA_BYTES;
    ASSERT_EQ(mprotect(arena, 4 * COMM_BYTES / 4096 * 4096, PROT_READ | PROT_WRITE), 0);
    char *first = static_cast<char *>(pages) + 16;
    char *second = arena + 2096;
    char *third = second + COMM_BYTES;
    mark(first);
    mark(second);
    mark(third);
    EXPECT_TRUE(finds(first));
    EXPECT_TRUE(finds(second));
    EXPECT_TRUE(finds(third));
    munmap(pages, COMM_BYTES + 16);
    munmap(reserved, 2 * ARENA_BYTES);
}

TEST_F(ScanComms, PagesThatWereNeverTouchedStayUntouched) {
    constexpr std::size_t BYTES = 64U << 20U;
    void *pages = mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    EXPECT_FALSE(finds(pages));
    std::vector<unsigned char> resident(BYTES / 4096);
    ASSERT_EQ(mincore(pages, BYTES, resident.data()), 0);
    EXPECT_EQ(std::ranges::count_if(resident, [](unsigned char page) { return page & 1U; }), 0);
    munmap(pages, BYTES);
}

TEST_F(ScanComms, TimeIsBounded) {
    process::ProcessView process{getpid()};
    ASSERT_TRUE(process.refresh());
    const auto found = scan_comms(process, layout_, std::chrono::steady_clock::now());
    EXPECT_TRUE(found.addresses.empty());
    EXPECT_TRUE(found.is_cut);
}

TEST_F(ScanComms, VersionsWithoutMarksCannotBeScanned) {
    EXPECT_TRUE(can_scan(layout_));
    layout_.offsets.erase("ncclComm.endMagic");
    EXPECT_FALSE(can_scan(layout_));
}

} // namespace
} // namespace collwire::nccl::test
