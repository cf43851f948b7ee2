// SPDX-License-Identifier: Apache-2.0
// Calls that were captured into CUDA graphs, and the launches of those.
#include <algorithm>
#include <tuple>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/parts.h"
#include "correlate/nccl/resolve.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::uint64_t PLAN = 0x6000;
constexpr LaunchOptions REPLAY{
    .plan = PLAN, .flags = CW_NCCL_LAUNCH_GRAPH | CW_NCCL_LAUNCH_LAUNCHED, .launched = 1, .tid = 7};

const Operation &collective(const model::Model &model, std::uint64_t seq,
                            std::uint32_t replay = NONE) {
    for (const Operation &operation : model.nccl.collectives)
        if (operation.seq == seq && operation.replay == replay)
            return operation;
    ADD_FAILURE() << "no collective " << seq;
    static const Operation none;
    return none;
}

std::uint64_t of_rung(const model::Model &model, Rung rung) {
    return model.nccl.totals.by_rung[static_cast<std::size_t>(rung)];
}

std::size_t replays_of(const model::Model &model, std::uint64_t seq) {
    return static_cast<std::size_t>(
        std::count_if(model.nccl.collectives.begin(), model.nccl.collectives.end(),
                      [&](const Operation &operation) { return operation.seq == seq; }));
}

// A captured call is launched once for each start of its graph; calls like it, made meanwhile, are
// launched at once.
TEST(NcclGraphs, ReplaysOfAGraph) {
    RingPair ring;
    const CallOptions call{.count = 1000};
    ring.all_gather(12, 1000);
    for (int i = 0; i < 2; ++i)
        ring.rank[i].call(12.5, call); // captured
    ring.all_gather(13, 1000);
    for (int i = 0; i < 2; ++i)
        for (const double time : {14.0, 15.0, 16.0}) {
            ring.rank[i].launch(time, 1000, {call}, REPLAY);
            ring.sends(i, 4000);
        }
    ring.all_gather(17, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 3 + 3U);
    EXPECT_EQ(collective(model, 0).payload_bytes, 8000U);
    EXPECT_EQ(collective(model, 2).payload_bytes, 8000U);
    EXPECT_EQ(collective(model, 3).payload_bytes, 8000U);
    for (std::uint32_t i = 0; i < 3; ++i) {
        const Operation &operation = collective(model, 1, i);
        EXPECT_TRUE(operation.has(OPERATION_CAPTURED));
        EXPECT_EQ(operation.payload_bytes, 8000U);
        EXPECT_EQ(operation.rung, Rung::Exact);
        EXPECT_EQ(operation.launched_realtime_ns, ring.node[0].realtime(14.0 + i));
    }
    EXPECT_EQ(of_rung(model, Rung::Exact), 6 * 8000U);
}

// From NCCL 2.27 on a launch without a network part is not recorded. Rank 1 has none in its first
// call, or between two launches of the graph; rank 0's launch says that it was not captured.
TEST(NcclGraphs, CallsWithoutANetworkPartAreNotTakenForCapturedOnes) {
    for (const bool is_between : {false, true}) {
        RingPair ring;
        const CallOptions call{.count = 1000};
        const double own = is_between ? 14.5 : 12, captured = is_between ? 12 : 13;
        for (int i = 0; i < 2; ++i) {
            ring.rank[i].shape(11.5, 1000, {call}, ring.ops(i, 4000));
            for (const double time : {std::min(own, captured), std::max(own, captured)})
                ring.rank[i].call(time, call);
            for (const double time : {14.0, 15.0}) {
                ring.rank[i].launch(time, 1000, {call}, REPLAY);
                ring.sends(i, 4000);
            }
        }
        ring.rank[0].launch(own + 0.001, 1000, {call}, {.launched = 1});
        ring.sends(0, 4000);
        ring.sample(20);
        const model::Model model = model_of(ring.captures());
        const std::uint64_t of_graph = is_between ? 0 : 1;
        for (std::uint32_t i = 0; i < 2; ++i) {
            EXPECT_EQ(collective(model, of_graph, i).payload_bytes, 8000U);
            EXPECT_EQ(collective(model, of_graph, i).rung, Rung::Exact);
        }
        EXPECT_EQ(collective(model, 1 - of_graph).payload_bytes, 4000U) << "of rank 0";
        EXPECT_EQ(collective(model, 1 - of_graph).rung, Rung::Exact);
    }
}

// After late attach to a graph that was captured before: the only call is equal to the graph's, and
// is another. Where a launch without a network part is not recorded, nothing says so.
TEST(NcclGraphs, CallsOfGraphsAreInferredAfterLateAttach) {
    for (const std::int32_t local_ranks : {1, 2}) {
        RingPair ring({.flags = CW_NCCL_COMM_LAUNCHED, .launched = 5, .local_ranks = local_ranks});
        const CallOptions call{.count = 1000};
        LaunchOptions replay = REPLAY;
        replay.launched = 6;
        for (int i = 0; i < 2; ++i) {
            ring.rank[i].call(12, call).shape(12.5, 1000, {call}, ring.ops(i, 4000));
            ring.rank[i].launch(13, 1000, {call}, replay);
            ring.sends(i, 4000);
        }
        ring.sample(20);
        const model::Model model = model_of(ring.captures());
        const Rung expected = local_ranks == 1 ? Rung::Exact : Rung::Inferred;
        ASSERT_EQ(model.nccl.collectives.size(), 1U);
        EXPECT_EQ(model.nccl.collectives.front().rung, expected);
        EXPECT_EQ(of_rung(model, expected), 8000U);
    }
}

// A recording that ended before the others' has fewer replays.
TEST(NcclGraphs, ReplaysMissingOnOneRankArePartial) {
    RingPair ring;
    const CallOptions call{.count = 1000};
    for (int i = 0; i < 2; ++i) {
        ring.rank[i].call(12, call).shape(12, 1000, {call}, ring.ops(i, 4000));
        for (int replay = 0; replay < 3 - i; ++replay) {
            ring.rank[i].launch(13 + replay, 1000, {call},
                                {.plan = 0x6000, .flags = CW_NCCL_LAUNCH_GRAPH});
            ring.sends(i, 4000);
        }
    }
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 3U);
    EXPECT_FALSE(collective(model, 0, 1).has(OPERATION_PARTIAL));
    EXPECT_TRUE(collective(model, 0, 2).has(OPERATION_PARTIAL));
    EXPECT_EQ(collective(model, 0, 2).payload_bytes, 4000U);
}

// The graph is gone, the same was captured again, and its plan is where the old one was.
TEST(NcclGraphs, PlanInAnEarlierPlansMemoryHasItsOwnCalls) {
    RingPair ring;
    const CallOptions call{.count = 1000};
    for (int i = 0; i < 2; ++i) {
        NcclBuilder &rank = ring.rank[i];
        rank.shape(12, 1000, {call}, ring.ops(i, 4000));
        LaunchOptions again = REPLAY;
        // The other rank has a plan that was not there before.
        again.plan = i == 0 ? PLAN : PLAN + 0x1000;
        rank.call(12, call);
        for (const double time : {12.1, 12.2, 12.3})
            rank.launch(time, 1000, {call}, REPLAY);
        rank.call(13, call);
        for (const double time : {13.1, 13.2})
            rank.launch(time, 1000, {call}, again);
        ring.sends(i, std::uint64_t{5} * 4000);
    }
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    EXPECT_EQ(replays_of(model, 0), 3U);
    EXPECT_EQ(replays_of(model, 1), 2U);
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_EQ(operation.payload_bytes, 8000U);
        EXPECT_FALSE(operation.has(OPERATION_PARTIAL));
        EXPECT_EQ(operation.rung, operation.seq == 0 ? Rung::Exact : Rung::Inferred)
            << "the second capture may have never been launched";
    }
    EXPECT_EQ(collective(model, 1, 1).launched_realtime_ns, ring.node[0].realtime(13.2));
}

// Its tasks are others: nothing has to be guessed.
TEST(NcclGraphs, PlanWithOtherTasksIsAnotherPlan) {
    RingPair ring;
    const CallOptions call{.count = 1000}, other{.count = 1000, .buffer = 0x7f1111110000};
    for (int i = 0; i < 2; ++i) {
        NcclBuilder &rank = ring.rank[i];
        rank.shape(12, 1000, {call}, ring.ops(i, 4000));
        rank.call(12, call).launch(12.1, 1000, {call}, REPLAY).launch(12.2, 1000, {call}, REPLAY);
        rank.call(13, other).launch(13.1, 1000, {other}, REPLAY);
        rank.call(14, other);
        for (const double time : {14.1, 14.2, 14.3})
            rank.launch_refs(time, 1000, {{hash_of(other), 0x7777}}, REPLAY);
        ring.sends(i, std::uint64_t{6} * 4000);
    }
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    for (std::uint64_t seq = 0; seq < 3; ++seq)
        EXPECT_EQ(replays_of(model, seq), (std::array<std::size_t, 3>{2, 1, 3})[seq]);
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_EQ(operation.payload_bytes, 8000U);
        EXPECT_EQ(operation.rung, Rung::Exact);
    }
}

// Two ranks that captured equal calls, and in which order their plans play; each has 4000 bytes.
model::Model equal_calls(unsigned n_calls, const std::vector<unsigned> &plans) {
    RingPair ring;
    const CallOptions call{.count = 1000};
    for (int i = 0; i < 2; ++i) {
        NcclBuilder &rank = ring.rank[i];
        rank.shape(12, 1000, {call}, ring.ops(i, 4000));
        for (unsigned k = 0; k < n_calls; ++k)
            rank.call(12 + 0.01 * k, call);
        LaunchOptions replay = REPLAY;
        double time = 13;
        for (const unsigned plan : plans) {
            replay.plan = PLAN + std::uint64_t{0x1000} * plan;
            rank.launch(time += 0.1, 1000, {call}, replay);
        }
        ring.sends(i, 4000 * plans.size());
    }
    ring.sample(20);
    return model_of(ring.captures());
}

// As in a graph of many layers. In whatever order they were captured, each has its launches.
TEST(NcclGraphs, EqualCallsWhosePlansPlayInTurnAreExact) {
    for (const auto &plans :
         {std::vector<unsigned>{1, 2, 3, 1, 2, 3, 1, 2, 3}, std::vector<unsigned>{1, 2, 3, 1, 2},
          std::vector<unsigned>{1, 2, 3}}) {
        const model::Model model = equal_calls(3, plans);
        ASSERT_EQ(model.nccl.collectives.size(), plans.size());
        for (const Operation &operation : model.nccl.collectives) {
            EXPECT_EQ(operation.rung, Rung::Exact);
            EXPECT_EQ(operation.payload_bytes, 8000U);
        }
        EXPECT_EQ(of_rung(model, Rung::Exact), plans.size() * 8000U);
    }
}

// Some may be of a graph that was never launched, or of one that plays at other times.
TEST(NcclGraphs, EqualCallsOfOtherGraphsAreInferred) {
    for (const auto &[n_calls, plans] :
         {std::pair{3U, std::vector<unsigned>{1, 2, 1, 2}},
          std::pair{3U, std::vector<unsigned>{1, 1, 2, 3}},
          std::pair{3U, std::vector<unsigned>{1, 2, 3, 1, 3, 2}},
          std::pair{3U, std::vector<unsigned>{1, 2, 3, 1, 2, 3, 3}},
          std::pair{3U, std::vector<unsigned>{1, 2, 3, 1, 2, 3, 1, 1}}}) {
        const model::Model model = equal_calls(n_calls, plans);
        EXPECT_EQ(of_rung(model, Rung::Inferred), plans.size() * 8000U);
        EXPECT_EQ(of_rung(model, Rung::Exact), 0U);
    }
}

// Of the first of two graphs nothing is left to guess when the second is captured.
TEST(NcclGraphs, EqualCallsOfTwoGraphsOneAfterTheOther) {
    RingPair ring;
    const CallOptions call{.count = 1000};
    for (int i = 0; i < 2; ++i) {
        NcclBuilder &rank = ring.rank[i];
        rank.shape(12, 1000, {call}, ring.ops(i, 4000));
        LaunchOptions replay = REPLAY;
        for (unsigned graph = 0; graph < 2; ++graph) {
            const double at = 12 + graph;
            rank.call(at, call).call(at + 0.01, call);
            for (unsigned k = 0; k < 6; ++k) {
                replay.plan = PLAN + std::uint64_t{0x1000} * (2 * graph + k % 2);
                rank.launch(at + 0.1 * (k + 1), 1000, {call}, replay);
            }
        }
        ring.sends(i, std::uint64_t{12} * 4000);
    }
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 12U);
    EXPECT_EQ(of_rung(model, Rung::Exact), 12 * 8000U);
}

// A call like the captured one that is launched by itself, however late, was not captured again.
TEST(NcclGraphs, CallBetweenReplaysIsNotCaptured) {
    RingPair ring;
    const CallOptions call{.count = 1000};
    for (int i = 0; i < 2; ++i) {
        NcclBuilder &rank = ring.rank[i];
        rank.shape(12, 1000, {call}, ring.ops(i, 4000));
        rank.call(12, call).launch(12.1, 1000, {call}, REPLAY);
        rank.call(12.15, call);
        rank.launch(12.2, 1000, {call}, REPLAY);
        rank.launch(12.25, 1000, {call}, {.launched = 2, .tid = 7});
        rank.launch(12.3, 1000, {call}, REPLAY);
        ring.sends(i, std::uint64_t{4} * 4000);
    }
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    EXPECT_EQ(replays_of(model, 0), 3U);
    EXPECT_EQ(replays_of(model, 1), 1U);
    EXPECT_FALSE(collective(model, 1).has(OPERATION_CAPTURED));
    EXPECT_EQ(of_rung(model, Rung::Exact), 8 * 4000U);
}

TEST(NcclGraphs, LegacyPlansInEarlierPlansMemoryHaveTheirOwnCalls) {
    RingPair ring({.version = 22203});
    const CallOptions call{.func = CW_NCCL_ALL_REDUCE, .count = 100};
    for (int i = 0; i < 2; ++i) {
        NcclBuilder &rank = ring.rank[i];
        cw_nccl_op op = rank.ring({.connection = SENDS_AT, .bytes = 65536}, CW_NCCL_ALL_REDUCE);
        op.channel_bytes = 0;
        op.peer = -1;
        op.nsteps = 2;
        op.algorithm = CW_NCCL_ALGORITHM_UNKNOWN;
        op.pattern = CW_NCCL_PATTERN_RING_TWICE;
        op.ring_index = i;
        op.task = UINT32_MAX;
        rank.shape(12, 1, {}, {op});
        LaunchOptions replay = REPLAY;
        for (const double begin : {12.0, 13.0}) {
            rank.call(begin, call);
            for (const double time : {begin + 0.1, begin + 0.2, begin + 0.3}) {
                rank.launch(time, 1, {}, replay);
                ++replay.launched;
                ring.sends(i, 400);
            }
        }
    }
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    EXPECT_EQ(replays_of(model, 0), 3U);
    EXPECT_EQ(replays_of(model, 1), 3U);
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_EQ(operation.payload_bytes, 800U);
        EXPECT_EQ(operation.rung, operation.seq == 0 ? Rung::Exact : Rung::Inferred);
    }
}

// Launches without a task are replays of no call.
TEST(NcclGraphs, ReplaysCountForTheirRecordedTasks) {
    constexpr std::uint32_t CALLS = 100, REPLAYS = 1000;
    RingPair ring;
    std::vector<CallOptions> calls;
    for (std::uint32_t i = 0; i < CALLS; ++i)
        calls.push_back({.count = 1000, .buffer = i});
    ring.rank[0].shape(12, 1000, calls, ring.ops(0, 4000));
    for (const CallOptions &call : calls)
        ring.rank[0].call(12, call);
    ring.rank[0].launch(12.1, 1000, calls, REPLAY);
    for (std::uint32_t i = 0; i < REPLAYS; ++i)
        ring.rank[0].launch(13 + 0.001 * i, 1000, {}, REPLAY);
    const model::Model model = model_of(ring.captures());
    EXPECT_EQ(model.nccl.collectives.size(), CALLS);
}

TEST(NcclGraphs, ReplaysBeyondTheLimitAreCounted) {
    RingPair ring;
    const CallOptions call{.count = 1000};
    for (int i = 0; i < 2; ++i) {
        ring.rank[i].shape(12, 1000, {call}, ring.ops(i, 4000)).call(12, call);
        for (const double time : {12.1, 12.2, 12.3, 12.4})
            ring.rank[i].launch(time, 1000, {call}, REPLAY);
    }
    model::Model model = model_of(ring.captures());
    EXPECT_EQ(model.nccl.collectives.size(), 4U);
    EXPECT_EQ(model.nccl.replays_left_out, 0U);
    model.nccl.collectives.clear();
    make_operations(model, 2);
    EXPECT_EQ(model.nccl.collectives.size(), 3U);
    EXPECT_EQ(model.nccl.replays_left_out, 1U);
    const Instance &instance = model.nccl.instances[0];
    for (std::uint32_t i = 0; i < instance.n_launches; ++i) {
        const Launch &launch =
            model.nccl.gathered.streams[instance.stream].launches[instance.first_launch + i];
        EXPECT_EQ(operation_of(model.nccl, instance, launch, 0).second, i < 3 ? i : NONE);
    }
}

// No call takes what others need.
TEST(NcclGraphs, UnlistedReplaysAreSharedEvenlyByCalls) {
    RingPair ring;
    const std::size_t replays[3] = {10, 3, 10};
    for (int i = 0; i < 2; ++i)
        for (std::uint64_t of = 0; of < 3; ++of) {
            const CallOptions call{.count = 1000, .buffer = of};
            LaunchOptions replay = REPLAY;
            replay.plan = PLAN + of * 0x1000;
            NcclBuilder &rank = ring.rank[i];
            rank.shape(12, 1000 + of, {call}, ring.ops(i, 4000))
                .call(12 + 0.1 * static_cast<double>(of), call);
            for (std::size_t k = 0; k < replays[of]; ++k)
                rank.launch(13 + 0.01 * static_cast<double>(k), 1000 + of, {call}, replay);
        }
    const std::vector<std::vector<std::byte>> captures = ring.captures();
    for (const auto &[most, left, left_out] :
         {std::tuple<std::uint64_t, std::array<std::size_t, 3>, std::uint64_t>{10, {5, 3, 5}, 10},
          {2, {1, 1, 1}, 20},
          {12, {6, 3, 6}, 8},
          {20, {10, 3, 10}, 0}}) {
        SCOPED_TRACE(most);
        model::Model model = model_of(captures);
        model.nccl.collectives.clear();
        make_operations(model, most);
        EXPECT_EQ(model.nccl.replays_left_out, left_out);
        for (std::uint64_t of = 0; of < 3; ++of)
            EXPECT_EQ(replays_of(model, of), left[of]);
    }
}

// Their call is known, and so are their bytes.
TEST(NcclGraphs, BytesOfUnlistedReplaysAreCounted) {
    RingPair ring;
    const CallOptions call{.count = 1000};
    for (int i = 0; i < 2; ++i) {
        ring.rank[i].shape(12, 1000, {call}, ring.ops(i, 4000)).call(12, call);
        for (const double time : {12.1, 12.2, 12.3, 12.4, 12.5})
            ring.rank[i].launch(time, 1000, {call}, REPLAY);
        ring.sends(i, std::uint64_t{5} * 4000);
    }
    model::Model model = model_of(ring.sample(20).captures());
    NcclFacts &nccl = model.nccl;
    EXPECT_TRUE(nccl.replays.empty());
    nccl.collectives.clear();
    nccl.totals = {};
    for (Link &link : nccl.links)
        link.attributed_bytes = link.attributed_wire_bytes = 0;
    make_operations(model, 2);
    account_operations(model);
    EXPECT_EQ(nccl.collectives.size(), 3U);
    EXPECT_TRUE(nccl.unjoined.empty());
    ASSERT_EQ(nccl.replays.size(), 2U);
    for (const UnlistedLaunches &replays : nccl.replays) {
        EXPECT_EQ(replays.func, CW_NCCL_ALL_GATHER);
        EXPECT_EQ(replays.launches, 2U);
        EXPECT_EQ(replays.payload_bytes, 8000U);
        EXPECT_EQ(replays.rung, Rung::Exact);
    }
    EXPECT_EQ(of_rung(model, Rung::Exact), 2 * 5 * 4000U);
    EXPECT_EQ(of_rung(model, Rung::Inferred), 0U);
}

// What each rank sent is reported replay by replay, and call by call.
TEST(NcclGraphs, ReplaysHaveTheirOwnParts) {
    RingPair ring;
    const CallOptions calls[2] = {{.count = 1000, .buffer = 1}, {.count = 500, .buffer = 2}};
    for (int i = 0; i < 2; ++i) {
        std::vector<cw_nccl_op> ops = ring.ops(i, 4000, 0);
        for (const cw_nccl_op &op : ring.ops(i, 2000, 1))
            ops.insert(ops.begin() + 1, op);
        NcclBuilder &rank = ring.rank[i];
        rank.shape(12, 1000, {calls[0], calls[1]}, ops).call(12, calls[0]).call(12, calls[1]);
        for (const double time : {12.1, 12.2, 12.3})
            rank.launch(time, 1000, {calls[0], calls[1]}, REPLAY);
        ring.sends(i, std::uint64_t{3} * 6000);
    }
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 6U);
    const Parts parts(model);
    for (const Operation &operation : model.nccl.collectives) {
        const std::vector<Part> of_it = parts.of(operation);
        ASSERT_EQ(of_it.size(), 4U) << "of two ranks, sends and receives";
        for (const Part &part : of_it)
            if (part.is_send) {
                EXPECT_EQ(part.share.payload_bytes, operation.count * 4);
            }
    }
}

// AlltoAll of `count` floats to the other rank, without the call.
void launch_all_to_all(RingPair &ring, double time, std::uint64_t count, LaunchOptions options) {
    for (int i = 0; i < 2; ++i) {
        const CallOptions send{
            .func = CW_NCCL_ALL_TO_ALL, .count = count, .root = 1 - i, .flags = 1};
        CallOptions receive = send;
        receive.flags = 0;
        ring.rank[i]
            .shape(time, count, {send, receive},
                   {NcclBuilder::p2p(SENDS_AT, true, 1 - i, count * 4, 0),
                    NcclBuilder::p2p(RECEIVES_AT, false, 1 - i, count * 4, 1)})
            .launch(time, count, {send, receive}, options);
        ring.sends(i, count * 4);
    }
}
void call_all_to_all(RingPair &ring, double time, std::uint64_t count) {
    for (NcclBuilder &rank : ring.rank)
        rank.call(time, {.func = CW_NCCL_ALL_TO_ALL, .count = count});
}

// Of a communicator that does not block, another thread launches what was called.
TEST(NcclGraphs, CapturedAlltoAllIsSeparateFromOthers) {
    constexpr LaunchOptions elsewhere{.tid = 7};
    for (const std::uint64_t count : {50U, 70U}) {
        SCOPED_TRACE(count);
        RingPair ring;
        call_all_to_all(ring, 12, 50); // captured
        launch_all_to_all(ring, 12.5, 50, REPLAY);
        for (const double time : {13.0, 14.0}) {
            call_all_to_all(ring, time, count);
            launch_all_to_all(ring, time + 0.1, count, elsewhere);
        }
        launch_all_to_all(ring, 15, 50, REPLAY);
        ring.sample(20);
        const model::Model model = model_of(ring.captures());
        ASSERT_EQ(replays_of(model, 0), 2U);
        EXPECT_EQ(collective(model, 0, 0).payload_bytes, 400U);
        EXPECT_EQ(collective(model, 0, 1).payload_bytes, 400U);
        for (const std::uint64_t seq : {1U, 2U}) {
            EXPECT_EQ(collective(model, seq).payload_bytes, 8 * count);
            EXPECT_EQ(collective(model, seq).rung, Rung::Exact);
        }
    }
}

// The graph is started later: only the size shows whose the first launch is.
TEST(NcclGraphs, AlltoAllBeforeTheFirstReplayIsSeparatedBySize) {
    constexpr LaunchOptions elsewhere{.tid = 7};
    for (const std::uint64_t count : {50U, 70U}) {
        SCOPED_TRACE(count);
        RingPair ring;
        call_all_to_all(ring, 12, 50); // captured
        call_all_to_all(ring, 13, count);
        launch_all_to_all(ring, 13.1, count, elsewhere);
        launch_all_to_all(ring, 14, 50, REPLAY);
        ring.sample(20);
        const model::Model model = model_of(ring.captures());
        if (count == 50) {
            for (const Operation &operation : model.nccl.collectives)
                EXPECT_EQ(operation.rung, Rung::Inferred);
            continue;
        }
        EXPECT_EQ(collective(model, 0, 0).payload_bytes, 400U);
        EXPECT_EQ(collective(model, 0, 0).rung, Rung::Exact);
        EXPECT_EQ(collective(model, 1).payload_bytes, 560U);
        EXPECT_EQ(collective(model, 1).rung, Rung::Exact);
    }
}

} // namespace
} // namespace collwire::nccl
