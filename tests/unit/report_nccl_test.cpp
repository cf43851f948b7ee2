// SPDX-License-Identifier: Apache-2.0
// What the reports say of NCCL, in addition to whole recordings (report_golden_test).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <sstream>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "correlate/report/comm_groups.h"
#include "correlate/report/json_report.h"
#include "correlate/report/text_report.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::report {
namespace {

using namespace collwire::test;

nlohmann::json json_of(const model::Model &model, bool detail) {
    std::ostringstream out;
    write_json(model, out, {.detail = detail});
    return nlohmann::json::parse(out.str());
}

// The line of a text that has `word` in it.
std::string line_with(const std::string &text, std::string_view word) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.find(word) != std::string::npos)
            return line;
    return {};
}

TEST(ReportNccl, CallsOfOneLaunchNameTheSameLaunch) {
    RingPair ring;
    ring.all_gather(12, 1000);
    const CallOptions first{.count = 2000, .buffer = 1};
    const CallOptions second{.count = 3000, .buffer = 2};
    for (int i = 0; i < 2; ++i) {
        NcclBuilder &rank = ring.rank[i];
        rank.call(13, first).call(13.1, second);
        auto ops = ring.ops(i, 8000);
        for (const cw_nccl_op &op : ring.ops(i, 12000, 1))
            ops.push_back(op);
        rank.shape(13.2, 77, {first, second}, ops).launch(13.2, 77, {first, second});
        ring.sends(i, 20000);
    }
    ring.sample(20);
    const auto json = json_of(model_of(ring.captures()), true);
    ASSERT_EQ(json.at("collectives").size(), 3U);
    for (const auto &collective : json.at("collectives"))
        ASSERT_EQ(collective.at("calls").size(), 2U);
    const auto call = [&](std::size_t operation, std::size_t rank) {
        return json.at("collectives").at(operation).at("calls").at(rank);
    };
    for (std::size_t rank = 0; rank < 2; ++rank) {
        EXPECT_EQ(call(1, rank).at("rank"), rank);
        EXPECT_EQ(call(1, rank).at("op"), "AllGather");
        EXPECT_EQ(call(1, rank).at("stream"), "0x5151");
        EXPECT_EQ(call(1, rank).at("thread"), 1);
        EXPECT_TRUE(call(1, rank).at("called_realtime_ns").is_number());
        EXPECT_EQ(call(1, rank).at("launch"), call(2, rank).at("launch"));
        EXPECT_NE(call(1, rank).at("launch"), call(0, rank).at("launch"));
    }
    EXPECT_FALSE(
        json_of(model_of(ring.captures()), false).at("collectives").at(0).contains("calls"));
}

TEST(ReportNccl, InferredOperationsNameTheirEvidence) {
    RingPair exact;
    exact.all_gather(12, 1000);
    exact.sample(20);
    const model::Model of_own = model_of(exact.captures());
    EXPECT_EQ(json_of(of_own, false).at("nccl").at(0).at("basis"),
              "the file's own symbols and DWARF");
    EXPECT_EQ(text_report(of_own, {}).find("operations are inferred"), std::string::npos);

    RingPair borrowed(
        {.basis = "layouts of another build of 2.28.9 (0b0b)", .operations = CW_RUNG_INFERRED});
    borrowed.all_gather(12, 1000);
    borrowed.sample(20);
    const model::Model of_other = model_of(borrowed.captures());
    EXPECT_EQ(json_of(of_other, false).at("nccl").at(1).at("basis"),
              "layouts of another build of 2.28.9 (0b0b)");
    EXPECT_EQ(
        line_with(text_report(of_other, {.width = 200}), "operations are inferred"),
        "  NCCL 2.28.9 on 2 hosts: operations are inferred; evidence: layouts of another build of "
        "2.28.9 (0b0b)");

    RingPair silent({.basis = "", .operations = CW_RUNG_INFERRED}); // a capture before schema 1.5
    silent.all_gather(12, 1000);
    silent.sample(20);
    const model::Model of_none = model_of(silent.captures());
    EXPECT_TRUE(json_of(of_none, false).at("nccl").at(0).at("basis").is_null());
    EXPECT_EQ(text_report(of_none, {}).find("operations are inferred"), std::string::npos);
}

TEST(ReportNccl, EachReplayHasItsLaunch) {
    RingPair ring;
    const CallOptions captured{.count = 500, .buffer = 3};
    for (int i = 0; i < 2; ++i) {
        ring.rank[i].call(14, captured).shape(14.5, 500, {captured}, ring.ops(i, 2000));
        for (const double time : {14.5, 15.0})
            ring.rank[i].launch(time, 500, {captured},
                                {.plan = 0x6000, .flags = CW_NCCL_LAUNCH_GRAPH, .tid = 7});
        ring.sends(i, 4000);
    }
    // One that nothing was launched for.
    ring.rank[0].call(16, {.func = CW_NCCL_BROADCAST, .count = 5});
    ring.sample(20);
    const auto json = json_of(model_of(ring.captures()), true);
    ASSERT_EQ(json.at("collectives").size(), 3U);
    const auto launch = [&](std::size_t operation) {
        return json.at("collectives").at(operation).at("calls").at(0).at("launch");
    };
    EXPECT_EQ(launch(0), 0);
    EXPECT_EQ(launch(1), 1);
    EXPECT_TRUE(launch(2).is_null());
}

TEST(ReportNccl, ListsCallsWithoutAnOperation) {
    RingPair ring;
    ring.all_gather(12, 1000);
    for (int i = 0; i < 2; ++i)
        for (int times = 0; times <= i; ++times)
            ring.rank[i].call(13 + 0.1 * times, {.func = CW_NCCL_PUT_SIGNAL});
    ring.rank[0].call(14, {.func = CW_NCCL_WAIT_SIGNAL, .root = -1});
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    EXPECT_EQ(json_of(model, false).at("other_calls"), nlohmann::json::parse(R"([
        {"comm": 0, "rank": 0, "op": "PutSignal", "calls": 1},
        {"comm": 0, "rank": 0, "op": "WaitSignal", "calls": 1},
        {"comm": 0, "rank": 1, "op": "PutSignal", "calls": 2}])"));
    EXPECT_NE(text_report(model, {.width = 120})
                  .find("4 call(s) that belong to no operation below: PutSignal, WaitSignal"),
              std::string::npos);
}

TEST(ReportNccl, OperationsWithUnknownBytesDoNotLowerTheCertainty) {
    RingPair ring;
    ring.all_gather(12, 1000).all_gather(13, 1000).all_gather(14, 2000).sample(20);
    model::Model model = model_of(ring.captures());
    const auto row = [&](std::string_view word) {
        return line_with(text_report(model, {.width = 200}), word);
    };
    EXPECT_NE(row("3.91 KiB").find(" exact "), std::string::npos);
    EXPECT_EQ(row("unknown"), "");
    nccl::Operation &unknown = model.nccl.collectives[1];
    unknown.flags &= static_cast<std::uint16_t>(~nccl::OPERATION_PAYLOAD_KNOWN);
    unknown.rung = nccl::Rung::Process;
    EXPECT_NE(row("3.91 KiB").find(" 2 (1) "), std::string::npos) << row("3.91 KiB");
    EXPECT_NE(row("3.91 KiB").find(" exact "), std::string::npos) << row("3.91 KiB");
    EXPECT_NE(row("AllGather  7.81 KiB").find(" 1  "), std::string::npos);
    EXPECT_NE(row("(unknown): "), "");
    nccl::Operation &other = model.nccl.collectives[0];
    other.flags &= static_cast<std::uint16_t>(~nccl::OPERATION_PAYLOAD_KNOWN);
    EXPECT_NE(row("3.91 KiB").find(" 2 (2) "), std::string::npos) << row("3.91 KiB");
    EXPECT_EQ(row("3.91 KiB").find(" exact "), std::string::npos) << row("3.91 KiB");
}

// The payload of the communicator.
TEST(ReportNccl, UnknownBytesAreNotZero) {
    RingPair ring;
    ring.all_gather(12, 1000).all_gather(13, 2000).sample(20);
    model::Model model = model_of(ring.captures());
    const auto row = [&] { return line_with(text_report(model, {.width = 200}), "node0,node1  "); };
    EXPECT_TRUE(row().ends_with("  23.44 KiB")) << row();
    for (nccl::Operation &operation : model.nccl.collectives) {
        operation.flags &= static_cast<std::uint16_t>(~nccl::OPERATION_PAYLOAD_KNOWN);
        operation.payload_bytes = 0;
    }
    EXPECT_TRUE(row().ends_with("  n/a")) << row();
    model.nccl.collectives.clear();
    EXPECT_TRUE(row().ends_with("  0 B")) << row();
}

TEST(ReportNccl, UnknownRankIsAQuestionMark) {
    RingPair ring;
    ring.all_gather(12, 1000).sample(20);
    model::Model model = model_of(ring.captures());
    model.nccl.matrix.clear();
    for (std::int32_t rank = 0; rank < 20; ++rank) {
        model.nccl.matrix[{.comm = 0, .source = -1, .destination = rank}].payload_bytes = 7168;
        model.nccl.matrix[{.comm = 0, .source = rank, .destination = -1}].payload_bytes = 5120;
    }
    EXPECT_TRUE(json_of(model, false).at("matrix").at(0).at("src_rank").is_null());
    const std::string text = text_report(model, {.width = 120});
    EXPECT_NE(line_with(text, "7.00 KiB").find('?'), std::string::npos);
    EXPECT_EQ(line_with(text, "7.00 KiB").find("-1"), std::string::npos);
    EXPECT_EQ(line_with(text, "5.00 KiB").find("-1"), std::string::npos);
}

// Far more queue pairs and channels of one connection than NCCL makes.
TEST(ReportNccl, NicsAndQueuePairsOfAConnectionAreBounded) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS});
    node.usual(1);
    NcclBuilder rank(node, {});
    rank.comm();
    std::uint32_t qpn = 1000;
    const auto next = [&] {
        node.qp({.qpn = ++qpn, .local = 1, .remote = 2, .remote_qpn = qpn, .pid = 100});
        return qpn;
    };
    const std::uint32_t shared = next();
    for (std::uint32_t i = 0; i < 100; ++i)
        rank.connection(11.2, SENDS_AT + i, true, 1,
                        {shared, next(), next(), next(), next(), next(), next(), next()},
                        static_cast<std::int32_t>(i));
    const CallOptions call{.count = 1000};
    rank.call(12, call).shape(12, 1, {call}, {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
    rank.launch(12.1, 1, {call});
    const model::Model model = model_of({node.clock(20).end().bytes()});
    ASSERT_EQ(model.nccl.links.size(), 1U);
    EXPECT_EQ(model.nccl.links[0].qps.size(), 512U);
    EXPECT_TRUE(model.nccl.links[0].is_cut_short);
    const auto json = json_of(model, true);
    std::size_t nics = 0;
    for (const auto &channel : json.at("communicators").at(0).at("channels"))
        nics += channel.at("nics").size();
    EXPECT_EQ(nics, 2048U);
    EXPECT_EQ(json.at("collectives").at(0).at("parts").at(0).at("qpns").size(), 512U);
}

// Each segment of a recording has the channels again.
TEST(ReportNccl, RepeatedChannelRecordsCountOnce) {
    RingPair ring;
    for (int segment = 0; segment < 300; ++segment)
        for (std::uint32_t channel = 0; channel < 2; ++channel)
            ring.rank[0].channel(11.5 + 0.0001 * channel, channel, {0, 1});
    const auto json = json_of(model_of(ring.captures()), false);
    const auto &channels = json.at("communicators").at(0).at("channels");
    ASSERT_EQ(channels.size(), 2U);
    for (const auto &channel : channels) {
        EXPECT_EQ(channel.at("tree").size(), 1U);
        EXPECT_EQ(channel.at("ring").size(), 2U);
    }
}

TEST(ReportNccl, NamesAndParents) {
    RingPair met({.flags = CW_NCCL_COMM_LAUNCHED, .name = "\x01"});
    const model::Model model = model_of(met.captures());
    const auto comm = json_of(model, false).at("communicators").at(0);
    EXPECT_TRUE(comm.at("name").is_null());
    EXPECT_TRUE(comm.at("parent").is_null());
    EXPECT_EQ(comm.at("parent_known"), false);
    EXPECT_NE(line_with(text_report(model, {.width = 120}), "node0,node1  ").find("  ?  "),
              std::string::npos);
    RingPair created;
    EXPECT_EQ(
        json_of(model_of(created.captures()), false).at("communicators").at(0).at("parent_known"),
        true);
}

TEST(ReportNccl, CommunicatorsOfOneNameAreAGroup) {
    nccl::NcclFacts facts;
    facts.communicators.resize(5);
    facts.communicators[0].name = "data";
    facts.communicators[1].name = "world";
    facts.communicators[2].name = "data";
    std::vector<roles::RoleGuess> guesses(5); // the last two have neither a name nor a guess
    CommGroups groups(facts, guesses);
    EXPECT_EQ(groups.first_of(2), 0U);
    EXPECT_EQ(groups.title_of(0), "data x 2");
    EXPECT_EQ(groups.title_of(1), "1 world");
    EXPECT_EQ(groups.first_of(4), 4U);
    guesses[3].role = guesses[4].role = roles::GuessedRole::TensorParallel;
    EXPECT_EQ(CommGroups(facts, guesses).title_of(3), "tp? x 2");
}

} // namespace
} // namespace collwire::report
