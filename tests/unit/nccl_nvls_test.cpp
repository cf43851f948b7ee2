// SPDX-License-Identifier: Apache-2.0
// A rank's place in NVLS, read from memory that is laid out as NCCL's.
#include "userspace/nccl/memory/nvls.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include <unistd.h>

#include "collwire/record_kinds.h"

namespace collwire::nccl::test {
namespace {

struct Channel {
    std::int32_t n_heads = 0, head_rank = -1, tree_up = -1;
    std::array<std::int32_t, 3> tree_down{-1, -1, -1};
};
struct Comm {
    std::int32_t nvls_channels = 2, chunk_bytes = 131072, tree_chunk_bytes = 65536;
    std::array<Channel, 2> channels{};
};

// Rank 5 of 16, the second head of its node.
class Nvls : public testing::Test {
protected:
    void SetUp() override {
        const auto field = [this](const char *name, std::size_t value) {
            layout_.offsets.emplace(name, FieldOffset{value, 4, 0, "test"});
        };
        field("ncclComm.nvlsChannels", offsetof(Comm, nvls_channels));
        field("ncclComm.nvlsChunkSize", offsetof(Comm, chunk_bytes));
        field("ncclComm.nvlsTreeMaxChunkSize", offsetof(Comm, tree_chunk_bytes));
        field("ncclComm.channels", offsetof(Comm, channels));
        field("ncclChannel", sizeof(Channel));
        field("ncclChannel.nvls.nHeads", offsetof(Channel, n_heads));
        field("ncclChannel.nvls.headRank", offsetof(Channel, head_rank));
        field("ncclChannel.nvls.treeUp", offsetof(Channel, tree_up));
        field("ncclChannel.nvls.treeDown", offsetof(Channel, tree_down));
        // The first one down is the node itself: a rank beyond all ranks.
        comm_.channels[0] = {4, 1, 9, {18, 13, -1}};
        comm_.channels[1] = {4, 1, -1, {18, 9, 13}};
        record_.comm = reinterpret_cast<std::uint64_t>(&comm_);
        record_.tgid = static_cast<std::uint32_t>(getpid());
        record_.n_ranks = 16;
    }

    [[nodiscard]] auto read() const {
        return read_nvls(process::ProcessView{getpid()}, layout_, record_);
    }

    LibraryLayout layout_;
    Comm comm_;
    cw_nccl_comm record_{};
};

TEST_F(Nvls, HasTheHeadAndItsTwoTrees) {
    const auto nvls = read();
    ASSERT_TRUE(nvls);
    EXPECT_EQ(nvls->header.kind, CW_KIND_NCCL_NVLS);
    EXPECT_EQ(nvls->header.length_bytes, sizeof(*nvls));
    EXPECT_EQ(nvls->comm, record_.comm);
    EXPECT_EQ(nvls->n_heads, 4);
    EXPECT_EQ(nvls->head_rank, 1);
    EXPECT_EQ(nvls->n_channels, 2);
    EXPECT_EQ(nvls->chunk_bytes, 131072);
    EXPECT_EQ(nvls->tree_chunk_bytes, 65536);
    EXPECT_EQ(std::to_array(nvls->tree_up), (std::array<std::int32_t, 2>{9, -1}));
    EXPECT_EQ(std::to_array(nvls->tree_down), (std::array<std::int32_t, 4>{13, -1, 9, 13}));
}

TEST_F(Nvls, ASingleChannelHasNoOddOne) {
    comm_.nvls_channels = 1;
    comm_.channels[1] = {1000, 1000, 1000, {1000, 1000, 1000}};
    const auto nvls = read();
    ASSERT_TRUE(nvls);
    EXPECT_EQ(nvls->tree_up[1], -1);
    EXPECT_EQ(nvls->tree_down[2], -1);
}

TEST_F(Nvls, ARankMayBeNoHead) {
    for (Channel &channel : comm_.channels)
        channel = {4, -1, -1, {16, -1, -1}};
    const auto nvls = read();
    ASSERT_TRUE(nvls);
    EXPECT_EQ(nvls->head_rank, -1);
}

TEST_F(Nvls, IsNotThereWithoutHeads) {
    for (const std::int32_t n : {0, -1, 65}) {
        comm_.nvls_channels = n;
        EXPECT_FALSE(read()) << n;
    }
    comm_.nvls_channels = 2;
    for (const std::int32_t n : {0, -1, 33, 1}) { // it is the second one
        comm_.channels[0].n_heads = n;
        EXPECT_FALSE(read()) << n;
    }
    comm_.channels[0].n_heads = 4;
    ASSERT_TRUE(read());
    comm_.channels[1].tree_up = 16;
    EXPECT_FALSE(read());
    comm_.channels[1].tree_up = -1;
    record_.comm = 8;
    EXPECT_FALSE(read());
}

TEST_F(Nvls, ChunksMayBeUnknown) {
    comm_.chunk_bytes = -1;
    layout_.offsets.erase("ncclComm.nvlsTreeMaxChunkSize");
    const auto nvls = read();
    ASSERT_TRUE(nvls);
    EXPECT_EQ(nvls->chunk_bytes, 0);
    EXPECT_EQ(nvls->tree_chunk_bytes, 0);
}

TEST_F(Nvls, IsNotReadWithoutItsFields) {
    for (const auto &[name, place] : std::map(layout_.offsets)) {
        if (name.ends_with("ChunkSize"))
            continue;
        layout_.offsets.erase(name);
        EXPECT_FALSE(read()) << name;
        layout_.offsets.emplace(name, place);
    }
    EXPECT_TRUE(read());
}

} // namespace
} // namespace collwire::nccl::test
