// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "collwire/nccl_comm_records.h"
#include "userspace/nccl/memory/proxies.h"

namespace collwire::nccl::test {
namespace {

struct Rank {
    std::uint32_t tgid = 0;
    std::int32_t rank = 0, local_rank = 0;
    std::uint64_t hash = 7;
    std::uint32_t flags = 0;
    std::uint64_t proxy_state = 0;
    std::int32_t node = 1;
};

cw_nccl_comm comm_of(const Rank &rank) {
    cw_nccl_comm comm{};
    comm.tgid = rank.tgid;
    comm.comm = 0x1000 + rank.hash;
    comm.comm_hash = rank.hash;
    comm.rank = rank.rank;
    comm.n_ranks = 16;
    comm.local_rank = rank.local_rank;
    comm.local_ranks = 3;
    comm.node = rank.node;
    comm.flags = rank.flags;
    comm.proxy_state = rank.proxy_state == 0 ? 0x5000 + rank.tgid : rank.proxy_state;
    return comm;
}

// The second node of two, whose ranks are 8 to 15: three processes of it.
std::vector<cw_nccl_comm> three() {
    return {comm_of({.tgid = 100, .rank = 8, .local_rank = 0}),
            comm_of({.tgid = 101, .rank = 9, .local_rank = 1}),
            comm_of({.tgid = 102, .rank = 10, .local_rank = 2})};
}

// NCCL 2.30.4 has the field, and lists by local rank: as many as there are local ranks.
TEST(NcclProxies, AsManyListsAsLocalRanks) {
    const auto comms = three();
    const auto proxy = proxy_of(comms, comms[0], 2, 3);
    ASSERT_TRUE(proxy.has_value());
    EXPECT_EQ(proxy->comm.tgid, 102u);
    EXPECT_FALSE(proxy_of(comms, comms[0], 9, 3).has_value());
}

TEST(NcclProxies, ByLocalRankAndByRank) {
    const auto comms = three();
    const auto by_local_rank = proxy_of(comms, comms[0], 2, std::nullopt);
    ASSERT_TRUE(by_local_rank.has_value());
    EXPECT_EQ(by_local_rank->comm.tgid, 102u);
    EXPECT_EQ(by_local_rank->rank, 8) << "of the one that gives the operation";
    const auto by_rank = proxy_of(comms, comms[2], 9, 16);
    ASSERT_TRUE(by_rank.has_value());
    EXPECT_EQ(by_rank->comm.tgid, 101u);
    EXPECT_EQ(by_rank->rank, 10);
    EXPECT_FALSE(proxy_of(comms, comms[0], 9, std::nullopt).has_value());
    EXPECT_FALSE(proxy_of(comms, comms[0], 255, 16).has_value());
    EXPECT_FALSE(proxy_of(comms, comms[0], 8, 16).has_value()) << "its own";
}

// A node of 256, to which ranks were given in turn.
TEST(NcclProxies, MoreRanksThanAByteHas) {
    auto comms = three();
    for (cw_nccl_comm &comm : comms) {
        comm.n_ranks = 1024;
        comm.rank = 8 + comm.local_rank * 256;
    }
    const auto proxy = proxy_of(comms, comms[0], 8 + 256, 16);
    ASSERT_TRUE(proxy.has_value());
    EXPECT_EQ(proxy->comm.tgid, 101u);
    EXPECT_EQ(proxy->rank, 8);
    EXPECT_EQ(proxy_of(comms, comms[0], 8 + 512, 16)->comm.tgid, 102u);
    EXPECT_FALSE(proxy_of(comms, comms[0], 8 + 768, 16).has_value());
}

// Split with shared proxies: the numbers are the parent's.
TEST(NcclProxies, OfTheParent) {
    auto comms = three();
    comms.push_back(comm_of(
        {.tgid = 100, .rank = 1, .local_rank = 1, .hash = 9, .flags = CW_NCCL_COMM_SHARED}));
    comms.push_back(comm_of(
        {.tgid = 102, .rank = 0, .local_rank = 0, .hash = 9, .flags = CW_NCCL_COMM_SHARED}));
    const auto proxy = proxy_of(comms, comms[3], 2, std::nullopt);
    ASSERT_TRUE(proxy.has_value());
    EXPECT_EQ(proxy->comm.tgid, 102u);
    EXPECT_EQ(proxy->comm.comm_hash, 7u);
    EXPECT_EQ(proxy->rank, 8);
    comms.erase(comms.begin()); // the parent of this one is not known
    EXPECT_FALSE(proxy_of(comms, comms[2], 2, std::nullopt).has_value());
}

TEST(NcclProxies, OtherNodesAndTwins) {
    auto comms = three();
    comms.push_back(comm_of({.tgid = 200, .rank = 1, .local_rank = 1, .node = 0}));
    ASSERT_TRUE(proxy_of(comms, comms[0], 1, std::nullopt).has_value());
    EXPECT_EQ(proxy_of(comms, comms[0], 1, std::nullopt)->comm.tgid, 101u);
    comms.push_back(comm_of({.tgid = 201, .rank = 9, .local_rank = 1}));
    EXPECT_FALSE(proxy_of(comms, comms[0], 1, std::nullopt).has_value()) << "two could be it";
}

} // namespace
} // namespace collwire::nccl::test
