// SPDX-License-Identifier: Apache-2.0
// Which ranks are of one communicator.
#include "collwire/nccl_comm_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "correlate/nccl/comm_name.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/join_lifetimes.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::uint32_t SEEN_LATER = CW_NCCL_COMM_LAUNCHED;
constexpr std::uint32_t CREATED = CW_NCCL_COMM_CREATED | CW_NCCL_COMM_LAUNCHED;

struct Nodes {
    NodeBuilder node[2] = {
        NodeBuilder({.flags = NCCL_NODE_FLAGS}),
        NodeBuilder({.hostname = "node1", .session_id = 2, .flags = NCCL_NODE_FLAGS})};
    Nodes() {
        node[0].usual(1);
        node[1].usual(2);
    }
    NcclBuilder rank(int i, RankOptions options) {
        options.rank = i;
        options.pid = i == 0 ? 100 : 200;
        return {node[i], options};
    }
    [[nodiscard]] model::Model model() {
        for (NodeBuilder &each : node)
            each.clock(20).end();
        return model_of({node[0].bytes(), node[1].bytes()});
    }
};

TEST(NcclCommunicators, RanksWithOneHashAndLifetimeAreOneCommunicator) {
    Nodes nodes;
    nodes.rank(0, {.created = 11, .name = "tp0"}).comm().end(18);
    nodes.rank(1, {.created = 11.01, .name = "tp0"}).comm().end(18.1);
    const model::Model model = nodes.model();
    ASSERT_EQ(model.nccl.communicators.size(), 1U);
    const Communicator &comm = model.nccl.communicators[0];
    EXPECT_EQ(comm.name, "tp0");
    EXPECT_EQ(comm.hash, 0x1122334455667788U);
    EXPECT_EQ(comm.n_ranks, 2);
    EXPECT_EQ(comm.instances.size(), 2U);
    EXPECT_EQ(comm.created_realtime_ns, nodes.node[1].realtime(11.01))
        << "the last one to be ready";
    EXPECT_EQ(comm.ended_realtime_ns, nodes.node[1].realtime(18.1));
}

TEST(NcclCommunicators, ReusedHashIsAnotherCommunicator) {
    Nodes nodes;
    for (int i = 0; i < 2; ++i)
        for (const double time : {11.0, 13.0, 15.0})
            nodes.rank(i, {.comm = 0xa000, .created = time + 0.001 * i})
                .comm()
                .call(time + 0.5, {.count = 5})
                .end(time + 1);
    const model::Model model = nodes.model();
    ASSERT_EQ(model.nccl.communicators.size(), 3U);
    for (const Communicator &comm : model.nccl.communicators)
        EXPECT_EQ(comm.instances.size(), 2U);
    // Each counts from 0.
    EXPECT_EQ(model.nccl.collectives.size(), 3U);
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_EQ(operation.seq, 0U);
        EXPECT_EQ(operation.ranks, 2U);
    }
}

// Two splits of one parent with the same color, before 2.24: one hash, at the same time.
TEST(NcclCommunicators, TwoWithOneHashAtTheSameTimeAreSeparated) {
    Nodes nodes;
    for (int i = 0; i < 2; ++i) {
        nodes.rank(i, {.comm = 0xa000, .created = 11 + 0.001 * i}).comm();
        nodes.rank(i, {.comm = 0xb000, .created = 12 + 0.001 * i}).comm();
    }
    const model::Model model = nodes.model();
    ASSERT_EQ(model.nccl.communicators.size(), 2U);
    for (const Communicator &comm : model.nccl.communicators) {
        ASSERT_EQ(comm.instances.size(), 2U);
        EXPECT_EQ(model.nccl.instances[comm.instances[0]].record.comm,
                  model.nccl.instances[comm.instances[1]].record.comm);
    }
}

// Nothing shows which belongs to which: not guessed.
TEST(NcclCommunicators, AmbiguousRanksOfTwoWithOneHashStaySeparate) {
    Nodes nodes;
    for (int i = 0; i < 2; ++i) {
        nodes.rank(i, {.comm = 0xa000, .created = 11, .flags = SEEN_LATER}).comm();
        nodes.rank(i, {.comm = 0xb000, .created = 11, .flags = SEEN_LATER}).comm();
    }
    EXPECT_EQ(nodes.model().nccl.communicators.size(), 4U);
}

// The first two that began are of one only by chance.
TEST(NcclCommunicators, FirstMatchIsNotTakenIfOthersMatch) {
    Nodes nodes;
    nodes.rank(0, {.comm = 0xa000, .created = 11, .flags = SEEN_LATER}).comm();
    nodes.rank(1, {.comm = 0xb000, .created = 11.1, .flags = SEEN_LATER}).comm();
    nodes.rank(0, {.comm = 0xb000, .created = 11.2, .flags = SEEN_LATER}).comm();
    nodes.rank(1, {.comm = 0xa000, .created = 11.3, .flags = SEEN_LATER}).comm();
    EXPECT_EQ(nodes.model().nccl.communicators.size(), 4U);
}

// What is known of one leaves a single choice for the others.
TEST(NcclCommunicators, RemainingCandidateIsTheMatch) {
    Nodes nodes;
    for (int i = 0; i < 2; ++i) {
        NcclBuilder first = nodes.rank(i, {.comm = 0xa000, .flags = SEEN_LATER});
        nodes.node[i].qp(RING_QPS[i][0]).qp(RING_QPS[i][1]);
        first.comm().connection(11.2, SENDS_AT, true, 1 - i, {RING_QPS[i][0].qpn});
        first.connection(11.2, RECEIVES_AT, false, 1 - i, {RING_QPS[i][1].qpn});
        nodes.rank(i, {.comm = 0xb000, .flags = SEEN_LATER}).comm();
    }
    const model::Model model = nodes.model();
    ASSERT_EQ(model.nccl.communicators.size(), 2U);
    for (const Communicator &comm : model.nccl.communicators)
        EXPECT_EQ(comm.instances.size(), 2U);
}

// Clocks are further apart than creations, but ranks create in one order.
TEST(NcclCommunicators, CreatedInOneOrder) {
    Nodes nodes;
    for (int i = 0; i < 2; ++i)
        for (const std::uint64_t comm : {0xa000U, 0xb000U, 0xc000U})
            nodes
                .rank(i, {.comm = comm,
                          .created = 11 + static_cast<double>(comm >> 12U) * 0.001 + 0.0012 * i})
                .comm();
    const model::Model model = nodes.model();
    ASSERT_EQ(model.nccl.communicators.size(), 3U);
    for (const Communicator &comm : model.nccl.communicators) {
        ASSERT_EQ(comm.instances.size(), 2U);
        EXPECT_EQ(model.nccl.instances[comm.instances[0]].record.comm,
                  model.nccl.instances[comm.instances[1]].record.comm);
    }
}

// Two communicators use a connection and the other end shows that one of them does.
TEST(NcclCommunicators, HalfKnownSharedConnectionJoinsNoRanks) {
    Nodes nodes;
    for (int i = 0; i < 2; ++i) {
        nodes.node[i].qp(RING_QPS[i][0]).qp(RING_QPS[i][1]);
        NcclBuilder first = nodes.rank(i, {.comm = 0xa000, .flags = SEEN_LATER});
        NcclBuilder second = nodes.rank(i, {.comm = 0xb000, .flags = SEEN_LATER});
        first.comm().connection(11.2, i == 0 ? SENDS_AT : RECEIVES_AT, i == 0, 1 - i,
                                {RING_QPS[i][i].qpn});
        second.comm();
        if (i == 0)
            second.connection(11.2, SENDS_AT, true, 1, {RING_QPS[0][0].qpn});
    }
    EXPECT_EQ(nodes.model().nccl.communicators.size(), 4U);
}

// Ranks of one hash, in communicators that follow each other: as many as there are in a large job.
TEST(NcclCommunicators, ManyRanks) {
    constexpr std::int32_t n_ranks = 4096;
    std::vector<LivingGroup> groups;
    for (std::int32_t i = 0; i < 4 * n_ranks; ++i) {
        LivingGroup group;
        group.instances = {static_cast<Index>(i)};
        group.ranks = {i % n_ranks};
        group.begin_ns = group.latest_begin_ns = group.created_ns =
            NS * static_cast<std::uint64_t>(1 + i / n_ranks) +
            static_cast<std::uint64_t>(i) % 7 * 1'000'000;
        groups.push_back(std::move(group));
    }
    const std::vector<LivingGroup> joined = join_lifetimes(std::move(groups));
    ASSERT_EQ(joined.size(), 4U);
    for (const LivingGroup &group : joined)
        for (const Index index : group.instances)
            EXPECT_EQ(index / n_ranks, group.instances.front() / n_ranks);
}

TEST(NcclCommunicators, QueuePairsSeparateThem) {
    Nodes nodes;
    for (int i = 0; i < 2; ++i) {
        nodes.node[i].qp(RING_QPS[i][0]).qp(RING_QPS[i][1]);
        // The addresses are in another order on the other node.
        NcclBuilder first =
            nodes.rank(i, {.comm = i == 0 ? 0xa000U : 0xb000U, .flags = SEEN_LATER});
        NcclBuilder second =
            nodes.rank(i, {.comm = i == 0 ? 0xb000U : 0xa000U, .flags = SEEN_LATER});
        first.comm().connection(11.2, SENDS_AT, true, 1 - i, {RING_QPS[i][0].qpn});
        first.connection(11.2, RECEIVES_AT, false, 1 - i, {RING_QPS[i][1].qpn});
        second.comm();
    }
    const model::Model model = nodes.model();
    ASSERT_EQ(model.nccl.communicators.size(), 2U);
    for (const Communicator &comm : model.nccl.communicators) {
        ASSERT_EQ(comm.instances.size(), 2U);
        EXPECT_NE(model.nccl.instances[comm.instances[0]].record.comm,
                  model.nccl.instances[comm.instances[1]].record.comm);
    }
}

TEST(NcclCommunicators, PreexistingInstanceIsNotTheCreatedCommunicator) {
    Nodes nodes;
    nodes.rank(0, {.created = 10.5, .flags = SEEN_LATER}).comm().end(19);
    nodes.rank(1, {.created = 16}).comm();
    EXPECT_EQ(nodes.model().nccl.communicators.size(), 2U);
}

TEST(NcclCommunicators, ChildrenKnowTheirParents) {
    Nodes nodes;
    for (int i = 0; i < 2; ++i) {
        nodes.rank(i, {.comm = 0xa000, .created = 11}).comm();
        nodes.rank(i, {.comm = 0xb000, .hash = 0x99, .created = 12, .parent = 0xa000}).comm();
    }
    const model::Model model = nodes.model();
    ASSERT_EQ(model.nccl.communicators.size(), 2U);
    EXPECT_EQ(model.nccl.communicators[0].parent, NONE);
    EXPECT_EQ(model.nccl.communicators[1].parent, 0U);
    EXPECT_EQ(model.nccl.communicators[1].hash, 0x99U);
}

// Without its creation nothing shows whether it has one.
// Since 2.29 ranks join a communicator that grows, and have no parent themselves.
TEST(NcclCommunicators, RanksOfACommunicatorThatMayHaveGrown) {
    for (const std::uint32_t version : {22809U, 22907U}) {
        for (const std::int32_t n_ranks : {2, 3}) {
            Nodes nodes;
            for (int i = 0; i < 2; ++i)
                nodes
                    .rank(i,
                          {.n_ranks = n_ranks, .created = 11, .flags = CREATED, .version = version})
                    .comm();
            const model::Model model = nodes.model();
            ASSERT_EQ(model.nccl.communicators.size(), 1U);
            EXPECT_EQ(model.nccl.communicators[0].parent_known, version < 22900 || n_ranks == 2);
        }
    }
}

TEST(NcclCommunicators, NoParentIsKnownFromACreationAlone) {
    Nodes nodes;
    for (int i = 0; i < 2; ++i) {
        nodes.rank(i, {.comm = 0xa000, .created = 11, .flags = i == 0 ? SEEN_LATER : CREATED})
            .comm();
        nodes.rank(i, {.comm = 0xb000, .hash = 0x99, .created = 12, .flags = SEEN_LATER}).comm();
        nodes.rank(i, {.comm = 0xc000, .hash = 0x9a, .created = 13, .parent = 0xd000}).comm();
        nodes.rank(i, {.comm = 0xe000, .hash = 0x9b, .created = 14, .parent = 0xb000}).comm();
    }
    const model::Model model = nodes.model();
    ASSERT_EQ(model.nccl.communicators.size(), 4U);
    EXPECT_TRUE(model.nccl.communicators[0].parent_known) << "one rank knows it";
    EXPECT_FALSE(model.nccl.communicators[1].parent_known);
    EXPECT_FALSE(model.nccl.communicators[2].parent_known) << "one that is in no capture";
    EXPECT_TRUE(model.nccl.communicators[3].parent_known);
    EXPECT_EQ(model.nccl.communicators[3].parent, 1U);
}

// NCCL keeps a pointer to the caller's text, which may be something else by then.
TEST(NcclCommunicators, NamesThatWereReadLater) {
    const auto name_of = [](std::string_view a, std::string_view b, std::uint32_t b_flags) {
        Nodes nodes;
        nodes.rank(0, {.flags = SEEN_LATER, .name = a}).comm();
        nodes.rank(1, {.flags = b_flags, .name = b}).comm();
        const model::Model model = nodes.model();
        return model.nccl.communicators.size() == 1 ? model.nccl.communicators[0].name : "(two)";
    };
    EXPECT_EQ(name_of("tp0", "tp0", SEEN_LATER), "tp0");
    EXPECT_EQ(name_of("tp0", "", SEEN_LATER), "tp0");
    EXPECT_EQ(name_of("\x01", "\x01", SEEN_LATER), "");
    EXPECT_EQ(name_of("tp0", "\x01", SEEN_LATER), "");
    EXPECT_EQ(name_of("tp0", "/home/a/key", SEEN_LATER), "") << "ranks do not agree";
    EXPECT_EQ(name_of("/home/a/key", "tp0", CREATED), "tp0") << "the text was needed then";
}

TEST(NcclCommunicators, NamesAreText) {
    const auto alone = [](const std::string &text) {
        const ReadName name{text, true};
        return agreed_name({&name, 1});
    };
    EXPECT_EQ(alone("tensor parallel, 3"), "tensor parallel, 3");
    EXPECT_EQ(alone("caf\xc3\xa9 \xe2\x82\xac"), "caf\xc3\xa9 \xe2\x82\xac");
    for (const char *text : {"a\x1b[31m", "a\x7f", "a\tb", "\xc2\x85", "\xff\xfe", "\xc0\xaf",
                             "caf\xc3", "\xed\xa0\x80"})
        EXPECT_EQ(alone(text), "") << text;
    // As long as there is room for: the last character is not all there.
    const std::string room(CW_NAME_BYTES - 2, 'x');
    EXPECT_EQ(alone(room + "\xc3"), room);
    EXPECT_EQ(alone(room + "\xff"), "");
    EXPECT_EQ(alone(room.substr(1) + "\xc3\xa9"), room.substr(1) + "\xc3\xa9");
    EXPECT_EQ(alone(room.substr(1) + "\xe2\x82"), room.substr(1));
}

// Read from the outside first, discovered in a call later, emitted again in a later segment: one.
TEST(NcclCommunicators, RepeatedRecordsCountOnce) {
    Nodes nodes;
    NcclBuilder rank = nodes.rank(0, {.created = 11, .flags = SEEN_LATER | CW_NCCL_COMM_OUTSIDE});
    rank.comm().call(12, {.count = 5});
    cw_nccl_comm again = rank.comm_record();
    again.header.time_ns = seconds(13);
    again.flags = SEEN_LATER;
    set_text(again.name, "named");
    nodes.node[0].add(again);
    rank.call(14, {.count = 6});
    const model::Model model = nodes.model();
    ASSERT_EQ(model.nccl.communicators.size(), 1U);
    EXPECT_EQ(model.nccl.communicators[0].name, "named");
    EXPECT_EQ(model.nccl.instances.size(), 1U);
    EXPECT_EQ(model.nccl.instances[0].n_calls, 2U);
}

// The record of an end was lost; the address is another communicator's now.
TEST(NcclCommunicators, ReusedAddressEndsTheEarlierCommunicator) {
    Nodes nodes;
    nodes.rank(0, {.comm = 0xa000, .created = 11}).comm().call(12, {.count = 5});
    nodes.rank(0, {.comm = 0xa000, .created = 13}).comm().call(14, {.count = 6});
    const model::Model model = nodes.model();
    ASSERT_EQ(model.nccl.communicators.size(), 2U);
    EXPECT_EQ(model.nccl.collectives.size(), 2U);
    EXPECT_EQ(model.nccl.collectives[1].seq, 0U);
}

TEST(NcclCommunicators, CallsWithoutACommunicatorAreCounted) {
    Nodes nodes;
    NcclBuilder rank = nodes.rank(0, {.created = 11});
    rank.call(12, {.count = 5}).call(13, {.count = 6});
    const model::Model lost = nodes.model();
    EXPECT_EQ(lost.nccl.orphans, 2U);
    EXPECT_TRUE(lost.nccl.collectives.empty());
}

TEST(NcclCommunicators, DifferingParameterIsListedByRank) {
    Nodes nodes;
    for (int i = 0; i < 2; ++i) {
        nodes.rank(i, {}).comm();
        for (const auto &[name, value] : {std::pair{"IbQpsPerConn", 1 + i}, {"IbTimeout", 20}}) {
            auto param = make_record<cw_nccl_param>(CW_KIND_NCCL_PARAM, seconds(11));
            param.tgid = i == 0 ? 100 : 200;
            param.image_id = 1;
            param.value = value;
            set_text(param.name, name);
            nodes.node[i].add(param);
        }
    }
    const model::Model model = nodes.model();
    const auto params = params_of(model.nccl, model.nccl.communicators[0]);
    EXPECT_EQ(params.at("IbTimeout"), (ParamValues{{20, {0, 1}}}));
    EXPECT_EQ(params.at("IbQpsPerConn"), (ParamValues{{1, {0}}, {2, {1}}}));
}

} // namespace
} // namespace collwire::nccl
