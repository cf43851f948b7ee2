// SPDX-License-Identifier: Apache-2.0
#include "collwire/loss_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/record_kinds.h"
// The BPF program on a call: the records that it emits, and its loss counters.
#include "tests/root/nccl_programs.h"

namespace collwire::test {
namespace {

struct Info {
    const Comm *comm = nullptr;
    std::uint64_t send = 0, receive = 0, count = 1, stream = 0;
    std::int32_t coll = CW_NCCL_ALL_REDUCE, datatype = 7, op = 0, root = 0;
    std::array<std::uint8_t, CW_NCCL_INFO_BYTES> rest{};
};

class NcclCalls : public NcclPrograms {
protected:
    void SetUp() override {
        NcclPrograms::SetUp();
        layout_.info_comm = offsetof(Info, comm);
        layout_.info_sendbuff = offsetof(Info, send);
        layout_.info_recvbuff = offsetof(Info, receive);
        layout_.info_count = offsetof(Info, count);
        layout_.info_stream = offsetof(Info, stream);
        layout_.info_coll = offsetof(Info, coll);
        layout_.info_datatype = offsetof(Info, datatype);
        layout_.info_op = offsetof(Info, op);
        layout_.info_root = offsetof(Info, root);
    }
};

// Such a call is not here, as one that the ring had no room for.
TEST_P(NcclCalls, ArgumentsThatCannotBeRead) {
    ASSERT_NO_FATAL_FAILURE(load());
    Info info{.comm = &comm_};
    EXPECT_EQ(nccl_programs_test_start(&info), 0);
    (void)ring_->consume();
    EXPECT_EQ(emitted<cw_nccl_call>(CW_KIND_NCCL_CALL).size(), 1U);
    EXPECT_EQ(lost(CW_LOSS_NCCL_CALL), 0U);
    EXPECT_EQ(nccl_programs_test_start(nullptr), 0);
    (void)ring_->consume();
    EXPECT_EQ(emitted<cw_nccl_call>(CW_KIND_NCCL_CALL).size(), 1U);
    EXPECT_EQ(lost(CW_LOSS_NCCL_CALL), 1U);
    EXPECT_EQ(lost(CW_LOSS_NCCL_FAULT), 0U) << "that is of launches";
}

INSTANTIATE_TEST_SUITE_P(Programs, NcclCalls, testing::Values("enqueue_check"),
                         [](const auto &of) { return std::string{of.param}; });

} // namespace
} // namespace collwire::test
