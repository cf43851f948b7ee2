// SPDX-License-Identifier: Apache-2.0
// Calls, launches and what becomes of them.
#include "collwire/loss_records.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/nccl_model.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

TEST(NcclOperations, EachCollectiveHasItsBytes) {
    RingPair ring;
    ring.all_gather(12, 1000).sample(12.5).all_gather(13, 2000).all_gather(13.1, 3000).sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.communicators.size(), 1U);
    ASSERT_EQ(model.nccl.collectives.size(), 3U);
    for (std::uint64_t seq = 0; seq < 3; ++seq) {
        const Operation &operation = collective(model, seq);
        const std::uint64_t count = (seq + 1) * 1000;
        EXPECT_EQ(operation.count, count);
        EXPECT_EQ(operation.func, CW_NCCL_ALL_GATHER);
        EXPECT_EQ(operation.datatype, 7);
        EXPECT_EQ(operation.algorithm, CW_NCCL_RING);
        EXPECT_EQ(operation.protocol, CW_NCCL_SIMPLE);
        EXPECT_EQ(operation.n_channels, 1);
        EXPECT_EQ(operation.ranks, 2U);
        EXPECT_EQ(operation.rung, Rung::Exact);
        EXPECT_EQ(operation.seq_base, SeqBase::Creation);
        EXPECT_FALSE(operation.has(OPERATION_PARTIAL));
        EXPECT_TRUE(operation.has(OPERATION_PAYLOAD_KNOWN));
        EXPECT_EQ(operation.payload_bytes, 2 * count * 4) << "by two ranks";
        EXPECT_EQ(operation.data_bytes, 2 * count * 4);
        EXPECT_EQ(operation.sources, 1U << static_cast<unsigned>(ByteSource::Wire));
        EXPECT_EQ(operation.tiers, 1U << model::index_of(topology::Tier::Leaf));
    }
    EXPECT_EQ(of_rung(model, Rung::Exact), 2 * 6000 * 4U);
    EXPECT_EQ(of_rung(model, Rung::Inferred), 0U);
    EXPECT_EQ(of_rung(model, Rung::Process), 0U);
    EXPECT_EQ(model.nccl.control.clear_to_send_payload_bytes, 2 * 640U);
    ASSERT_EQ(model.nccl.matrix.size(), 2U);
    for (const auto &[key, cell] : model.nccl.matrix) {
        EXPECT_EQ(key.source + key.destination, 1);
        EXPECT_EQ(key.transport, CW_NCCL_TRANSPORT_IB);
        EXPECT_EQ(key.tier, topology::Tier::Leaf);
        EXPECT_EQ(cell.payload_bytes, 6000 * 4U);
        EXPECT_EQ(cell.wire_bytes, 6000 * 4U + ring.frames[0] * FRAME_HEADERS);
    }
}

TEST(NcclOperations, QueuePairsHaveTheirRoles) {
    RingPair ring;
    ring.all_gather(12, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    for (Index i = 0; i < model.qps.size(); ++i) {
        const bool sends = model.qps[i].key.qpn % 10 == 7;
        EXPECT_EQ(model.nccl.qps[i].role, sends ? Role::Data : Role::ClearToSend);
        EXPECT_EQ(model.nccl.qps[i].rung, Rung::Exact);
        const Link &link = model.nccl.links.at(model.nccl.qps[i].link);
        EXPECT_EQ(link.is_send(), sends);
        EXPECT_EQ(link.rank, model.hosts[model.qps[i].host].name == "node0" ? 0 : 1);
        EXPECT_EQ(link.peer, 1 - link.rank);
    }
}

// What could not be read with one launch was read with a later one.
TEST(NcclOperations, ConnectionReadLaterHasItsBytes) {
    RingPair ring({}, true);
    ring.all_gather(12, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.links.size(), 4U);
    EXPECT_EQ(model.nccl.totals.links_not_measured, 0U);
    for (const Link &link : model.nccl.links) {
        EXPECT_EQ(link.qps.size(), 1U);
        EXPECT_EQ(link.flags & CW_NCCL_CONNECTION_FAULT, 0U);
    }
    EXPECT_EQ(of_rung(model, Rung::Exact), 2 * 4000U);
}

// No call and no byte of them: of size 0, refused by NCCL.
TEST(NcclOperations, ZeroSizeCallsAreExactAndRejectedOnesExcluded) {
    RingPair ring;
    ring.all_gather(12, 1000);
    for (int i = 0; i < 2; ++i)
        ring.rank[i]
            .call(12.1, {.count = 0})
            .call(12.2, {.count = 77, .flags = CW_NCCL_CALL_FAILED | CW_NCCL_CALL_RETURNED});
    ring.all_gather(12.3, 2000).sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 3U) << "a refused call never was one";
    const Operation &empty = collective(model, 1);
    EXPECT_EQ(empty.count, 0U);
    EXPECT_TRUE(empty.has(OPERATION_PAYLOAD_KNOWN));
    EXPECT_EQ(empty.payload_bytes, 0U);
    EXPECT_FALSE(empty.has(OPERATION_LAUNCHED));
    EXPECT_FALSE(empty.has(OPERATION_PARTIAL));
    EXPECT_EQ(empty.rung, Rung::Exact);
    EXPECT_EQ(collective(model, 2).payload_bytes, 2 * 2000 * 4U);
    EXPECT_EQ(model.nccl.instances[0].failed_calls, 1U);
    EXPECT_EQ(of_rung(model, Rung::Exact), 2 * 3000 * 4U);
}

TEST(NcclOperations, ReturnsShowRejectedCalls) {
    constexpr std::uint32_t INVALID_USAGE = 5, IN_PROGRESS = 7;
    RingPair ring;
    for (int i = 0; i < 2; ++i)
        ring.rank[i]
            .call(11.9, {.count = 77})
            .returned(11.9, INVALID_USAGE)
            .call(12, {.count = 1000})
            .returned(12, IN_PROGRESS)
            .call(12.1, {.count = 2000})
            .returned(12.0999, INVALID_USAGE); // of no call
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 2U);
    EXPECT_EQ(collective(model, 0).count, 1000U);
    EXPECT_EQ(collective(model, 1).count, 2000U);
    EXPECT_EQ(model.nccl.instances[0].failed_calls, 1U);
    EXPECT_EQ(model.nccl.instances[0].returned_calls, 2U);
}

// NCCL refuses them whatever else there is: no return is needed to know.
TEST(NcclOperations, ImpossibleCallsAreRejected) {
    RingPair ring;
    for (int i = 0; i < 2; ++i)
        ring.rank[i]
            .call(12, {.func = CW_NCCL_BROADCAST, .root = 2}) // of two ranks
            .call(12.1, {.func = CW_NCCL_BROADCAST, .root = -1})
            .call(12.2, {.func = CW_NCCL_ALL_REDUCE, .reduction = -1})
            .call(12.3, {.func = CW_NCCL_SEND, .root = 2})
            .call(12.4, {.func = CW_NCCL_BROADCAST, .count = 5, .root = 1})
            // A window's operations have no root.
            .call(12.5, {.func = CW_NCCL_WAIT_SIGNAL, .root = -1});
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 1U);
    EXPECT_EQ(collective(model, 0).count, 5U);
    EXPECT_TRUE(model.nccl.p2p.empty());
    EXPECT_EQ(model.nccl.instances[0].failed_calls, 4U);
    EXPECT_EQ(model.nccl.instances[0].returned_calls, 0U);
}

TEST(NcclOperations, SingleRankSendsNothing) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS});
    node.usual(1);
    NcclBuilder rank(node, {.n_ranks = 1});
    rank.comm().call(12, {.count = 1000}).call(12.1, {.func = CW_NCCL_ALL_REDUCE, .count = 5});
    node.clock(20).end();
    const model::Model model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.collectives.size(), 2U);
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_TRUE(operation.has(OPERATION_PAYLOAD_KNOWN));
        EXPECT_EQ(operation.payload_bytes, 0U);
        EXPECT_FALSE(operation.has(OPERATION_PARTIAL));
    }
}

TEST(NcclOperations, SendsAndReceivesByPeerAndDirection) {
    RingPair ring;
    const auto send = [&](double time, int from, std::uint64_t count) {
        const CallOptions out{.func = CW_NCCL_SEND, .count = count, .root = 1 - from};
        const CallOptions in{.func = CW_NCCL_RECV, .count = count, .root = from};
        const std::uint64_t shape = 0x500 + count;
        ring.rank[from].call(time, out);
        ring.rank[from].shape(time, shape, {out},
                              {NcclBuilder::p2p(SENDS_AT, true, 1 - from, count * 4)});
        ring.rank[from].launch(time + 0.01, shape, {out});
        ring.rank[1 - from].call(time + 0.005, in);
        ring.rank[1 - from].shape(time, shape + 1, {in},
                                  {NcclBuilder::p2p(RECEIVES_AT, false, from, count * 4)});
        ring.rank[1 - from].launch(time + 0.01, shape + 1, {in});
        ring.sends(from, count * 4);
    };
    send(12, 0, 100);
    send(12.1, 1, 50);
    send(12.2, 0, 300);
    // To itself: never given to a proxy.
    ring.rank[0].call(12.3, {.func = CW_NCCL_SEND, .count = 9, .root = 0});
    ring.rank[0].call(12.3001, {.func = CW_NCCL_RECV, .count = 9, .root = 0});
    ring.all_gather(12.5, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 1U) << "sends do not count in seq";
    EXPECT_EQ(model.nccl.collectives[0].seq, 0U);
    ASSERT_EQ(model.nccl.p2p.size(), 4U);
    const auto p2p = [&](std::int32_t from, std::int32_t to,
                         std::uint64_t ordinal) -> const Operation & {
        for (const Operation &operation : model.nccl.p2p)
            if (operation.source == from && operation.destination == to && operation.seq == ordinal)
                return operation;
        ADD_FAILURE() << from << " to " << to << " " << ordinal;
        return model.nccl.p2p[0];
    };
    EXPECT_EQ(p2p(0, 1, 0).payload_bytes, 400U);
    EXPECT_EQ(p2p(0, 1, 1).payload_bytes, 1200U);
    EXPECT_EQ(p2p(1, 0, 0).payload_bytes, 200U);
    for (const Operation &operation : model.nccl.p2p) {
        EXPECT_FALSE(operation.has(OPERATION_PARTIAL));
        EXPECT_EQ(operation.rung, Rung::Exact);
        EXPECT_TRUE(operation.has(OPERATION_PAYLOAD_KNOWN));
    }
    EXPECT_EQ(p2p(0, 0, 0).payload_bytes, 0U);
    EXPECT_EQ(of_rung(model, Rung::Exact), 400 + 1200 + 200 + 2 * 4000U);
}

// Several calls in a group: NCCL sorts them by size, and launches them together or not.
TEST(NcclOperations, GroupMayLaunchInAnotherOrder) {
    RingPair ring;
    const CallOptions small{.count = 100, .buffer = 1};
    const CallOptions large{.count = 9000, .buffer = 2};
    const CallOptions middle{.count = 500, .buffer = 3};
    for (int i = 0; i < 2; ++i) {
        NcclBuilder &rank = ring.rank[i];
        rank.call(12, small).call(12.001, large).call(12.002, middle);
        std::vector<cw_nccl_op> ops = ring.ops(i, 9000 * 4, 0);
        for (const cw_nccl_op &op : ring.ops(i, 500 * 4, 1))
            ops.push_back(op);
        rank.shape(12, 71, {large, middle}, ops).shape(12, 72, {small}, ring.ops(i, 100 * 4));
        rank.launch(12.01, 71, {large, middle}, {.plan = 1, .launched = 2});
        rank.launch(12.011, 72, {small}, {.plan = 2, .launched = 3});
        ring.sends(i, 9600 * 4);
    }
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 3U);
    EXPECT_EQ(collective(model, 0).payload_bytes, 2 * 400U);
    EXPECT_EQ(collective(model, 1).payload_bytes, 2 * 36000U);
    EXPECT_EQ(collective(model, 2).payload_bytes, 2 * 2000U);
    EXPECT_EQ(collective(model, 0).batch, 1);
    EXPECT_EQ(collective(model, 1).batch, 2);
    for (const Operation &operation : model.nccl.collectives)
        EXPECT_EQ(operation.rung, Rung::Exact);
}

// More tasks than a launch's record has room for, and one task in several places.
TEST(NcclOperations, ManyTasksInALaunch) {
    RingPair ring;
    constexpr std::uint32_t N = 21;
    for (int i = 0; i < 2; ++i) {
        std::vector<CallOptions> tasks;
        std::vector<cw_nccl_task_ref> refs;
        std::vector<cw_nccl_op> ops;
        for (std::uint32_t n = 0; n < N; ++n) {
            const CallOptions call{.count = 100 + n % 7, .buffer = n % 7};
            if (n < 7)
                ring.rank[i].call(12 + 0.001 * n, call);
            tasks.push_back(call);
            refs.push_back({hash_of(call), n % 7 + 1});
            for (const cw_nccl_op &op : ring.ops(i, 400, n))
                ops.push_back(op);
        }
        ring.rank[i].shape(12, 99, tasks, ops).launch_refs(12.1, 99, refs, {.launched = 7});
        ring.sends(i, N * 400);
    }
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 7U);
    for (std::uint64_t seq = 0; seq < 7; ++seq) {
        EXPECT_EQ(collective(model, seq).count, 100 + seq);
        EXPECT_EQ(collective(model, seq).payload_bytes, 2 * 3 * 400U);
        EXPECT_EQ(collective(model, seq).batch, 7) << seq;
    }
}

// What NCCL makes sends and receives of is found by the order of such calls.
TEST(NcclOperations, AlltoAllIsOneCollective) {
    RingPair ring;
    const CallOptions call{.func = CW_NCCL_ALL_TO_ALL, .count = 50};
    for (int i = 0; i < 2; ++i) {
        CallOptions send = call;
        send.root = 1 - i;
        CallOptions receive = send;
        send.flags = 1; // the test's own sign
        for (const double time : {12.0, 13.0}) {
            ring.rank[i].call(time, call);
            if (time == 12.0)
                ring.rank[i].shape(time, 88, {send, receive},
                                   {NcclBuilder::p2p(SENDS_AT, true, 1 - i, 200, 0),
                                    NcclBuilder::p2p(RECEIVES_AT, false, 1 - i, 200, 1)});
            ring.rank[i].launch_refs(time + 0.01, 88, {{111, 1}, {222, 2}});
            ring.sends(i, 200);
        }
    }
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    EXPECT_TRUE(model.nccl.p2p.empty());
    ASSERT_EQ(model.nccl.collectives.size(), 2U);
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_EQ(operation.func, CW_NCCL_ALL_TO_ALL);
        EXPECT_EQ(operation.payload_bytes, 400U);
        EXPECT_EQ(operation.rung, Rung::Exact);
    }
}

// Within a node: what it did is known, and that it sent nothing.
TEST(NcclOperations, LaunchWithoutNetworkTrafficHasZeroBytes) {
    RingPair ring({.n_nodes = 1});
    const CallOptions call{.count = 1000};
    for (int i = 0; i < 2; ++i)
        ring.rank[i]
            .call(12, call)
            .shape(12, 70, {call}, {})
            .launch(12.001, 70, {call},
                    {.flags = CW_NCCL_LAUNCH_LAUNCHED | CW_NCCL_LAUNCH_LOCAL, .launched = 1});
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 1U);
    const Operation &operation = collective(model, 0);
    EXPECT_EQ(operation.algorithm, CW_NCCL_RING);
    EXPECT_EQ(operation.protocol, CW_NCCL_SIMPLE);
    EXPECT_TRUE(operation.has(OPERATION_LAUNCHED));
    EXPECT_FALSE(operation.has(OPERATION_PARTIAL));
    EXPECT_TRUE(operation.has(OPERATION_PAYLOAD_KNOWN));
    EXPECT_EQ(operation.payload_bytes, 0U);
    EXPECT_EQ(operation.rung, Rung::Exact);
}

// Its operations were lost: that is not the same as none.
TEST(NcclOperations, LaunchWithLostOperationsIsPartial) {
    RingPair ring;
    const CallOptions call{.count = 1000};
    for (int i = 0; i < 2; ++i)
        ring.rank[i].call(12, call).shape(12, 70, {call}, {}).launch(12.001, 70, {call});
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 1U);
    EXPECT_TRUE(collective(model, 0).has(OPERATION_PARTIAL));
    EXPECT_FALSE(collective(model, 0).has(OPERATION_PAYLOAD_KNOWN));
}

// A group that was open when the recording ended. If the communicator has ended, no launch is to
// come; whether there was one that is not seen is not known.
TEST(NcclOperations, CallInAnOpenGroupIsPartial) {
    for (const bool has_ended : {false, true}) {
        RingPair ring;
        ring.all_gather(12, 1000);
        for (NcclBuilder &rank : ring.rank) {
            rank.call(19, {.count = 2000});
            if (has_ended)
                rank.end(19.5);
        }
        ring.sample(20);
        const model::Model model = model_of(ring.captures());
        EXPECT_FALSE(collective(model, 0).has(OPERATION_PARTIAL));
        const Operation &last = collective(model, 1);
        EXPECT_EQ(last.has(OPERATION_PARTIAL), !has_ended);
        EXPECT_FALSE(last.has(OPERATION_PAYLOAD_KNOWN));
        EXPECT_EQ(last.rung, Rung::Process);
    }
}

// The launch of one rank is not here, or of both: it may have been lost, if some were.
TEST(NcclOperations, CallsWithPossiblyLostLaunchesArePartial) {
    for (const bool has_loss : {false, true}) {
        RingPair ring;
        const CallOptions one{.count = 1000};
        const CallOptions none{.count = 3000};
        for (int i = 0; i < 2; ++i)
            ring.rank[i].call(12, one).call(12.5, none);
        ring.rank[0].shape(12, 7, {one}, ring.ops(0, 4000)).launch(12.1, 7, {one});
        ring.sends(0, 4000);
        ring.all_gather(13, 2000).sample(20);
        if (has_loss)
            ring.node[1].loss(CW_LOSS_NCCL_LAUNCH, 0, 1);
        const model::Model model = model_of(ring.captures());
        ASSERT_EQ(model.nccl.collectives.size(), 3U);
        EXPECT_EQ(collective(model, 0).payload_bytes, 4000U);
        EXPECT_EQ(collective(model, 0).has(OPERATION_PARTIAL), has_loss);
        EXPECT_EQ(collective(model, 0).rung, has_loss ? Rung::Inferred : Rung::Exact);
        EXPECT_EQ(collective(model, 1).has(OPERATION_PARTIAL), has_loss);
        EXPECT_FALSE(collective(model, 1).has(OPERATION_PAYLOAD_KNOWN));
        EXPECT_EQ(collective(model, 1).rung, Rung::Process);
        EXPECT_FALSE(collective(model, 2).has(OPERATION_PARTIAL));
    }
}

TEST(NcclOperations, LaunchWithoutACallIsReported) {
    RingPair ring({.flags = CW_NCCL_COMM_LAUNCHED});
    const CallOptions call{.count = 1000};
    constexpr LaunchOptions replay{.plan = 0x6000, .flags = CW_NCCL_LAUNCH_GRAPH};
    for (int i = 0; i < 2; ++i) {
        ring.rank[i].shape(14, 1000, {call}, ring.ops(i, 4000));
        ring.rank[i].launch(14, 1000, {call}, replay).launch(15, 1000, {call}, replay);
        ring.sends(i, 8000);
    }
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    EXPECT_TRUE(model.nccl.collectives.empty());
    ASSERT_EQ(model.nccl.unjoined.size(), 2U);
    for (const UnlistedLaunches &unjoined : model.nccl.unjoined) {
        EXPECT_EQ(unjoined.launches, 2U);
        EXPECT_EQ(unjoined.payload_bytes, 8000U);
        EXPECT_EQ(unjoined.func, CW_NCCL_ALL_GATHER);
        EXPECT_TRUE(unjoined.captured);
        EXPECT_EQ(unjoined.rung, Rung::Exact);
    }
    EXPECT_EQ(of_rung(model, Rung::Exact), 16000U);
    EXPECT_EQ(of_rung(model, Rung::Inferred), 0U);
}

TEST(NcclOperations, TruncatedLaunchIsCounted) {
    for (const std::uint8_t flag : {CW_NCCL_LAUNCH_TRUNCATED, CW_NCCL_LAUNCH_FAULT}) {
        RingPair ring;
        ring.all_gather(12, 1000);
        const CallOptions call{.count = 5000};
        for (int i = 0; i < 2; ++i) {
            ring.rank[i].call(13, call).shape(13, 50, {call}, ring.ops(i, 20'000));
            ring.rank[i].launch(13.1, 50, {call},
                                {.flags = static_cast<std::uint8_t>(CW_NCCL_LAUNCH_LAUNCHED | flag),
                                 .launched = 2});
            ring.sends(i, 20'000);
        }
        ring.sample(20);
        const model::Model model = model_of(ring.captures());
        const bool is_truncated = flag == CW_NCCL_LAUNCH_TRUNCATED;
        EXPECT_EQ(model.nccl.ops_truncated, is_truncated ? 2U : 0U);
        const Operation &operation = collective(model, 1);
        EXPECT_EQ(operation.has(OPERATION_TRUNCATED), is_truncated);
        EXPECT_TRUE(operation.has(OPERATION_PARTIAL));
        EXPECT_EQ(operation.rung, Rung::Inferred);
        EXPECT_FALSE(collective(model, 0).has(OPERATION_TRUNCATED));
        EXPECT_EQ(of_rung(model, Rung::Inferred), 2 * 20'000U);
        expect_same_in_parts(model);
    }
}

// What NCCL hands over before a launch has left no task in it, and its calls no launch.
TEST(NcclOperations, CallsOfATruncatedLaunchArePartial) {
    RingPair ring;
    ring.all_gather(12, 1000);
    const CallOptions seen{.count = 5000}, unseen{.count = 6000};
    for (int i = 0; i < 2; ++i) {
        ring.rank[i].call(12.5, unseen).call(13, unseen).call(13.01, seen);
        ring.rank[i].shape(13.1, 50, {seen}, ring.ops(i, 1000));
        std::uint8_t flags = CW_NCCL_LAUNCH_LAUNCHED;
        if (i == 0)
            flags |= CW_NCCL_LAUNCH_TRUNCATED;
        ring.rank[i].launch(13.1, 50, {seen}, {.flags = flags, .launched = 4});
        ring.sends(i, 20'000);
        ring.rank[i].call(14, unseen);
    }
    ring.all_gather(15, 3000).sample(20);
    const model::Model model = model_of(ring.captures());
    for (const Operation &operation : model.nccl.collectives) {
        const bool is_of_it = operation.seq >= 1 && operation.seq <= 3;
        EXPECT_EQ(operation.has(OPERATION_TRUNCATED), is_of_it) << operation.seq;
        EXPECT_EQ(operation.has(OPERATION_PARTIAL), is_of_it) << operation.seq;
        // The one after it was not launched by a proxy at all.
        EXPECT_EQ(operation.rung != Rung::Exact, is_of_it || operation.seq == 4) << operation.seq;
    }
    EXPECT_EQ(model.nccl.collectives.size(), 6U);
}

// A group of two is launched in two parts, and of the second not all is seen.
TEST(NcclOperations, TruncatedSecondLaunchTruncatesTheAlltoAll) {
    RingPair ring;
    for (int i = 0; i < 2; ++i) {
        NcclBuilder &rank = ring.rank[i];
        CallOptions part{.func = CW_NCCL_ALL_TO_ALL, .count = 50, .root = 1 - i, .flags = 1};
        rank.call(12, {.func = CW_NCCL_ALL_TO_ALL, .count = 50});
        rank.call(12.01, {.func = CW_NCCL_ALL_TO_ALL, .count = 70});
        rank.shape(12.1, 88, {part}, {NcclBuilder::p2p(SENDS_AT, true, 1 - i, 200)});
        rank.launch(12.1, 88, {part});
        part.count = 70;
        rank.shape(12.2, 89, {part}, {NcclBuilder::p2p(SENDS_AT, true, 1 - i, 280)});
        rank.launch(12.2, 89, {part},
                    {.flags = CW_NCCL_LAUNCH_LAUNCHED | CW_NCCL_LAUNCH_TRUNCATED});
        ring.sends(i, 600);
    }
    ring.all_gather(15, 3000).sample(20);
    const model::Model model = model_of(ring.captures());
    for (const std::uint64_t seq : {0U, 1U}) {
        EXPECT_TRUE(collective(model, seq).has(OPERATION_TRUNCATED)) << seq;
        EXPECT_TRUE(collective(model, seq).has(OPERATION_PARTIAL)) << seq;
        EXPECT_EQ(collective(model, seq).rung, Rung::Inferred) << seq;
    }
    EXPECT_FALSE(collective(model, 2).has(OPERATION_TRUNCATED));
}

TEST(NcclOperations, TheSameFileTwiceChangesNothing) {
    RingPair ring;
    ring.all_gather(12, 1000).all_gather(12.5, 2000).sample(20);
    std::vector<std::vector<std::byte>> captures = ring.captures();
    captures.push_back(captures[0]);
    captures.push_back(captures[1]);
    const model::Model model = model_of(captures);
    EXPECT_EQ(model.nccl.communicators.size(), 1U);
    EXPECT_EQ(model.nccl.collectives.size(), 2U);
    EXPECT_EQ(of_rung(model, Rung::Exact), 2 * 12000U);
    EXPECT_EQ(model.nccl.links.size(), 4U);
}

} // namespace
} // namespace collwire::nccl
