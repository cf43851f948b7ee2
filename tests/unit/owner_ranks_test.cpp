// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/owner_ranks.h"

#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "collwire/nccl_comm_records.h"

namespace collwire::nccl::test {
namespace {

constexpr std::uint64_t PARENT = 7;
constexpr std::uint64_t CHILD = 9;

Instance instance_of(Index session, std::uint64_t hash, std::int32_t rank, std::int32_t n_ranks) {
    Instance instance;
    instance.session = session;
    instance.record.tgid = 100;
    instance.record.proxy_state = 0x5000;
    instance.record.comm_hash = hash;
    instance.record.rank = rank;
    instance.record.n_ranks = n_ranks;
    instance.record.flags = hash == CHILD ? CW_NCCL_COMM_SHARED : 0;
    return instance;
}

// Four nodes, a process each with the same addresses; ranks 1 and 3 are 0 and 1 of the child.
std::vector<Instance> strided() {
    std::vector<Instance> all;
    all.reserve(6);
    for (std::int32_t rank = 0; rank < 4; ++rank)
        all.push_back(instance_of(static_cast<Index>(rank), PARENT, rank, 4));
    all.push_back(instance_of(1, CHILD, 0, 2));
    all.push_back(instance_of(3, CHILD, 1, 2));
    return all;
}

TEST(OwnerRanks, ARankOfTheOwnerIsOneOfTheChild) {
    const auto instances = strided();
    const OwnerRanks ranks(instances);
    const Instance &child = instances[4];
    EXPECT_EQ(ranks.own(instances[2]), 2);
    EXPECT_EQ(ranks.own(child), 1);
    EXPECT_EQ(ranks.rank_of(child, 3), 1);
    EXPECT_EQ(ranks.rank_of(child, 1), 0);
    EXPECT_EQ(ranks.rank_of(child, 2), -1) << "it is not in the child";
}

TEST(OwnerRanks, NotWithoutThePeersCapture) {
    auto instances = strided();
    instances.pop_back();
    EXPECT_EQ(OwnerRanks(instances).rank_of(instances[4], 3), -1);
}

TEST(OwnerRanks, NotWithoutTheOwner) {
    auto instances = strided();
    instances.erase(instances.begin() + 3);
    const OwnerRanks ranks(instances);
    EXPECT_EQ(ranks.own(instances[4]), std::nullopt);
    EXPECT_EQ(ranks.rank_of(instances[3], 3), -1);
}

TEST(OwnerRanks, TwoThatClaimARank) {
    auto instances = strided();
    instances.push_back(instance_of(3, CHILD, 0, 2));
    EXPECT_EQ(OwnerRanks(instances).rank_of(instances[4], 3), -1);
}

} // namespace
} // namespace collwire::nccl::test
