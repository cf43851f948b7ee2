// SPDX-License-Identifier: Apache-2.0
// The BPF programs on a launch: the records of operations and proxies.
#include <cstddef>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "collwire/loss_records.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/record_kinds.h"
#include "tests/root/nccl_programs.h"

extern "C" __attribute__((noinline, visibility("default"))) int
nccl_programs_test_start(void *comm) {
    asm volatile("" : : "r"(comm) : "memory");
    return 0;
}

extern "C" __attribute__((noinline, visibility("default"))) void nccl_programs_test_post() {
    asm volatile("" : : : "memory");
}

namespace collwire::test {
namespace {

TEST_P(NcclPrograms, OperationForAnotherRanksProxy) {
    launch();
    const auto ops = emitted<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS);
    ASSERT_EQ(ops.size(), 3U);
    EXPECT_EQ(ops[0].ops[0].flags & CW_NCCL_OP_OTHER_PROXY, 0);
    EXPECT_EQ(ops[2].ops[0].flags & CW_NCCL_OP_OTHER_PROXY, CW_NCCL_OP_OTHER_PROXY);
    EXPECT_EQ(ops[2].ops[0].connection, ELSEWHERE);
    EXPECT_EQ(ops[2].ops[0].proxy_index, 1);
    EXPECT_EQ(ops[2].proxy_indices[0], 1U);
    for (const cw_nccl_connection &each : connections())
        EXPECT_NE(each.connection, ELSEWHERE) << "an address of another process is not read here";
}

// As from 2.30 on, on a node to which every 300th rank was given.
TEST_P(NcclPrograms, ProxiesByRank) {
    layout_.proxy_state_lists = offsetof(ProxyState, n_lists);
    layout_.comm_local_rank_to_rank = offsetof(Comm, local_rank_to_rank);
    const std::array<std::int32_t, 2> ranks{0, 300};
    comm_.local_rank_to_rank = ranks.data();
    std::vector<ProxyOps> proxies(301);
    proxies[0] = proxies_[0];
    proxies[300] = proxies_[1];
    proxies[44] = proxies_[1]; // 300, to a byte
    proxy_state_.n_lists = 301;
    proxy_state_.ops = proxies.data();
    launch();
    const auto ops = emitted<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS);
    ASSERT_EQ(ops.size(), 3U);
    EXPECT_EQ(ops[0].proxy_indices[0], 0U);
    EXPECT_EQ(ops[2].ops[0].flags & CW_NCCL_OP_OTHER_PROXY, CW_NCCL_OP_OTHER_PROXY);
    EXPECT_EQ(ops[2].proxy_indices[0], 300U);
    EXPECT_EQ(ops[2].ops[0].proxy_index, 300 % 256);
}

// As in 2.30.3 and 2.30.4: the field is there, and the lists are by local rank.
TEST_P(NcclPrograms, AsManyListsAsLocalRanks) {
    layout_.proxy_state_lists = offsetof(ProxyState, n_lists);
    layout_.comm_local_rank_to_rank = offsetof(Comm, local_rank_to_rank);
    const std::array<std::int32_t, 2> ranks{1, 301};
    comm_.local_rank_to_rank = ranks.data();
    proxy_state_.n_lists = 2;
    launch();
    const auto ops = emitted<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS);
    ASSERT_EQ(ops.size(), 3U);
    EXPECT_EQ(ops[0].proxy_indices[0], 0U);
    EXPECT_EQ(ops[2].proxy_indices[0], 1U);
    EXPECT_EQ(lost(CW_LOSS_NCCL_FAULT), 0U);
}

// Of a communicator that shares its parent's connections, one may be of a rank that it has not.
TEST_P(NcclPrograms, ProxyOfARankOfTheParent) {
    layout_.comm_shared_res = offsetof(Comm, shared);
    layout_.shared_owner = 0;
    layout_.comm_top_parent_local_ranks = offsetof(Comm, top_parent_local_ranks);
    Comm parent{};
    const Comm *owner = &parent;
    parent.shared = &owner;
    const std::array<std::int32_t, 1> local_ranks{1};
    comm_.shared = &owner;
    comm_.local_ranks = 1;
    comm_.top_parent_local_ranks = local_ranks.data();
    std::swap(proxies_[0], proxies_[1]); // its own is the parent's second
    launch();
    expect_other_then_own(0, 1);
}

// The same since 2.30, and with a parent that has ended.
TEST_P(NcclPrograms, ProxyOfARankOfTheParentByRank) {
    layout_.proxy_state_lists = offsetof(ProxyState, n_lists);
    layout_.comm_local_rank_to_rank = offsetof(Comm, local_rank_to_rank);
    layout_.comm_shared_res = offsetof(Comm, shared);
    layout_.shared_owner = 0;
    layout_.comm_top_parent_ranks = offsetof(Comm, top_parent_ranks);
    Comm parent{}, ended{};
    const Comm *owner = &parent, *gone = &ended;
    ended.magic = 0;
    const std::array<std::int32_t, 2> of_parent{8, 9};
    const std::array<std::int32_t, 1> own{0}, top{9};
    parent.shared = &owner;
    parent.local_rank_to_rank = of_parent.data();
    comm_.shared = &owner;
    comm_.local_ranks = 1;
    comm_.local_rank_to_rank = own.data();
    comm_.top_parent_ranks = top.data();
    std::vector<ProxyOps> proxies(10);
    proxies[8] = proxies_[1];
    proxies[9] = proxies_[0];
    proxy_state_.ops = proxies.data();
    proxy_state_.n_lists = 10;
    launch();
    expect_other_then_own(8, 9);
    Comm child = comm_;
    child.shared = &gone;
    records_.clear();
    EXPECT_EQ(nccl_programs_test_start(&child), 0);
    (void)ring_->consume();
    const auto launches = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH);
    ASSERT_EQ(launches.size(), 1U);
    EXPECT_EQ(launches[0].n_ops, 2U) << "its own rank's";
}

// A page that is being moved, or is swapped out: the next launch reads it again, and this one is
// not taken for one that has nothing for a proxy.
TEST_P(NcclPrograms, ProxiesThatAreReadLater) {
    constexpr std::size_t PAGE_BYTES = 4096;
    layout_.comm_shared_res = offsetof(Comm, shared);
    layout_.shared_owner = 0;
    layout_.comm_top_parent_local_ranks = offsetof(Comm, top_parent_local_ranks);
    void *const pages =
        mmap(nullptr, 2 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    auto *const second = static_cast<std::byte *>(pages) + PAGE_BYTES;
    // Its magic is in the first page, its number of ranks in the second.
    const Comm *const owner = new (second - offsetof(Comm, local_rank)) Comm{};
    const auto expect_fault = [this](std::uint64_t n) {
        launch();
        const auto launches = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH);
        ASSERT_EQ(launches.size(), 1U);
        EXPECT_EQ(launches[0].n_ops, 0U);
        EXPECT_EQ(launches[0].flags & (CW_NCCL_LAUNCH_LOCAL | CW_NCCL_LAUNCH_FAULT),
                  CW_NCCL_LAUNCH_FAULT);
        EXPECT_EQ(lost(CW_LOSS_NCCL_FAULT), n);
    };
    ASSERT_EQ(mprotect(second, PAGE_BYTES, PROT_NONE), 0);
    comm_.shared = &owner;
    expect_fault(1);
    expect_fault(2);
    comm_.shared = nullptr;
    comm_.top_parent_local_ranks = reinterpret_cast<const std::int32_t *>(second);
    expect_fault(3);
    comm_.top_parent_local_ranks = nullptr;
    launch();
    const auto launches = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH);
    ASSERT_EQ(launches.size(), 1U);
    EXPECT_EQ(launches[0].n_ops, 3U);
    EXPECT_EQ(launches[0].flags & (CW_NCCL_LAUNCH_LOCAL | CW_NCCL_LAUNCH_FAULT), 0);
    EXPECT_EQ(lost(CW_LOSS_NCCL_FAULT), 3U);
    munmap(pages, 2 * PAGE_BYTES);
}

// As of one rank alone: NCCL makes no lists, and goes through none.
TEST_P(NcclPrograms, WithoutLists) {
    proxy_state_.ops = nullptr;
    launch();
    auto launches = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH);
    ASSERT_EQ(launches.size(), 1U);
    EXPECT_EQ(launches[0].flags & (CW_NCCL_LAUNCH_LOCAL | CW_NCCL_LAUNCH_FAULT),
              CW_NCCL_LAUNCH_LOCAL);
    EXPECT_EQ(lost(CW_LOSS_NCCL_FAULT), 0U);
    proxy_state_.ops = proxies_.data();
    launch();
    launches = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH);
    ASSERT_EQ(launches.size(), 1U);
    EXPECT_EQ(launches[0].n_ops, 3U) << "they are there now";
}

// As where many GPUs reach one another over NVLink: each is a rank of one node.
TEST_P(NcclPrograms, ManyRanksOnANode) {
    std::vector<ProxyOps> proxies(100);
    comm_.local_ranks = 100;
    comm_.local_rank = 99;
    proxies[99] = proxies_[0];
    proxies[70] = proxies_[1];
    proxy_state_.ops = proxies.data();
    launch();
    const auto launches = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH);
    ASSERT_EQ(launches.size(), 1U);
    EXPECT_EQ(launches[0].n_ops, 3U);
    EXPECT_EQ(launches[0].flags & (CW_NCCL_LAUNCH_LOCAL | CW_NCCL_LAUNCH_TRUNCATED), 0);
    expect_other_then_own(70, 99);
    EXPECT_EQ(connections().size(), 4U);
    EXPECT_EQ(lost(CW_LOSS_NCCL_OPS_TRUNCATED), 0U);
}

TEST_P(NcclPrograms, MoreRanksOnANodeThanAreLookedAt) {
    std::vector<ProxyOps> proxies(200);
    comm_.local_ranks = 200;
    comm_.local_rank = 199;
    proxies[199] = proxies_[0];
    proxy_state_.ops = proxies.data();
    launch();
    const auto launches = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH);
    ASSERT_EQ(launches.size(), 1U);
    EXPECT_EQ(launches[0].flags & (CW_NCCL_LAUNCH_LOCAL | CW_NCCL_LAUNCH_TRUNCATED),
              CW_NCCL_LAUNCH_TRUNCATED)
        << "it may have something for a proxy";
    EXPECT_EQ(lost(CW_LOSS_NCCL_OPS_TRUNCATED), 1U);
}

// What a thread hands over before a launch is in none of the lists at the launch.
TEST_P(NcclPrograms, OperationsHandedOverBeforeTheLaunch) {
    ASSERT_NO_FATAL_FAILURE(load());
    const auto is_truncated = [this] {
        const auto launches = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH);
        return launches.size() == 1 && (launches[0].flags & CW_NCCL_LAUNCH_TRUNCATED) != 0;
    };
    launch();
    EXPECT_FALSE(is_truncated());
    nccl_programs_test_post();
    nccl_programs_test_post();
    launch();
    EXPECT_TRUE(is_truncated());
    launch();
    EXPECT_FALSE(is_truncated()) << "that was the launch before";
    std::thread{nccl_programs_test_post}.join();
    launch();
    EXPECT_FALSE(is_truncated()) << "that was a launch of another thread";
    EXPECT_EQ(lost(CW_LOSS_NCCL_OPS_TRUNCATED), 1U);
    ASSERT_TRUE(maps_->hold(CW_HELD));
    nccl_programs_test_post();
    launch();
    ASSERT_TRUE(maps_->hold(CW_NOT_HELD));
    launch();
    EXPECT_FALSE(is_truncated()) << "that was a launch before the recording began";
}

// The record of a communicator is emitted until there is room for it: without it nothing of the
// communicator is joined with anything.
TEST_P(NcclPrograms, CommunicatorThatTheRingHadNoRoomFor) {
    loader::SharedMapOptions options;
    options.ring_bytes = 4096;
    ASSERT_NO_FATAL_FAILURE(load(options));
    std::vector<Comm> others(32, Comm{});
    for (Comm &other : others)
        EXPECT_EQ(nccl_programs_test_start(&other), 0);
    EXPECT_EQ(nccl_programs_test_start(&comm_), 0);
    EXPECT_GT(lost(CW_LOSS_NCCL_COMM), 0U);
    EXPECT_EQ(lost(CW_LOSS_NCCL_FAULT), 0U) << "they are communicators";
    (void)ring_->consume();
    for (const auto &each : emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH))
        EXPECT_NE(each.comm, reinterpret_cast<std::uint64_t>(&comm_));
    records_.clear();
    launch();
    const auto comms = emitted<cw_nccl_comm>(CW_KIND_NCCL_COMM);
    ASSERT_EQ(comms.size(), 1U);
    EXPECT_EQ(comms[0].comm, reinterpret_cast<std::uint64_t>(&comm_));
    EXPECT_EQ(emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH).size(), 1U);
}

// With nothing left out of them: a build that has every field.
TEST_P(NcclPrograms, TheKernelTakesThemWhole) {
    std::memset(&layout_, 0, sizeof(layout_));
    layout_.op_size = CW_NCCL_OP_BYTES;
    layout_.plan_register = CW_NCCL_RBX;
    layout_.seq_numbers_count = 5;
    load();
}

// Before 2.24 only this distinguishes them.
TEST_P(NcclPrograms, OperationsOfOtherFunctionsLookDifferent) {
    layout_.op_coll = offsetof(Op, coll);
    launch();
    std::set<std::uint64_t> shapes{shape()};
    for (std::uint8_t Op::*const field : {&Op::coll, &Op::dtype, &Op::red_op}) {
        own_ops_[0].*field = 3;
        launch();
        EXPECT_TRUE(shapes.insert(shape()).second);
        EXPECT_EQ(emitted<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS).size(), 3U);
    }
    EXPECT_FALSE(shapes.contains(0));
}

// Where the walk lies in a map of the CPU, another thread may be in the middle of one.
TEST_P(NcclPrograms, AWalkThatIsTaken) {
    if (std::string{GetParam()} != "proxy_start_bounded")
        GTEST_SKIP() << "each has its own";
    ASSERT_NO_FATAL_FAILURE(load());
    const bpf_map *const walks = bpf_object__find_map_by_name(programs_.object(), "ops_walks");
    ASSERT_NE(walks, nullptr);
    const std::size_t bytes =
        bpf_map__value_size(walks) * static_cast<std::size_t>(libbpf_num_possible_cpus());
    std::vector<std::uint64_t> places(bytes / sizeof(std::uint64_t));
    const auto set_users = [&](std::uint64_t users) {
        for (std::size_t at = 0; at < bytes; at += bpf_map__value_size(walks))
            places[at / sizeof(std::uint64_t)] = users;
        const std::uint32_t zero = 0;
        EXPECT_EQ(bpf_map__update_elem(walks, &zero, sizeof(zero), places.data(), bytes, BPF_ANY),
                  0);
    };
    set_users(1);
    launch();
    EXPECT_TRUE(emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH).empty());
    EXPECT_EQ(lost(CW_LOSS_NCCL_LAUNCH), 1U);
    set_users(0);
    for (int i = 0; i < 2; ++i) {
        launch();
        EXPECT_EQ(emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH).size(), 1U);
    }
    EXPECT_EQ(lost(CW_LOSS_NCCL_LAUNCH), 1U);
}

INSTANTIATE_TEST_SUITE_P(Walks, NcclPrograms, testing::Values("proxy_start", "proxy_start_bounded"),
                         [](const auto &of) { return std::string{of.param}; });

} // namespace
} // namespace collwire::test
