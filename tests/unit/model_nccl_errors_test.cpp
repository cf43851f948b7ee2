// SPDX-License-Identifier: Apache-2.0
// What went wrong, as one line for each thing.
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_error_records.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "correlate/nccl/error_text.h"
#include "correlate/nccl/warning_text.h"
#include "correlate/report/text_report.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::uint32_t REMOTE_ERROR = 6, SYSTEM_ERROR = 2; // ncclResult_t
constexpr std::string_view COMPLETION =
    "NET/IB: Got completion from peer 10.0.0.2<4000> with status=IBV_WC_RETRY_EXC_ERR(12) "
    "opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=0 req_type=Send localGid ::ffff:10.0.0.1 "
    "remoteGids::ffff:10.0.0.2 hca rxe0";

// A ring of two whose second operation does not end.
struct Broken {
    RingPair ring;

    Broken() {
        ring.all_gather(12, 1000).all_gather(13, 2000);
        for (NcclBuilder &rank : ring.rank)
            for (const std::uint64_t connection : {SENDS_AT, RECEIVES_AT})
                rank.steps(12.5, connection, 1).steps(13.5, connection, 2, CW_NCCL_STEPS_BUSY);
    }
    static std::uint32_t pid(int rank) { return rank == 0 ? 100 : 200; }

    Broken &result(int rank, double time, double before, std::uint32_t result = REMOTE_ERROR,
                   std::uint32_t of = CW_NCCL_RESULT_OF_PROXY) {
        auto record = make_record<cw_nccl_result>(CW_KIND_NCCL_RESULT, seconds(time));
        record.comm = ring.rank[rank].comm_record().comm;
        record.before_ns = seconds(before);
        record.tgid = pid(rank);
        record.result = result;
        record.of = of;
        ring.rank[rank].node().add(record);
        return *this;
    }
    Broken &text(int rank, double time, double before, std::string_view text) {
        auto record = make_record<cw_nccl_last_error>(CW_KIND_NCCL_LAST_ERROR, seconds(time));
        record.before_ns = seconds(before);
        record.tgid = pid(rank);
        set_text(record.text, text);
        ring.rank[rank].node().add(record);
        return *this;
    }
    Broken &warning(int rank, double time, std::string_view format, std::string_view earlier) {
        auto record = make_record<cw_nccl_warning>(CW_KIND_NCCL_WARNING, seconds(time), 0);
        record.tgid = pid(rank);
        record.tid = 77;
        record.line = 42;
        set_text(record.file, "transport/net_ib.cc");
        set_text(record.format, format);
        set_text(record.earlier, earlier);
        ring.rank[rank].node().add(record);
        return *this;
    }
    // `send`: the queue pair that sends; found by a look, or set by its owner.
    Broken &queue_pair(int rank, double time, bool send, bool is_found = true) {
        cw_qp_event event =
            NodeBuilder::qp_event(RING_QPS[rank][send ? 0 : 1], CW_KIND_QP_STATE, time);
        event.old_state = 3;
        event.new_state = 6;
        event.attr_mask = is_found ? 0 : 1;
        event.flags = is_found ? std::uint32_t{CW_QP_FROM_NETLINK} : 0U;
        ring.rank[rank].node().add(event);
        return *this;
    }
    Broken &destroyed(int rank, double time) {
        for (const QpOptions &qp : RING_QPS[rank])
            ring.rank[rank].node().add(NodeBuilder::qp_event(qp, CW_KIND_QP_DESTROY, time));
        return *this;
    }
    Broken &gone(int rank, double there, double gone) {
        auto record = make_record<cw_nccl_process>(CW_KIND_NCCL_PROCESS, seconds(gone));
        record.tgid = pid(rank);
        record.image_id = 1;
        record.there_ns = seconds(there);
        record.gone_ns = seconds(gone);
        ring.rank[rank].node().add(record);
        return *this;
    }
    // What a rank has under way ends.
    Broken &done(int rank, double time) {
        for (const std::uint64_t connection : {SENDS_AT, RECEIVES_AT})
            ring.rank[rank].steps(time, connection, 2);
        return *this;
    }
    std::vector<NcclError> errors() {
        model = model_of(ring.captures());
        return model.nccl.errors;
    }
    model::Model model;
};

bool has(const std::string &text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

TEST(NcclErrors, NoSignNoError) {
    EXPECT_TRUE(Broken{}.errors().empty());
    // A process that ends without ending its communicators, and no other has an error.
    EXPECT_TRUE(Broken{}.done(0, 13.8).gone(1, 13.5, 14).errors().empty());
    EXPECT_TRUE(Broken{}.destroyed(1, 14).errors().empty());
}

TEST(NcclErrors, ResultTextAndQueuePairAreOneError) {
    Broken broken;
    broken.result(0, 14, 13).text(0, 14, 13, COMPLETION).queue_pair(0, 14.2, true);
    const auto errors = broken.errors();
    ASSERT_EQ(errors.size(), 1U);
    const NcclError &error = errors[0];
    EXPECT_EQ(error.kind, ErrorKind::QueuePairs);
    EXPECT_EQ(error.order, ErrorOrder::First);
    EXPECT_EQ(error.tgid, 100U);
    EXPECT_EQ(error.result, REMOTE_ERROR);
    EXPECT_EQ(error.status, 12U);
    EXPECT_EQ(error.after_ns, seconds(13));
    EXPECT_EQ(error.time_ns, seconds(14));
    ASSERT_EQ(error.qps.size(), 1U);
    EXPECT_EQ(peer_of(broken.model.nccl, error), 1);
    ASSERT_NE(error.instance, NONE);
    EXPECT_EQ(broken.model.nccl.instances[error.instance].record.rank, 0);
    ASSERT_NE(error.operation, NONE);
    EXPECT_TRUE(error.is_under_way);
    EXPECT_EQ(broken.model.nccl.collectives[error.operation].seq, 1U);
    const std::string text = error_text(broken.model, error);
    for (const char *part : {"queue pair 17 of rxe0 to rank 1", "is in error, in AllGather 1",
                             "ncclRemoteError", "IBV_WC_RETRY_EXC_ERR"})
        EXPECT_PRED2(has, text, part);
    const std::string report = report::text_report(broken.model, {});
    EXPECT_PRED2(has, report, "Errors (UTC)");
    EXPECT_EQ(report.find("Got completion"), report.rfind("Got completion")) << "said once";
}

// Two queue pairs of one rank, to one peer, are one line; what its owner sets to error is none.
TEST(NcclErrors, QueuePairsToOnePeerAreOneError) {
    Broken broken;
    broken.queue_pair(0, 14, true).queue_pair(0, 14, false).queue_pair(1, 15, true, false);
    const auto errors = broken.errors();
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_EQ(errors[0].qps.size(), 2U);
    EXPECT_EQ(errors[0].result, 0U);
    EXPECT_TRUE(broken.model.nccl.links[errors[0].link].is_send());
}

TEST(NcclErrors, CommunicatorCopiesItsProxysError) {
    Broken same;
    same.result(0, 14, 13).result(0, 15, 14, REMOTE_ERROR, CW_NCCL_RESULT_OF_COMM);
    EXPECT_EQ(same.errors().size(), 1U);
    Broken another;
    another.result(0, 14, 13).result(0, 15, 14, SYSTEM_ERROR, CW_NCCL_RESULT_OF_COMM);
    EXPECT_EQ(another.errors().size(), 2U);
}

// A look comes once a second: the end of a rank is found at the same time as what the other says.
TEST(NcclErrors, ExitedRankPrecedesTheErrorsOfOthers) {
    Broken broken;
    broken.result(0, 14, 13).text(0, 14, 13, COMPLETION).queue_pair(0, 14.2, true);
    broken.gone(1, 13.4, 14.4).destroyed(1, 13.8);
    const auto errors = broken.errors();
    ASSERT_EQ(errors.size(), 2U);
    EXPECT_EQ(errors[0].order, ErrorOrder::Follows);
    EXPECT_EQ(errors[1].kind, ErrorKind::Ended);
    EXPECT_EQ(errors[1].order, ErrorOrder::First);
    EXPECT_TRUE(errors[1].is_under_way);
    EXPECT_PRED2(has, error_text(broken.model, errors[1]), "its process exited");
}

// Over RDMA the others learn nothing of it: they stay where they are.
TEST(NcclErrors, ExitWhileOthersWaitIsAnError) {
    const auto wait_until = [](Broken &broken, double time) {
        for (const std::uint64_t connection : {SENDS_AT, RECEIVES_AT})
            broken.ring.rank[0].steps(time, connection, 2, CW_NCCL_STEPS_BUSY);
        broken.gone(1, 13.6, 14).destroyed(1, 13.7);
    };
    Broken finishing;
    wait_until(finishing, 14.5);
    EXPECT_TRUE(finishing.done(0, 15).errors().empty());
    Broken broken;
    wait_until(broken, 14.5); // and no other is reported to the end of the recording
    const auto errors = broken.errors();
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_EQ(errors[0].kind, ErrorKind::Ended);
    EXPECT_EQ(errors[0].order, ErrorOrder::First);
    EXPECT_EQ(errors[0].tgid, 200U);
    EXPECT_TRUE(errors[0].is_under_way);
    EXPECT_EQ(errors[0].waiting, std::vector<std::int32_t>{0});
    EXPECT_EQ(errors[0].qps.size(), 2U);
    const std::string text = error_text(broken.model, errors[0]);
    for (const char *part : {"of rxe0 to rank 0", "in AllGather 1; rank 0 waits for it"})
        EXPECT_PRED2(has, text, part);
    // What was read after a gap counts, and nothing of what would have been read in it.
    Broken busy;
    wait_until(busy, 14.5);
    busy.ring.node[0].sample_gap(14.6, 18);
    EXPECT_EQ(busy.errors().size(), 1U);
    // Each reading comes late.
    Broken late;
    wait_until(late, 14.5);
    late.ring.node[0].sample_gap(14.4, 16.5).sample_gap(16.4, 18.5).sample_gap(18.4, 20);
    EXPECT_EQ(late.errors().size(), 1U);
    Broken blind;
    wait_until(blind, 14.5);
    blind.ring.node[0].sample_gap(14.6, 100);
    EXPECT_TRUE(blind.errors().empty());
}

// A rank that hangs is killed in the end: what it waited for until then counts.
TEST(NcclErrors, WaitingEndsWithTheCommunicatorOrTheProcess) {
    Broken killed;
    killed.gone(1, 13.6, 14).gone(0, 19, 20);
    auto errors = killed.errors();
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_EQ(errors[0].tgid, 200U);
    EXPECT_EQ(errors[0].waiting, std::vector<std::int32_t>{0});
    Broken early;
    early.gone(1, 13.6, 14).gone(0, 14.5, 15);
    EXPECT_TRUE(early.errors().empty()) << "it may have finished it";
    Broken ended;
    ended.ring.rank[0].end(14.2);
    EXPECT_TRUE(ended.gone(1, 13.6, 14).errors().empty());
    Broken unseen;
    unseen.ring.rank[0].end(17);
    unseen.ring.node[0].sample_gap(13.6, 18);
    EXPECT_TRUE(unseen.gone(1, 13.6, 14).errors().empty()) << "nothing was read in the gap";
}

// It is there yet when the others see that its connections are closed; a rank that ends later
// follows.
TEST(NcclErrors, SlowExitPrecedesTheErrorsItCauses) {
    Broken broken;
    broken.result(0, 14, 13).queue_pair(0, 14.2, true).gone(1, 15, 16).gone(0, 17, 18);
    const auto errors = broken.errors();
    ASSERT_EQ(errors.size(), 2U) << "rank 0 has an error, which is more than its end";
    EXPECT_EQ(errors[0].order, ErrorOrder::Follows);
    EXPECT_EQ(errors[1].kind, ErrorKind::Ended);
    EXPECT_EQ(errors[1].order, ErrorOrder::First);
    Broken later;
    later.result(0, 14, 13).queue_pair(0, 14.2, true).gone(1, 25, 26);
    const auto of_later = later.errors();
    ASSERT_EQ(of_later.size(), 2U);
    EXPECT_EQ(of_later[0].order, ErrorOrder::First);
    EXPECT_EQ(of_later[1].order, ErrorOrder::Follows);
}

TEST(NcclErrors, QueuePairsDestroyedInUseAreAnError) {
    Broken broken;
    broken.destroyed(0, 13.8).result(0, 14, 13, SYSTEM_ERROR);
    const auto errors = broken.errors();
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_TRUE(errors[0].is_destroyed);
    EXPECT_EQ(errors[0].time_ns, seconds(13.8));
    EXPECT_PRED2(has, error_text(broken.model, errors[0]), "destroyed in use");
}

TEST(NcclErrors, QueuePairsDestroyedBetweenOperationsFailTheNextOne) {
    Broken broken;
    broken.destroyed(0, 12.8).result(0, 14, 13, SYSTEM_ERROR);
    const auto errors = broken.errors();
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_TRUE(errors[0].is_destroyed);
    EXPECT_EQ(errors[0].time_ns, seconds(12.8));
    ASSERT_NE(errors[0].operation, NONE);
    EXPECT_EQ(broken.model.nccl.collectives[errors[0].operation].seq, 1U);
    EXPECT_TRUE(errors[0].is_under_way);
}

TEST(NcclErrors, LaterErrorsAndFlushesFollow) {
    Broken broken;
    broken.result(0, 14, 13).result(1, 17, 16);
    auto errors = broken.errors();
    ASSERT_EQ(errors.size(), 2U);
    EXPECT_EQ(errors[0].order, ErrorOrder::First);
    EXPECT_EQ(errors[1].order, ErrorOrder::Follows);
    // By looks alone neither is first.
    Broken together;
    together.result(0, 14, 13).result(1, 14.2, 13.2);
    errors = together.errors();
    ASSERT_EQ(errors.size(), 2U);
    EXPECT_EQ(errors[0].order, ErrorOrder::Unknown);
    EXPECT_EQ(errors[1].order, ErrorOrder::Unknown);
    // Of the two that say why one was flushed.
    Broken flushed;
    flushed.result(0, 14, 13).result(1, 14.2, 13.2).text(1, 14.2, 13.2, COMPLETION);
    flushed.text(0, 14, 13, "NET/IB : Got completion from peer 10.0.0.2<1> with status=5 opcode=0");
    errors = flushed.errors();
    ASSERT_EQ(errors.size(), 2U);
    EXPECT_EQ(errors[0].order, ErrorOrder::Follows);
    EXPECT_EQ(errors[1].order, ErrorOrder::First);
}

// Its text is what the next warning found; where the one before stayed, NCCL took it for
// information.
TEST(NcclErrors, WarningHasTheTextReadNext) {
    Broken broken;
    broken.warning(0, 14.0, "no device %d", "old")
        .warning(0, 14.1, "not found: %s", "no device 7")
        .warning(0, 14.2, "lost %s", "no device 7")
        .text(0, 14.3, 13, "lost all")
        .text(1, 12, 0, "earlier");
    const auto errors = broken.errors();
    ASSERT_EQ(errors.size(), 3U);
    EXPECT_EQ(errors[0].text, "earlier");
    EXPECT_TRUE(errors[0].was_there);
    EXPECT_EQ(errors[1].text, "no device 7");
    EXPECT_EQ(errors[1].line, 42U);
    EXPECT_EQ(errors[1].tid, 77U);
    EXPECT_EQ(errors[2].text, "lost all");
    for (const NcclError &error : errors)
        EXPECT_EQ(error.kind, ErrorKind::Warning);
}

// A look may come before NCCL has made the text; a later one has it.
TEST(NcclErrors, PollBetweenAWarningAndItsTextIsIgnored) {
    Broken early;
    early.warning(0, 14.0, "lost %s", "old")
        .text(0, 14.0001, 13, "old")
        .text(0, 14.5, 14, "lost all");
    auto errors = early.errors();
    ASSERT_EQ(errors.size(), 2U);
    EXPECT_EQ(errors[0].text, "lost all");
    EXPECT_EQ(errors[0].line, 42U);
    Broken silent;
    silent.warning(0, 14.0, "lost %s", "old").text(0, 14.0001, 13, "old").text(0, 14.5, 14, "old");
    errors = silent.errors();
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_EQ(errors[0].text, "old");
    Broken textless;
    textless.warning(0, 14.0, "lost %s", "");
    errors = textless.errors();
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_EQ(errors[0].text, "lost %s");
}

// What hostile captures may say.
TEST(NcclErrors, ErrorsWithUnknownValuesHaveAText) {
    Broken broken;
    broken.result(0, 14, 15, 4'000'000'000);
    auto record = make_record<cw_nccl_result>(CW_KIND_NCCL_RESULT, seconds(14));
    record.comm = 1;
    record.tgid = 9999;
    record.result = 1;
    broken.ring.rank[0].node().add(record);
    broken.text(0, 0, 20, "");
    EXPECT_GE(broken.errors().size(), 2U);
    for (const NcclError &error : broken.model.nccl.errors)
        EXPECT_FALSE(error_text(broken.model, error).empty());
}

TEST(NcclWarningText, IsMadeOfItsFormat) {
    EXPECT_TRUE(is_made_of("no device", "no device"));
    EXPECT_TRUE(is_made_of("no device %d of %s", "no device 7 of node1"));
    EXPECT_TRUE(is_made_of("%s: 100%% of %lu", "x: 100% of 7"));
    EXPECT_TRUE(is_made_of("a %s", "a "));
    EXPECT_FALSE(is_made_of("no device %d", "another device 7"));
    EXPECT_FALSE(is_made_of("no device %d of %s", "no device 7"));
    EXPECT_FALSE(is_made_of("a %d.", "a 7. More of it"));
    EXPECT_TRUE(is_made_of("cut %", "cut 7"));
    EXPECT_TRUE(is_made_of("", ""));
}

TEST(NcclWarningText, CompletionsOfEachVersion) {
    const auto newer = read_completion(COMPLETION);
    ASSERT_TRUE(newer);
    EXPECT_EQ(newer->status, 12U);
    EXPECT_EQ(newer->remote_gid, "::ffff:10.0.0.2");
    EXPECT_FALSE(newer->qpn);
    const auto older = read_completion("NET/IB : Got completion from peer 10.0.0.2<4000> with "
                                       "status=5 opcode=0 len=0 vendor err 244 (Send) hca mlx5_0");
    ASSERT_TRUE(older);
    EXPECT_EQ(older->status, WC_FLUSH_ERROR);
    EXPECT_EQ(older->remote_gid, "");
    const auto oldest = read_completion("NET/IB : Got completion from peer 10.0.0.2<4000> with "
                                        "error 12, opcode 0, len 0, vendor err 129");
    ASSERT_TRUE(oldest);
    EXPECT_EQ(oldest->status, 12U);
    const auto entry = read_completion("NET/IB: Got CQE with error (devIndex=0, req=0x1, comm=0x2 "
                                       "(send), wr_id=7, qp_num=415)");
    ASSERT_TRUE(entry);
    EXPECT_EQ(entry->qpn, 415U);
    EXPECT_FALSE(entry->status);
    EXPECT_FALSE(read_completion("NET/Socket : peer 10.0.0.2<4000> is gone"));
    EXPECT_EQ(peer_port("closed by remote peer localhost<37844>"), 37844);
    EXPECT_FALSE(peer_port("<>"));
    EXPECT_FALSE(peer_port("a<99999>"));
    EXPECT_FALSE(peer_port("a>b<1"));
    EXPECT_EQ(wc_status_name(12), "IBV_WC_RETRY_EXC_ERR");
    EXPECT_EQ(wc_status_name(99), "");
}

} // namespace
} // namespace collwire::nccl
