// SPDX-License-Identifier: Apache-2.0
// Lines as PyTorch 1.12 to 2.9 writes them.
#include "correlate/find/watchdog_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "collwire/nccl_launch_records.h"
#include "correlate/find/op_types.h"
#include "correlate/find/render.h"

namespace collwire::find {
namespace {

WatchdogLine line_of(std::string_view text) {
    const auto parsed = parse_watchdog_line(text);
    EXPECT_TRUE(parsed) << text << ": " << parsed.failure().message;
    return parsed ? *parsed : WatchdogLine{};
}

TEST(WatchdogLines, OfPyTorch21HasNumberNameAndElements) {
    const WatchdogLine line = line_of(
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, "
        "OpType=ALLREDUCE, NumelIn=4194304, NumelOut=4194305, Timeout(ms)=600000) ran for 600012 "
        "milliseconds before timing out.");
    EXPECT_EQ(line.op_type, "ALLREDUCE");
    EXPECT_EQ(line.seq, 1580U);
    EXPECT_EQ(line.rank, 3);
    EXPECT_EQ(line.global_rank, std::nullopt);
    EXPECT_EQ(line.numel_in, 4194304U);
    EXPECT_EQ(line.numel_out, 4194305U);
    EXPECT_TRUE(line.is_unfinished);
    EXPECT_FALSE(line.is_p2p_seq);
}

TEST(WatchdogLines, TheLogsPrefixHasTheRankOfTheJob) {
    const WatchdogLine line = line_of(
        "[rank11]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [PG ID 2 PG GUID "
        "5(tensor_group) Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=_ALLGATHER_BASE, NumelIn=10, NumelOut=80, Timeout(ms)=600000) "
        "ran for 600081 milliseconds before timing out.");
    EXPECT_EQ(line.op_type, "_ALLGATHER_BASE");
    EXPECT_EQ(line.rank, 3);
    EXPECT_EQ(line.global_rank, 11);
    EXPECT_EQ(line.group, "PG ID 2 PG GUID 5(tensor_group)");
}

TEST(WatchdogLines, OlderOnesHaveLess) {
    const WatchdogLine shaped =
        line_of("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6, "
                "OpType=BROADCAST, TensorShape=[16, 1024], Timeout(ms)=1800000) ran for 1804406 "
                "milliseconds before timing out.");
    EXPECT_EQ(shaped.numel_in, 16384U);
    const WatchdogLine bare =
        line_of("Watchdog caught collective operation timeout: WorkNCCL(OpType=BROADCAST, "
                "Timeout(ms)=1800000) ran for 1804406 milliseconds before timing out.");
    EXPECT_EQ(bare.op_type, "BROADCAST");
    EXPECT_EQ(bare.seq, std::nullopt);
    EXPECT_EQ(bare.rank, std::nullopt);
    const WatchdogLine short_rank =
        line_of("[rank5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6, "
                "OpType=SEND, NumelIn=8, NumelOut=8, Timeout(ms)=1)");
    EXPECT_EQ(short_rank.rank, 5);
    EXPECT_EQ(short_rank.global_rank, std::nullopt);
    EXPECT_TRUE(short_rank.is_p2p_seq);
}

TEST(WatchdogLines, WithoutWorkNcclTheNumberIsThere) {
    const WatchdogLine timeout =
        line_of("[PG ID 0 PG GUID 0(default_pg) Rank 3] Timeout at NCCL work: 39, last enqueued "
                "NCCL work: 40, last completed NCCL work: 38.");
    EXPECT_EQ(timeout.seq, 39U);
    EXPECT_TRUE(timeout.is_unfinished);
    EXPECT_EQ(timeout.op_type, "");
    EXPECT_EQ(line_of("[PG 0 (default_pg) Rank 1] Exception (either an error or timeout) detected "
                      "by watchdog at work: 6463, last enqueued NCCL work: 6464")
                  .seq,
              6463U);
    EXPECT_EQ(line_of("[PG ID 1 PG GUID 1 Rank 1]  failure detected by watchdog at work sequence "
                      "id: 3 PG status: last enqueued work: 4, last completed work: 2")
                  .seq,
              3U);
}

TEST(WatchdogLines, AnEntryOfTheFlightRecorderHasThem) {
    const WatchdogLine json = line_of(
        R"({"record_id": 9, "pg_id": 1, "process_group": ["1", "dp"], "collective_seq_id": 12,
            "p2p_seq_id": 4, "profiling_name": "nccl:_all_gather_base", "input_sizes": [[4, 25]],
            "output_sizes": [[8, 25]], "state": "started", "is_p2p": false})");
    EXPECT_EQ(json.op_type, "_ALLGATHER_BASE");
    EXPECT_EQ(json.seq, 12U);
    EXPECT_EQ(json.numel_in, 100U);
    EXPECT_EQ(json.numel_out, 200U);
    EXPECT_TRUE(json.is_unfinished);
    const WatchdogLine python =
        line_of("{'collective_seq_id': 12, 'p2p_seq_id': 4, 'profiling_name': 'nccl:send 0->1', "
                "'input_sizes': ((7,),), 'state': 'completed', 'is_p2p': True}");
    EXPECT_EQ(python.op_type, "SEND");
    EXPECT_EQ(python.seq, 4U);
    EXPECT_EQ(python.numel_in, 7U);
    EXPECT_TRUE(python.is_p2p_seq);
    EXPECT_FALSE(python.is_unfinished);
}

TEST(WatchdogLines, OtherTextsAreRefusedInOneLine) {
    for (const char *text : {"", "hello", "SeqNum", "SeqNum=", "SeqNum=x", "OpType=", "XSeqNum=5",
                             "{\"collective_seq_id\": null}", "OpType=, SeqNum=-1"}) {
        const auto parsed = parse_watchdog_line(text);
        ASSERT_FALSE(parsed) << text;
        EXPECT_EQ(parsed.failure().message.find('\n'), std::string::npos);
    }
}

TEST(WatchdogLines, NumbersOutOfRangeAreNone) {
    const WatchdogLine line =
        line_of("[Rank 99999999] WorkNCCL(SeqNum=99999999999999999999, "
                "OpType=ALLREDUCE, NumelIn=18446744073709551616, NumelOut=1)");
    EXPECT_EQ(line.rank, std::nullopt);
    EXPECT_EQ(line.seq, std::nullopt);
    EXPECT_EQ(line.numel_in, std::nullopt);
}

struct Expected {
    const char *op_type;
    std::uint8_t func;
    std::uint64_t count;
};

TEST(WatchdogLines, PyTorchsNamesStandForCallsOfNccl) {
    // 24 elements in, 96 out, 4 ranks.
    for (const Expected &expected : {Expected{"ALLREDUCE", CW_NCCL_ALL_REDUCE, 24},
                                     {"BARRIER", CW_NCCL_ALL_REDUCE, 24},
                                     {"_BROADCAST_OOP", CW_NCCL_BROADCAST, 24},
                                     {"_ALLGATHER_BASE", CW_NCCL_ALL_GATHER, 24},
                                     {"ALLGATHER", CW_NCCL_ALL_GATHER, 24},
                                     {"_REDUCE_SCATTER_BASE", CW_NCCL_REDUCE_SCATTER, 96},
                                     {"ALLTOALL_BASE", CW_NCCL_ALL_TO_ALL, 6},
                                     {"RECV", CW_NCCL_RECV, 24},
                                     {"SCATTER", CW_NCCL_SCATTER, 96}}) {
        WatchdogLine line;
        line.op_type = expected.op_type;
        line.numel_in = 24;
        line.numel_out = 96;
        const OpTypeCalls calls = calls_of(line, 4);
        ASSERT_TRUE(calls.is_known) << expected.op_type;
        EXPECT_EQ(calls.calls.front().func, expected.func) << expected.op_type;
        EXPECT_EQ(calls.calls.front().count, expected.count) << expected.op_type;
    }
    WatchdogLine line;
    line.op_type = "ALLGATHER_COALESCED";
    line.numel_in = 24;
    EXPECT_EQ(calls_of(line, 4).calls.front().count, std::nullopt);
    line.op_type = "COALESCED";
    EXPECT_FALSE(calls_of(line, 4).is_known);
}

TEST(FoundOperations, HaveTheGuessedRoleOfTheirCommunicator) {
    model::Model model;
    nccl::Communicator comm;
    comm.hash = 0x11;
    comm.n_ranks = 2;
    model.nccl.communicators.push_back(comm);
    nccl::Operation operation;
    operation.comm = 0;
    operation.func = CW_NCCL_ALL_REDUCE;
    model.nccl.collectives.push_back(operation);
    FindResult result;
    result.operations.emplace_back();
    result.operations[0].communicator = result.operations[0].operation = 0;
    const auto json = [&] {
        return nlohmann::json::parse(render_json(model, {}, result, "0"))["operations"][0];
    };
    EXPECT_NE(render_text(model, {}, result).find("\n  0x0000000000000011 (2 ranks): "),
              std::string::npos);
    EXPECT_TRUE(json()["communicator_guessed_role"].is_null());
    result.operations[0].guessed_role = "tp";
    EXPECT_NE(render_text(model, {}, result).find("\n  tp? 0x0000000000000011 (2 ranks): "),
              std::string::npos);
    EXPECT_EQ(json()["communicator_guessed_role"], "tp");
    model.nccl.communicators[0].name = "data0";
    EXPECT_NE(render_text(model, {}, result).find("\n  data0 0x0000000000000011 (2 ranks): "),
              std::string::npos);
}

} // namespace
} // namespace collwire::find
