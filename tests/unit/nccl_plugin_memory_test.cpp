// SPDX-License-Identifier: Apache-2.0
// Queue pairs and names of network plugins, out of the memory of this process.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "userspace/nccl/memory/plugin_memory.h"

namespace collwire::nccl::test {
namespace {

// As libibverbs has it.
struct IbvQp {
    void *context;
    void *qp_context = nullptr;
    void *pd;
    void *send_cq;
    void *recv_cq;
    void *srq = nullptr;
    std::uint32_t handle = 1;
    std::uint32_t qp_num = 0;
    std::uint32_t state = 3;
    std::uint32_t qp_type = 2;
};

struct Object {
    std::array<std::uint64_t, 20> other{};
    const void *next = nullptr;
    const void *another = nullptr;
};

// As the C library has it: its size is before it, so what is read of it ends where it ends, and not
// in the memory of other tests.
struct alignas(16) Chunk {
    std::uint64_t before = 0;
    std::uint64_t bytes = sizeof(Object) + 2 * sizeof(std::uint64_t);
    Object object;
    std::uint64_t after = 0;
};
static_assert(offsetof(Chunk, object) == 16 && sizeof(Object) % 16 == 0);

class PluginMemory : public testing::Test {
protected:
    PluginMemory() { EXPECT_TRUE(process_.refresh()); }

    const IbvQp *qp(std::uint32_t number) {
        qps_.push_back(std::make_unique<IbvQp>(IbvQp{.context = device_.get(),
                                                     .pd = device_.get(),
                                                     .send_cq = device_.get(),
                                                     .recv_cq = device_.get()}));
        qps_.back()->qp_num = number;
        return qps_.back().get();
    }
    const Object *object(const void *next, const void *another = nullptr) {
        Object &made = objects_.emplace_back(std::make_unique<Chunk>())->object;
        made.next = next;
        made.another = another;
        return &made;
    }
    std::vector<PluginQp> find(const void *from,
                               const std::unordered_set<std::uint32_t> &numbers = {71, 72}) {
        EXPECT_TRUE(process_.refresh());
        return find_plugin_qps(process_, reinterpret_cast<std::uintptr_t>(from), numbers);
    }

    process::ProcessView process_{getpid()};
    std::unique_ptr<Object> device_ = std::make_unique<Object>();
    std::vector<std::unique_ptr<IbvQp>> qps_;
    std::vector<std::unique_ptr<Chunk>> objects_;
};

std::uint8_t depth_of(const std::vector<PluginQp> &found, const IbvQp *qp) {
    for (const PluginQp &one : found)
        if (one.address == reinterpret_cast<std::uintptr_t>(qp) && one.number == qp->qp_num)
            return one.depth;
    return 0;
}

TEST_F(PluginMemory, QueuePairsAtAnyDepth) {
    const IbvQp *near = qp(71), *far = qp(72);
    const Object *root = object(near, object(object(far)));
    const auto found = find(root);
    EXPECT_EQ(depth_of(found, near), 1);
    EXPECT_EQ(depth_of(found, far), 3);
    // What lies further away is of something else.
    EXPECT_EQ(depth_of(find(object(root)), far), 0);
    EXPECT_EQ(depth_of(find(object(root)), near), 2);
}

TEST_F(PluginMemory, TheFewestPointersCount) {
    const IbvQp *own = qp(71);
    EXPECT_EQ(depth_of(find(object(object(own), own)), own), 1);
}

TEST_F(PluginMemory, CandidatesWithoutAKnownNumberAreRejected) {
    const IbvQp *own = qp(71);
    EXPECT_TRUE(find(object(own), {99}).empty()) << "the kernel knows no such number";
    EXPECT_TRUE(find(object(own), {}).empty());
    qps_.back()->qp_type = 1;
    EXPECT_EQ(depth_of(find(object(own)), own), 0);
    qps_.back()->qp_type = 2;
    qps_.back()->pd = nullptr;
    EXPECT_EQ(depth_of(find(object(own)), own), 0);
}

// Pointers that lead back, objects at the end of a mapping, and a misaligned address.
TEST_F(PluginMemory, BadPointersAreHarmless) {
    const Object *self = object(nullptr);
    objects_.back()->object.next = self;
    EXPECT_TRUE(find(self).empty());
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    auto *memory = static_cast<std::byte *>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory, MAP_FAILED);
    ASSERT_EQ(munmap(memory + page, page), 0);
    const IbvQp *own = qp(71);
    *reinterpret_cast<const void **>(memory + page - sizeof(void *)) = own;
    const void *last = memory + page - sizeof(void *);
    EXPECT_EQ(depth_of(find(last), own), 1);
    EXPECT_TRUE(find(memory + page).empty());
    EXPECT_TRUE(find(nullptr).empty());
    EXPECT_TRUE(find(reinterpret_cast<const std::byte *>(last) + 1).empty());
    munmap(memory, page);
}

TEST_F(PluginMemory, QueuePairsAreLimited) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    auto *memory = static_cast<const void **>(
        mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory, MAP_FAILED);
    for (std::size_t i = 0; i < 2 * MAX_PLUGIN_QPS; ++i)
        memory[i] = qp(71);
    EXPECT_EQ(find(memory).size(), MAX_PLUGIN_QPS);
    munmap(memory, page);
}

// Memory full of pointers, of objects that say that they have 32 KiB: what comes first is found,
// and it ends.
TEST_F(PluginMemory, MemoryFullOfPointersIsBounded) {
    constexpr std::size_t BYTES = 8U << 20U, CHUNK = 0x8011;
    constexpr std::size_t WORDS = BYTES / sizeof(std::uint64_t);
    auto *memory = static_cast<std::uint64_t *>(
        mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory, MAP_FAILED);
    for (std::size_t i = 0; i + 1 < WORDS; i += 2) {
        memory[i] = reinterpret_cast<std::uintptr_t>(memory + (i * 7 + 2) % WORDS);
        memory[i + 1] = CHUNK; // as malloc has it before each of them
    }
    const IbvQp *own = qp(71);
    memory[2] = reinterpret_cast<std::uintptr_t>(own); // among the first pointers
    EXPECT_EQ(depth_of(find(memory + 2), own), 1);
    munmap(memory, BYTES);
}

struct Table {
    const char *name;
    void *init;
    void *devices;
};

TEST_F(PluginMemory, NamesAndFiles) {
    const Table table{"a network", nullptr, dlsym(RTLD_DEFAULT, "getpid")};
    const auto network = read_plugin_network(process_, reinterpret_cast<std::uintptr_t>(&table));
    ASSERT_TRUE(network);
    EXPECT_EQ(network->name, "a network");
    EXPECT_NE(network->path.find("libc.so"), std::string::npos) << network->path;
    const std::string longer(100, 'n');
    const Table nowhere{longer.c_str(), nullptr, nullptr};
    const auto cut = read_plugin_network(process_, reinterpret_cast<std::uintptr_t>(&nowhere));
    ASSERT_TRUE(cut);
    EXPECT_EQ(cut->name.size(), 31U);
    EXPECT_EQ(cut->path, "");
    EXPECT_FALSE(read_plugin_network(process_, 8));
    const Table nameless{nullptr, nullptr, nullptr};
    EXPECT_EQ(read_plugin_network(process_, reinterpret_cast<std::uintptr_t>(&nameless))->name, "");
}

} // namespace
} // namespace collwire::nccl::test
