// SPDX-License-Identifier: Apache-2.0
// Launches of official NCCL before 2.24: the calls, the operations as they lay in the proxy's
// memory and what NCCL's kernels then sent or received for each, taken from the log of
// tests/cuda_double. Edge cases by hand.
#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/older_plan.h"

namespace collwire::nccl {
namespace {

constexpr bool SEND = true, RECEIVE = false;
constexpr std::uint8_t INT32 = 2, FLOAT16 = 6, FLOAT32 = 7;
constexpr std::int32_t SUM = 0, MAX = 2;
constexpr auto SIMPLE = CW_NCCL_SIMPLE;
constexpr auto LL = CW_NCCL_LL;
constexpr auto RING = CW_NCCL_PATTERN_RING;
constexpr auto TWICE = CW_NCCL_PATTERN_RING_TWICE;
constexpr auto FROM = CW_NCCL_PATTERN_PIPELINE_FROM;

struct Observed {
    cw_nccl_pattern pattern;
    cw_nccl_protocol protocol;
    std::uint8_t channel;
    bool is_send;
    std::int32_t peer, root;
    std::uint64_t chunk_bytes, nbytes;
    std::uint32_t nsteps;
    std::uint8_t chunk_steps, slice_steps;
    std::uint32_t call; // what it was of
    std::uint64_t payload_bytes;
};

// Rank 1 of 4, each on a node of its own.
OlderRules rules_of(std::uint32_t version) {
    OlderRules rules;
    rules.version = version;
    rules.n_ranks = 4;
    rules.is_one_rank_a_node = true;
    return rules;
}

std::vector<OpFacts> facts_of(std::uint32_t version, const std::vector<Observed> &all) {
    std::vector<OpFacts> facts;
    for (const Observed &observed : all) {
        OpFacts each;
        each.version = version;
        each.n_ranks = 4;
        each.rank = each.op.ring_index = 1;
        each.peer = observed.peer;
        each.is_send = observed.is_send;
        each.op.peer = -1;
        each.op.connection = 0x1000U + observed.channel * 64U +
                             static_cast<std::uint64_t>(observed.peer) * 2 + observed.is_send;
        each.op.pattern = static_cast<std::uint8_t>(observed.pattern);
        each.op.protocol = static_cast<std::uint8_t>(observed.protocol);
        each.op.channel = observed.channel;
        each.op.root = observed.root;
        each.op.chunk_bytes = observed.chunk_bytes;
        each.op.nbytes = observed.nbytes;
        each.op.nsteps = observed.nsteps;
        each.op.chunk_steps = observed.chunk_steps;
        each.op.slice_steps = observed.slice_steps;
        facts.push_back(each);
    }
    return facts;
}

OlderCall call_of(std::uint8_t func, std::uint64_t count, std::int32_t root = 0,
                  std::uint8_t datatype = FLOAT32, std::int32_t reduction = SUM) {
    return {func, datatype, root, reduction, count};
}

void expect(const std::optional<std::vector<OlderOp>> &found, const std::vector<Observed> &all) {
    ASSERT_TRUE(found);
    ASSERT_EQ(found->size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        SCOPED_TRACE(i);
        EXPECT_EQ((*found)[i].call, all[i].call);
        ASSERT_TRUE((*found)[i].bytes);
        EXPECT_EQ((*found)[i].bytes->payload_bytes, all[i].payload_bytes);
    }
}

void expect_collectives(std::uint32_t version, const std::vector<OlderCall> &calls,
                        const std::vector<Observed> &all) {
    expect(place_collectives(rules_of(version), calls, facts_of(version, all)), all);
}

// clang-format off
std::vector<Observed> two_channels(std::uint64_t first, std::uint64_t second) {
    return {{TWICE, SIMPLE, 0, RECEIVE, 0, 0, 2097152, 1048576, 24, 4, 2, 0, first},
            {TWICE, SIMPLE, 0, SEND, 2, 0, 2097152, 1048576, 24, 4, 2, 0, first},
            {TWICE, SIMPLE, 1, RECEIVE, 0, 0, 2097152, 1048576, 24, 4, 2, 0, second},
            {TWICE, SIMPLE, 1, SEND, 2, 0, 2097152, 1048576, 24, 4, 2, 0, second}};
}

std::vector<Observed> two_channels_of_cells() {
    return {{TWICE, SIMPLE, 0, RECEIVE, 0, 0, 2097152, 1048576, 24, 4, 2, 0, 224992},
            {TWICE, SIMPLE, 0, SEND, 2, 0, 2097152, 1048576, 24, 4, 2, 0, 224992},
            {TWICE, SIMPLE, 1, RECEIVE, 0, 0, 2097152, 1048576, 24, 4, 2, 0, 225000},
            {TWICE, SIMPLE, 1, SEND, 2, 0, 2097152, 1048576, 24, 4, 2, 0, 225000}};
}

TEST(NcclOlderPlan, OperationsThatLookAlikeAreOfTheirCalls) {
    expect_collectives(22005, {call_of(CW_NCCL_ALL_REDUCE, 75001)}, two_channels(221184, 214984));
    expect_collectives(22005, {call_of(CW_NCCL_ALL_REDUCE, 16384)}, two_channels(49152, 49152));
}

TEST(NcclOlderPlan, ThreadsCountWhereTheRestIsSharedByLines) {
    expect_collectives(22005, {call_of(CW_NCCL_ALL_REDUCE, 128, 0, 4, 1)},
                       {{TWICE, LL, 0, RECEIVE, 0, 0, 32768, 65536, 6, 1, 1, 0, 2048},
                        {TWICE, LL, 0, SEND, 2, 0, 32768, 65536, 6, 1, 1, 0, 3584}});
    expect_collectives(22005, {call_of(CW_NCCL_ALL_REDUCE, 2048, 0, FLOAT16, MAX)},
                       {{TWICE, LL, 0, RECEIVE, 0, 0, 32768, 65536, 6, 1, 1, 0, 12288},
                        {TWICE, LL, 0, SEND, 2, 0, 32768, 65536, 6, 1, 1, 0, 12288}});
}

TEST(NcclOlderPlan, RootedOnes) {
    expect_collectives(22005, {call_of(CW_NCCL_BROADCAST, 25600, 1)},
                       {{FROM, SIMPLE, 0, SEND, 2, 1, 524288, 524288, 1, 1, 1, 0, 53248},
                        {FROM, SIMPLE, 1, SEND, 2, 1, 524288, 524288, 1, 1, 1, 0, 49152}});
    const std::vector<Observed> to = {
        {CW_NCCL_PATTERN_PIPELINE_TO, SIMPLE, 0, SEND, 2, 0, 524288, 524288, 1, 1, 1, 0, 53248},
        {CW_NCCL_PATTERN_PIPELINE_TO, SIMPLE, 1, SEND, 2, 0, 524288, 524288, 1, 1, 1, 0, 49152}};
    expect_collectives(22005, {call_of(CW_NCCL_REDUCE, 25600)}, to);
    EXPECT_FALSE(place_collectives(rules_of(22005), std::vector{call_of(CW_NCCL_REDUCE, 25600, 3)},
                                   facts_of(22005, to)));
    EXPECT_FALSE(place_collectives(rules_of(22005), std::vector{call_of(CW_NCCL_BROADCAST, 25600)},
                                   facts_of(22005, to)));
}

// The largest kind and call first; each begins where the one before ends.
const std::vector<Observed> GROUP = {
    {TWICE, LL, 0, RECEIVE, 0, 0, 32768, 65536, 6, 1, 1, 3, 12288},
    {TWICE, LL, 0, SEND, 2, 0, 32768, 65536, 6, 1, 1, 3, 12288},
    {TWICE, SIMPLE, 0, RECEIVE, 0, 0, 2097152, 1048576, 24, 4, 2, 0, 73728},
    {TWICE, SIMPLE, 0, SEND, 2, 0, 2097152, 1048576, 24, 4, 2, 0, 73728},
    {TWICE, SIMPLE, 1, RECEIVE, 0, 0, 2097152, 1048576, 24, 4, 2, 0, 24576},
    {TWICE, SIMPLE, 1, SEND, 2, 0, 2097152, 1048576, 24, 4, 2, 0, 24576},
    {RING, SIMPLE, 1, RECEIVE, 0, 0, 2097152, 1048576, 12, 4, 2, 2, 49152},
    {RING, SIMPLE, 1, SEND, 2, 0, 2097152, 1048576, 12, 4, 2, 2, 49152},
    {RING, SIMPLE, 1, RECEIVE, 0, 0, 2097152, 1048576, 12, 4, 2, 1, 49152},
    {RING, SIMPLE, 1, SEND, 2, 0, 2097152, 1048576, 12, 4, 2, 1, 49152}};
const std::vector<OlderCall> GROUP_CALLS = {
    call_of(CW_NCCL_ALL_REDUCE, 16384), call_of(CW_NCCL_ALL_GATHER, 4096),
    call_of(CW_NCCL_REDUCE_SCATTER, 4096), call_of(CW_NCCL_ALL_REDUCE, 1024, 0, FLOAT32, MAX)};

TEST(NcclOlderPlan, Groups) {
    expect_collectives(22005, GROUP_CALLS, GROUP);
    expect_collectives(22005,
                       {call_of(CW_NCCL_BROADCAST, 4096, 0), call_of(CW_NCCL_BROADCAST, 4096, 1)},
                       {{FROM, SIMPLE, 0, SEND, 2, 1, 524288, 524288, 1, 1, 1, 1, 16384},
                        {FROM, SIMPLE, 1, RECEIVE, 0, 0, 524288, 524288, 1, 1, 1, 0, 16384},
                        {FROM, SIMPLE, 1, SEND, 2, 0, 524288, 524288, 1, 1, 1, 0, 16384}});
}

TEST(NcclOlderPlan, Pieces) {
    const std::vector<Observed> sends = {
        {CW_NCCL_PATTERN_SEND, SIMPLE, 0, SEND, 2, 2, 32768, 32768, 3, 1, 1, 0, 73728},
        {CW_NCCL_PATTERN_SEND, SIMPLE, 1, SEND, 2, 2, 65536, 65536, 2, 1, 1, 0, 131072}};
    expect(place_transfers(rules_of(22005), false, std::vector{call_of(CW_NCCL_SEND, 51200, 2)},
                           facts_of(22005, sends)),
           sends);
    std::vector<Observed> one = {
        {CW_NCCL_PATTERN_RECV, SIMPLE, 1, RECEIVE, 0, 0, 32768, 0, 1, 1, 1, 0, 0}};
    expect(place_transfers(rules_of(22005), false, std::vector{call_of(CW_NCCL_RECV, 0)},
                           facts_of(22005, one)),
           one);
    one[0].nbytes = one[0].payload_bytes = 16384;
    expect(place_transfers(rules_of(22005), false, std::vector{call_of(CW_NCCL_RECV, 4096)},
                           facts_of(22005, one)),
           one);
    EXPECT_FALSE(place_transfers(rules_of(22005), false, std::vector{call_of(CW_NCCL_RECV, 4097)},
                                 facts_of(22005, one)));
}
// clang-format on

TEST(NcclOlderPlan, WhatDoesNotComeToTheOperationsIsRefused) {
    const auto is_placed = [](const OlderRules &rules, const std::vector<OlderCall> &calls,
                              std::vector<Observed> all, auto change) {
        change(all);
        return place_collectives(rules, calls, facts_of(rules.version, all)).has_value();
    };
    const auto none = [](std::vector<Observed> &) {};
    ASSERT_TRUE(is_placed(rules_of(22005), GROUP_CALLS, GROUP, none));
    EXPECT_FALSE(is_placed(rules_of(21805), GROUP_CALLS, GROUP, none));
    EXPECT_FALSE(is_placed(rules_of(22403), GROUP_CALLS, GROUP, none));
    EXPECT_FALSE(is_placed(rules_of(22005), {}, GROUP, none));
    std::vector<OlderCall> calls = GROUP_CALLS;
    calls[0].count = 0;
    EXPECT_FALSE(is_placed(rules_of(22005), calls, GROUP, none));
    calls.erase(calls.begin());
    EXPECT_FALSE(is_placed(rules_of(22005), calls, GROUP, none));
    calls = GROUP_CALLS;
    calls[1].count *= 1000; // would take more steps
    EXPECT_FALSE(is_placed(rules_of(22005), calls, GROUP, none));
    EXPECT_FALSE(is_placed(rules_of(22005), GROUP_CALLS, GROUP,
                           [](std::vector<Observed> &all) { all[4].nsteps = 48; }));
    EXPECT_FALSE(is_placed(rules_of(22005), GROUP_CALLS, GROUP,
                           [](std::vector<Observed> &all) { all[9].channel = 2; }));
}

// Between the two ways in which it could be dealt out to two channels its size decides.
TEST(NcclOlderPlan, CellsOfOneCall) {
    expect_collectives(22203, {call_of(CW_NCCL_ALL_REDUCE, 75001)}, two_channels_of_cells());
}

// Only channel 0 is seen of a rank that shares its node: how many others there are matters.
TEST(NcclOlderPlan, ChannelsThatAreNotSeenMakeItUncertain) {
    const std::vector<Observed> all = {two_channels(0, 0)[0], two_channels(0, 0)[1]};
    OlderRules rules = rules_of(22005);
    rules.is_one_rank_a_node = false;
    const std::vector calls = {call_of(CW_NCCL_ALL_REDUCE, 1'000'000)};
    const auto found = place_collectives(rules, calls, facts_of(22005, all));
    ASSERT_TRUE(found);
    EXPECT_FALSE(found->front().bytes);
    rules.channels_seen = rules.most_channels = 2; // by all ranks together
    const auto known = place_collectives(rules, calls, facts_of(22005, all));
    ASSERT_TRUE(known);
    EXPECT_TRUE(known->front().bytes);
}

TEST(NcclOlderPlan, OrderOfCalls) {
    const std::vector<OlderCall> calls = {
        call_of(CW_NCCL_ALL_GATHER, 5000),  call_of(CW_NCCL_ALL_REDUCE, 100),
        call_of(CW_NCCL_ALL_REDUCE, 90000), call_of(CW_NCCL_ALL_REDUCE, 100),
        call_of(CW_NCCL_BROADCAST, 100),    call_of(CW_NCCL_ALL_REDUCE, 50, 0, INT32)};
    EXPECT_EQ(order_of_calls(rules_of(22005), calls),
              (std::vector<std::uint32_t>{2, 3, 1, 5, 0, 4}));
    EXPECT_EQ(order_of_calls(rules_of(22203), calls),
              (std::vector<std::uint32_t>{1, 3, 2, 0, 5, 4}));
}

TEST(NcclOlderPlan, ShareUnits) {
    const OlderRules rules = rules_of(22005);
    EXPECT_EQ(share_unit_bytes(rules, SIMPLE, true, 1), 4096U);
    EXPECT_EQ(share_unit_bytes(rules, LL, true, 1 << 20), 8 * 512U);
    EXPECT_EQ(share_unit_bytes(rules, LL, true, 8192), 8 * 256U);
    EXPECT_EQ(share_unit_bytes(rules, LL, false, 8192), 8 * 512U);
    EXPECT_EQ(share_unit_bytes(rules, LL, true, 1), 8 * 96U);
    EXPECT_EQ(share_unit_bytes(rules, CW_NCCL_LL128, true, 1 << 20), 480 * 20U);
    EXPECT_EQ(share_unit_bytes(rules, CW_NCCL_LL128, true, 4096), 480 * 10U);
}

TEST(NcclOlderPlan, ThreadsOfItsParameters) {
    OlderRules rules = rules_of(22005);
    const auto threads = [&rules](std::int64_t all, std::int64_t ll128) {
        set_threads(rules, all, ll128);
        return std::pair(rules.ll_threads, rules.ll128_threads);
    };
    using Pair = std::pair<std::uint64_t, std::uint64_t>;
    EXPECT_EQ(threads(-2, -2), Pair(512, 640));
    EXPECT_EQ(threads(128, 320), Pair(128, 320));
    EXPECT_EQ(threads(32, 64), Pair(64, 160)) << "the least";
    EXPECT_EQ(threads(1024, 1024), Pair(512, 640)) << "the most";
    EXPECT_EQ(threads(100, 200), Pair(512, 640)) << "no multiple of a warp";
    threads(128, 320);
    EXPECT_EQ(share_unit_bytes(rules, LL, true, 1 << 20), 8 * 128U);
    EXPECT_EQ(share_unit_bytes(rules, CW_NCCL_LL128, true, 1 << 20), 480 * 10U);
}

TEST(NcclOlderPlan, FilledChannels) {
    std::vector<std::uint64_t> used(3, 0);
    using Shares = std::vector<ChannelShare>;
    EXPECT_EQ(fill_channels(10000, 4096, 6000, used), (Shares{{0, 8192}, {1, 1808}}));
    EXPECT_EQ(fill_channels(9000, 4096, 6000, used), (Shares{{1, 8192}, {2, 808}}));
    EXPECT_EQ(used, (std::vector<std::uint64_t>{8192, 10000, 808}));
}

TEST(NcclOlderPlan, Cells) {
    using Shares = std::vector<std::vector<ChannelShare>>;
    const std::vector<OlderCall> calls = {call_of(CW_NCCL_ALL_REDUCE, 75001)};
    EXPECT_EQ(share_out(rules_of(22203), calls, 2, 2), (Shares{{{0, 150000}, {1, 150004}}}));
    EXPECT_EQ(share_out(rules_of(22203), calls, 2, 1), (Shares{{{0, 300000}, {1, 4}}}));
    EXPECT_EQ(share_out(rules_of(22304), calls, 2, 2), (Shares{{{0, 155648}, {1, 144356}}}));
    // What is left of a channel is the next call's; the last channel takes what there is.
    const std::vector<OlderCall> two = {call_of(CW_NCCL_ALL_REDUCE, 1000),
                                        call_of(CW_NCCL_ALL_GATHER, 1000)};
    EXPECT_EQ(share_out(rules_of(22203), two, 2, 2), (Shares{{{0, 4000}}, {{0, 992}, {1, 3008}}}));
    EXPECT_EQ(share_out(rules_of(22203), two, 1, 1), (Shares{{{0, 4000}}, {{0, 4000}}}));
}

TEST(NcclOlderPlan, PieceSizes) {
    EXPECT_EQ(piece_bytes(204800, 131072, 1, 2, false), 131072U);
    EXPECT_EQ(piece_bytes(204800, 131072, 2, 2, false), 131072U);
    EXPECT_EQ(piece_bytes(16384, 131072, 2, 2, false), 65536U);
    EXPECT_EQ(piece_bytes(8 << 20, 131072, 1, 4, false), 2U << 20U);
    EXPECT_EQ(piece_bytes(8 << 20, 131072, 1, 4, true), 4U << 20U);
    EXPECT_EQ(piece_bytes(100, 131072, 1, 1, true), 16384U);
}

} // namespace
} // namespace collwire::nccl
