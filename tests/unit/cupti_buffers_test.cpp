// SPDX-License-Identifier: Apache-2.0
#include "cupti/buffers.h"

#include <atomic>
#include <cerrno>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace collwire::cupti {
namespace {

bool is_mapped(uint8_t *page) {
    unsigned char is_resident = 0;
    return mincore(page, 1, &is_resident) == 0 || errno != ENOMEM;
}

TEST(CuptiBuffers, EachIsLentOnceThenNone) {
    Buffers buffers;
    ASSERT_TRUE(buffers.take());
    EXPECT_EQ(buffers.bytes(), Buffers::BUFFER_BYTES * Buffers::COUNT);
    std::set<uint8_t *> lent;
    for (size_t i = 0; i < Buffers::COUNT; ++i) {
        uint8_t *buffer = buffers.lend();
        ASSERT_NE(buffer, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer) % 8, 0U);
        buffer[0] = buffer[Buffers::BUFFER_BYTES - 1] = 1;
        lent.insert(buffer);
    }
    EXPECT_EQ(lent.size(), Buffers::COUNT);
    EXPECT_EQ(*lent.rbegin() - *lent.begin(),
              static_cast<ptrdiff_t>((Buffers::COUNT - 1) * Buffers::BUFFER_BYTES));
    EXPECT_EQ(buffers.lent(), Buffers::COUNT);
    EXPECT_EQ(buffers.lacking(), 0U);
    EXPECT_EQ(buffers.lend(), nullptr);
    EXPECT_EQ(buffers.lend(), nullptr);
    EXPECT_EQ(buffers.lacking(), 2U);
    for (uint8_t *buffer : lent)
        buffers.return_buffer(buffer);
    EXPECT_EQ(buffers.lent(), 0U);
    EXPECT_TRUE(buffers.give_back());
}

TEST(CuptiBuffers, AReturnedOneIsLentAgain) {
    Buffers buffers;
    ASSERT_TRUE(buffers.take());
    std::vector<uint8_t *> lent(Buffers::COUNT);
    for (uint8_t *&buffer : lent)
        buffer = buffers.lend();
    buffers.return_buffer(lent[17]);
    EXPECT_EQ(buffers.lend(), lent[17]);
    for (uint8_t *buffer : lent)
        buffers.return_buffer(buffer);
    EXPECT_TRUE(buffers.give_back());
}

TEST(CuptiBuffers, NoneIsLentWithoutMemory) {
    Buffers buffers;
    EXPECT_EQ(buffers.lend(), nullptr);
    EXPECT_EQ(buffers.lacking(), 1U);
    EXPECT_EQ(buffers.bytes(), 0U);
    EXPECT_TRUE(buffers.give_back());
    ASSERT_TRUE(buffers.take());
    EXPECT_NE(buffers.lend(), nullptr);
}

TEST(CuptiBuffers, TheMemoryStaysWhileOneIsLent) {
    Buffers buffers;
    ASSERT_TRUE(buffers.take());
    uint8_t *buffer = buffers.lend(), *other = buffers.lend();
    buffers.return_buffer(other);
    EXPECT_FALSE(buffers.give_back());
    EXPECT_TRUE(is_mapped(buffer));
    buffer[0] = 1;
    EXPECT_TRUE(buffers.take()); // a new trace before CUPTI gave the last one's buffer back
    EXPECT_NE(buffers.lend(), buffer);
    buffers.return_buffer(other);
    buffers.return_buffer(buffer);
    EXPECT_TRUE(buffers.give_back());
    EXPECT_FALSE(is_mapped(buffer));
    EXPECT_EQ(buffers.bytes(), 0U);
    EXPECT_EQ(buffers.lend(), nullptr);
}

TEST(CuptiBuffers, ForeignMemoryIsNoReturnedBuffer) {
    Buffers buffers;
    uint8_t foreign = 0;
    buffers.return_buffer(&foreign);
    ASSERT_TRUE(buffers.take());
    uint8_t *first = buffers.lend();
    buffers.return_buffer(&foreign);
    buffers.return_buffer(first - 1);
    buffers.return_buffer(first + Buffers::COUNT * Buffers::BUFFER_BYTES);
    EXPECT_EQ(buffers.lent(), 1U);
    EXPECT_FALSE(buffers.give_back());
    buffers.return_buffer(first);
    EXPECT_TRUE(buffers.give_back());
}

TEST(CuptiBuffers, WasteIsNeverLacking) {
    auto buffers = std::make_unique<Buffers>();
    for (int i = 0; i < 1000; ++i) {
        uint8_t *waste = buffers->lend_waste();
        ASSERT_NE(waste, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(waste) % 8, 0U);
        EXPECT_TRUE(buffers->is_waste(waste));
        EXPECT_TRUE(buffers->is_waste(waste + Buffers::WASTE_BYTES - 1));
        EXPECT_FALSE(buffers->is_own(waste));
    }
    EXPECT_EQ(buffers->lent(), 0U);
}

// Four borrowers write into their buffers while a fifth thread takes and gives back the memory.
TEST(CuptiBuffers, ThreadsShareNoneAndKeepItWhileTheyHaveIt) {
    Buffers buffers;
    std::atomic<uint64_t> shared = 0, borrowed = 0;
    std::atomic<int> running = 4;
    const auto borrow = [&](uint8_t mark) {
        for (int had = 0; had < 20'000;) {
            uint8_t *buffer = buffers.lend();
            if (!buffer) {
                std::this_thread::yield();
                continue;
            }
            ++had;
            std::atomic_ref<uint8_t> first(*buffer);
            if (first.exchange(mark) != 0)
                ++shared;
            if (had % 64 == 0)
                std::this_thread::yield(); // others run while it has the buffer
            if (first.exchange(0) != mark)
                ++shared;
            ++borrowed;
            buffers.return_buffer(buffer);
        }
        --running;
    };
    std::vector<std::jthread> threads;
    for (uint8_t mark = 1; mark <= 4; ++mark)
        threads.emplace_back(borrow, mark);
    uint64_t given_back = 0;
    while (running > 0) {
        EXPECT_TRUE(buffers.take());
        std::this_thread::yield();
        given_back += buffers.give_back() ? 1 : 0;
    }
    threads.clear();
    given_back += buffers.give_back() ? 1 : 0;
    EXPECT_EQ(shared, 0U);
    EXPECT_EQ(borrowed, 80'000U);
    EXPECT_GT(given_back, 0U);
    EXPECT_EQ(buffers.lent(), 0U);
    EXPECT_TRUE(buffers.give_back());
}

} // namespace
} // namespace collwire::cupti
