// SPDX-License-Identifier: Apache-2.0
// Which queue pairs of a process are NCCL's, and whether their bytes follow from its operations.
#include <gtest/gtest.h>

#include <initializer_list>

#include "userspace/sources/nccl/queue_pairs.h"

namespace collwire::sources {
namespace {

constexpr std::uint32_t TGID = 100;

cw_nccl_connection connection(std::uint64_t address, std::int32_t rank, std::int32_t peer,
                              std::initializer_list<std::uint64_t> data,
                              std::uint32_t transport = CW_NCCL_TRANSPORT_IB) {
    cw_nccl_connection record = {};
    record.tgid = TGID;
    record.comm = 0x1000;
    record.connection = address;
    record.net_comm = address + 1;
    record.transport = transport;
    record.flags = CW_NCCL_CONNECTION_SEND;
    record.rank = rank;
    record.peer = peer;
    for (const std::uint64_t queue_pair : data) {
        cw_nccl_endpoint &endpoint = record.endpoints[record.n++];
        endpoint.address = queue_pair;
        endpoint.role = CW_NCCL_ROLE_DATA;
    }
    return record;
}

bool are_derived(const NcclQpRegistry &registry) {
    const auto found = registry.of(TGID);
    return found && found->are_derived;
}

TEST(NcclQpRegistry, BytesOfNcclsOwnConnectionsAreDerived) {
    NcclQpRegistry registry;
    EXPECT_FALSE(registry.of(TGID));
    registry.add(connection(1, 0, 1, {0x30, 0x20}), 0x500, false, true);
    registry.add(connection(2, 0, 1, {0x40}), 0, false, true);
    registry.add(connection(3, 0, 2, {}, CW_NCCL_TRANSPORT_SOCKET), 0, false, true);
    const auto found = registry.of(TGID);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->are_derived);
    EXPECT_EQ(found->addresses, (std::vector<std::uint64_t>{0x20, 0x30, 0x40}));
    // The count of steps of the second one is not known.
    ASSERT_EQ(found->senders.size(), 1U);
    EXPECT_EQ(found->senders[0].steps_at, 0x500U);
    registry.forget(TGID, 0x1000);
    EXPECT_FALSE(registry.of(TGID));
}

TEST(NcclQpRegistry, OnePluginsConnectionIsEnough) {
    NcclQpRegistry registry;
    registry.add(connection(1, 0, 1, {0x20}), 0, false, true);
    registry.add(connection(2, 0, 1, {}, CW_NCCL_TRANSPORT_PLUGIN), 0, false, true);
    EXPECT_FALSE(are_derived(registry));
}

TEST(NcclQpRegistry, QueuePairsOfSeveralRanksAreNot) {
    NcclQpRegistry registry;
    registry.add(connection(1, 0, 4, {0x20}), 0, false, true);
    registry.add(connection(2, 0, 4, {0x20}), 0, false, true);
    EXPECT_TRUE(are_derived(registry)) << "two connections of one pair of ranks";
    registry.add(connection(3, 1, 4, {0x20}), 0, false, true);
    EXPECT_FALSE(are_derived(registry));
}

} // namespace
} // namespace collwire::sources
