// SPDX-License-Identifier: Apache-2.0
// The ibv_wr_* calls: batches between start and complete or abort.
#include <algorithm>

#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "collwire/post_records.h"
#include "tests/root/posts_fixture.h"
#include "userspace/verbs/live_verbs.h"
#include "userspace/verbs/wr_scan.h"

namespace collwire::test {
namespace {

std::uint64_t make_extended_qp(ChildState &state, std::uint64_t qpn) {
    return reinterpret_cast<std::uint64_t>(&state.add_qp(static_cast<std::uint32_t>(qpn), true));
}

std::uint64_t address_of(const void *data) {
    return reinterpret_cast<std::uint64_t>(data);
}

// One batch with each call, and one that is aborted.
std::uint64_t post_batches(ChildState &state, std::uint64_t) {
    fake_qp *qp = state.qps[0].get();
    const std::uint64_t data = address_of(state.data.data());
    const fake_sge list[3] = {{data, 100, 1}, {data, 200, 1}, {data, 1, 1}};
    const std::uint64_t buffers[4] = {data, 7, data, 70000};

    qp->wr_start(qp);
    qp->wr_rdma_write(qp, 1, 2);
    qp->wr_set_sge(qp, 1, data, 5000);
    qp->wr_rdma_write_imm(qp, 1, 2, 3); // without a setter: empty
    qp->wr_send(qp);
    qp->wr_set_sge_list(qp, 3, list);
    qp->wr_send_imm(qp, 3);
    qp->wr_set_inline_data(qp, state.data.data(), 33);
    qp->wr_send_inv(qp, 3);
    qp->wr_set_inline_data_list(qp, 2, buffers);
    qp->wr_rdma_read(qp, 1, 2);
    qp->wr_set_sge(qp, 1, data, 8192);
    qp->wr_atomic_cmp_swp(qp, 1, 2, 3, 4);
    qp->wr_set_sge(qp, 1, data, 8);
    qp->wr_atomic_fetch_add(qp, 1, 2, 3);
    qp->wr_set_sge(qp, 1, data, 8);
    qp->wr_local_inv(qp, 1);
    qp->wr_flush(qp, 1, 2, 4096, 0, 0);
    qp->wr_atomic_write(qp, 1, 2, state.data.data());
    qp->wr_complete(qp);

    qp->wr_start(qp);
    qp->wr_send(qp);
    qp->wr_set_sge(qp, 1, data, 1000);
    qp->wr_send(qp);
    qp->wr_abort(qp);

    qp->wr_start(qp);
    qp->wr_rdma_write(qp, 1, 2);
    qp->wr_set_sge(qp, 1, data, 5000);
    qp->wr_complete(qp);
    return qp->bytes;
}

class WrCalls : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string reason = no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
    }
};

std::uint64_t post_a_batch_of_each(ChildState &state, std::uint64_t n) {
    while (state.qps.size() < n)
        state.add_qp(static_cast<std::uint32_t>(100 + state.qps.size()), true);
    for (const auto &qp : state.qps) {
        qp->wr_start(qp.get());
        qp->wr_rdma_write(qp.get(), 1, 2);
        qp->wr_set_sge(qp.get(), 1, address_of(state.data.data()), 100);
        qp->wr_complete(qp.get());
    }
    return state.qps.size();
}

sources::PostsOptions forced() {
    // Small functions of the double have no instruction that the kernel emulates.
    sources::PostsOptions options;
    options.forced = true;
    return options;
}

TEST_F(WrCalls, ManyQueuePairs) {
    Child child{FAKE_PROVIDER_1};
    const auto qp = child.run(make_extended_qp, 3);
    PostsRecorder recorder{forced()};
    recorder.see_qp(child.pid(), qp);
    const std::uint64_t n = child.run(post_a_batch_of_each, 6000);
    recorder.sample();
    EXPECT_EQ(recorder.posts.size(), n);
    EXPECT_EQ(recorder.loss(CW_LOSS_POST_TABLE), 0u);
}

std::uint64_t begin_a_batch_of_each(ChildState &state, std::uint64_t n) {
    while (state.qps.size() < n)
        state.add_qp(static_cast<std::uint32_t>(100 + state.qps.size()), true);
    for (const auto &qp : state.qps)
        qp->wr_rdma_write(qp.get(), 1, 2);
    return state.qps.size();
}

TEST_F(WrCalls, BatchesWithoutRoomAreLostInTheRecordingAlone) {
    Child child{FAKE_PROVIDER_1};
    const auto qp = child.run(make_extended_qp, 3);
    sources::PostsOptions options = forced();
    options.max_slots = 4; // and the least number of batches, 4,096
    PostsRecorder recorder{options};
    recorder.see_qp(child.pid(), qp);
    ASSERT_TRUE(recorder.maps->hold(CW_HELD));
    child.run(begin_a_batch_of_each, 4200);
    EXPECT_EQ(recorder.loss(CW_LOSS_POST_TABLE), 0u);
    ASSERT_TRUE(recorder.maps->hold(CW_NOT_HELD));
    child.run(begin_a_batch_of_each, 4200);
    const std::uint64_t lost = recorder.loss(CW_LOSS_POST_TABLE);
    EXPECT_GT(lost, 0u);
    ASSERT_TRUE(recorder.maps->hold(CW_OVER));
    child.run(begin_a_batch_of_each, 4200);
    EXPECT_EQ(recorder.loss(CW_LOSS_POST_TABLE), lost);
}

TEST_F(WrCalls, EachCallOfABatch) {
    Child child{FAKE_PROVIDER_1};
    const auto qp = child.run(make_extended_qp, 3);
    PostsRecorder recorder{forced()};
    recorder.see_qp(child.pid(), qp);
    EXPECT_EQ(recorder.source->states().front().state, CW_SOURCE_ON)
        << recorder.source->states().front().reason;
    // post_send and 17 functions; start and the setters of addresses are left alone
    EXPECT_EQ(recorder.source->probe_list().size(), 18u);

    const std::uint64_t bytes = 2 * 5000 + 301 + 33 + 70007 + 8192 + 8 + 8 + 8;
    EXPECT_EQ(child.run(post_batches), bytes);
    recorder.sample();
    const auto counters = recorder.counters(child.pid(), 3);
    EXPECT_EQ(counters.posts, 2u);
    EXPECT_EQ(counters.aborted_wrs, 2u);
    EXPECT_EQ(counters.fault_posts, 0u);
    EXPECT_EQ(counters.truncated_posts, 0u);
    const auto expect_class = [&](cw_post_class post_class, std::uint64_t wrs,
                                  std::uint64_t class_bytes, std::uint64_t packets_at_1024) {
        const auto &c = counters.classes[post_class];
        EXPECT_EQ(c.wrs, wrs) << post_class;
        EXPECT_EQ(c.bytes, class_bytes) << post_class;
        EXPECT_EQ(c.packets[2], packets_at_1024) << post_class;
    };
    expect_class(CW_POST_WRITE, 2, 10000, 10);
    expect_class(CW_POST_WRITE_IMM, 1, 0, 1);
    EXPECT_EQ(counters.classes[CW_POST_WRITE_IMM].zero_length_wrs, 1u);
    expect_class(CW_POST_SEND, 1, 301, 1);
    EXPECT_EQ(counters.classes[CW_POST_SEND].pad_bytes, 3u);
    expect_class(CW_POST_SEND_IMM, 1, 33, 1);
    expect_class(CW_POST_SEND_INV, 1, 70007, 69);
    expect_class(CW_POST_READ, 1, 8192, 8);
    EXPECT_EQ(counters.multi_packet_reads[2], 1u);
    EXPECT_EQ(counters.multi_packet_reads[4], 1u);
    expect_class(CW_POST_ATOMIC, 2, 16, 2);
    expect_class(CW_POST_LOCAL, 1, 0, 0);
    expect_class(CW_POST_FLUSH, 1, 0, 1);
    expect_class(CW_POST_ATOMIC_WRITE, 1, 8, 1);
    expect_class(CW_POST_OTHER, 0, 0, 0);
    ASSERT_EQ(recorder.ties.size(), 1u);
    EXPECT_EQ(recorder.ties[0].qp_address, qp);
}

// By default nothing sits on a single-stepped instruction. Of calls that build a request together
// either all are counted or none, and none is said so.
TEST_F(WrCalls, NotCountedInPart) {
    Child child{FAKE_PROVIDER_1};
    const auto qp = child.run(make_extended_qp, 3);
    PostsRecorder recorder{sources::PostsOptions{}};
    recorder.see_qp(child.pid(), qp);
    const auto probes = recorder.source->probe_list();
    ASSERT_EQ(probes.size(), 1u);
    EXPECT_EQ(probes[0].function, "post_send");
    EXPECT_TRUE(probes[0].emulated);
    const auto state = recorder.source->states().front();
    EXPECT_EQ(state.state, CW_SOURCE_DEGRADED);
    EXPECT_NE(state.reason.find("ibv_wr_* calls are not counted"), std::string::npos)
        << state.reason;
    EXPECT_NE(state.reason.find("--posts=on"), std::string::npos) << state.reason;
    child.run(post_batches);
    recorder.sample();
    EXPECT_TRUE(recorder.posts.empty());
    EXPECT_EQ(recorder.n_probe_records, 1u);
}

std::uint64_t post_mixed(ChildState &state, std::uint64_t n) {
    fake_qp *qp = state.qps[0].get();
    const std::uint64_t data = address_of(state.data.data());
    fake_sge list{data, 10, 1};
    fake_wr wr{};
    wr.sg_list = &list;
    wr.num_sge = 1;
    for (std::uint64_t i = 0; i < n; ++i) {
        qp->wr_start(qp);
        for (int k = 0; k < 3; ++k) {
            qp->wr_rdma_write(qp, 1, 2);
            qp->wr_set_sge(qp, 1, data, 100);
        }
        qp->wr_complete(qp);
        state.post(*qp, &wr);
    }
    return qp->bytes;
}

TEST_F(WrCalls, BothKindsOnOneQueuePair) {
    Child child{FAKE_PROVIDER_2};
    const auto qp = child.run(make_extended_qp, 3);
    PostsRecorder recorder{forced()};
    recorder.see_qp(child.pid(), qp);
    EXPECT_EQ(child.run(post_mixed, 500), 500u * 310);
    recorder.sample();
    const auto counters = recorder.counters(child.pid(), 3);
    EXPECT_EQ(counters.posts, 1000u);
    EXPECT_EQ(counters.classes[CW_POST_WRITE].wrs, 2000u);
    EXPECT_EQ(counters.classes[CW_POST_WRITE].bytes, 500u * 310);
}

std::uint64_t post_long_list(ChildState &state, std::uint64_t n) {
    fake_qp *qp = state.qps[0].get();
    const std::vector<fake_sge> list(n, fake_sge{address_of(state.data.data()), 10, 1});
    qp->wr_start(qp);
    qp->wr_send(qp);
    qp->wr_set_sge_list(qp, n, list.data());
    qp->wr_complete(qp);
    return qp->bytes;
}

TEST_F(WrCalls, LongListsAreTruncatedAndSaidSo) {
    Child child{FAKE_PROVIDER_2};
    const auto qp = child.run(make_extended_qp, 3);
    PostsRecorder recorder{forced()};
    recorder.see_qp(child.pid(), qp);
    child.run(post_long_list, 32);
    child.run(post_long_list, 33);
    recorder.sample();
    const auto counters = recorder.counters(child.pid(), 3);
    EXPECT_EQ(counters.classes[CW_POST_SEND].bytes, 640u);
    EXPECT_EQ(counters.truncated_posts, 1u);
    EXPECT_EQ(recorder.loss(CW_LOSS_POST_TRUNCATED), 1u);
}

// Memory after a plain queue pair may hold anything.
std::uint64_t make_plain_qp_with_rubbish(ChildState &state, std::uint64_t qpn) {
    fake_qp &qp = state.add_qp(static_cast<std::uint32_t>(qpn), true);
    qp.wr_start = nullptr; // the rest are real functions, but this is no extended queue pair
    return address_of(&qp);
}

TEST_F(WrCalls, PlainQueuePairHasNone) {
    Child child{FAKE_PROVIDER_2};
    const auto qp = child.run(make_plain_qp_with_rubbish, 3);
    process::ProcessView view{child.pid()};
    ASSERT_TRUE(view.refresh().ok());
    const auto live = verbs::read_live_qp(view, qp);
    ASSERT_TRUE(live.ok()) << live.failure().message;
    ASSERT_EQ(live->functions.size(), 1u);
    EXPECT_EQ(live->functions[0].call, CW_CALL_POST_SEND);
}

// What the library's code says is the same as what its queue pairs have.
TEST_F(WrCalls, FoundInTheLibraryAsInTheQueuePair) {
    Child child{FAKE_PROVIDER_1};
    const auto qp = child.run(make_extended_qp, 3);
    process::ProcessView view{child.pid()};
    ASSERT_TRUE(view.refresh().ok());
    const auto live = verbs::read_live_qp(view, qp);
    ASSERT_TRUE(live.ok());
    auto bytes = elf::read_library_file(FAKE_PROVIDER_1);
    ASSERT_TRUE(bytes.ok());
    const auto image = elf::ElfImage::parse(std::move(*bytes));
    ASSERT_TRUE(image.ok());
    const auto found = verbs::find_wr_functions(*image);
    EXPECT_GE(found.size(), 9u);
    for (const verbs::WrFunction &function : found)
        EXPECT_TRUE(std::ranges::any_of(live->functions,
                                        [&](const verbs::LiveFunction &other) {
                                            return other.call == function.call &&
                                                   other.file_offset ==
                                                       image->file_offset(function.address);
                                        }))
            << sources::name_of(function.call) << " at " << std::hex << function.address;
}

} // namespace
} // namespace collwire::test
