// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "collwire/record_kinds.h"
#include "userspace/sources/verbs_comparison.h"

namespace collwire::sources {
namespace {

using Counts = VerbsComparison::Counts;

cw_qp_event call(cw_kind kind, std::uint32_t tid = 7, std::uint32_t qpn = 17) {
    cw_qp_event event = {};
    event.header = {sizeof(event), static_cast<__u16>(kind), 0, 1};
    event.key = {1, qpn, 5};
    event.tgid = 7;
    event.tid = tid;
    event.qp_type = 2;
    return event;
}

cw_qp_event of_verbs(cw_qp_event event) {
    event.flags |= CW_QP_FROM_VERBS;
    event.key.generation_ns += 1000;
    event.header.time_ns += 1000;
    return event;
}

TEST(VerbsComparison, EqualCallsAreCountedAsEqual) {
    VerbsComparison comparison;
    for (const cw_kind kind : {CW_KIND_QP_CREATE, CW_KIND_QP_STATE, CW_KIND_QP_DESTROY}) {
        comparison.add_kernel(call(kind));
        comparison.add_verbs(of_verbs(call(kind)));
    }
    EXPECT_EQ(comparison.counts(), (Counts{.equal = 3}));
    EXPECT_TRUE(comparison.agrees());
}

TEST(VerbsComparison, ADifferentFieldIsCountedAndNamed) {
    VerbsComparison comparison;
    cw_qp_event kernel = call(CW_KIND_QP_STATE);
    kernel.dest_qpn = 20;
    kernel.flags = CW_QP_DEST;
    cw_qp_event verbs = of_verbs(kernel);
    verbs.dest_qpn = 21;
    comparison.add_kernel(kernel);
    comparison.add_verbs(verbs);
    EXPECT_EQ(comparison.counts(), (Counts{.different = 1}));
    EXPECT_FALSE(comparison.agrees());
    EXPECT_EQ(comparison.text(),
              "compared with ib_core: 0 calls equal, 1 different, 0 in ib_core only, 0 in "
              "libibverbs only, 0 ended by the exit of a process (first: modify of queue pair 17: "
              "destination 20 and 21; ib_core's "
              "value first)");
}

TEST(VerbsComparison, EveryComparedFieldMakesADifference) {
    const auto differs = [](auto change) {
        const cw_qp_event kernel = call(CW_KIND_QP_STATE);
        cw_qp_event verbs = of_verbs(kernel);
        change(verbs);
        return !first_difference(kernel, verbs).empty();
    };
    EXPECT_FALSE(differs([](cw_qp_event &) {}));
    EXPECT_TRUE(differs([](cw_qp_event &e) { e.result = -22; }));
    EXPECT_TRUE(differs([](cw_qp_event &e) { e.attr_mask = 1; }));
    EXPECT_TRUE(differs([](cw_qp_event &e) { e.new_state = 3; }));
    EXPECT_TRUE(differs([](cw_qp_event &e) { e.dgid[15] = 1; }));
    EXPECT_TRUE(differs([](cw_qp_event &e) { e.sgid[15] = 1; }));
    EXPECT_TRUE(differs([](cw_qp_event &e) { e.path_mtu = 5; }));
    EXPECT_TRUE(differs([](cw_qp_event &e) { e.rq_psn = 1; }));
    EXPECT_TRUE(differs([](cw_qp_event &e) { e.sq_psn = 1; }));
    EXPECT_TRUE(differs([](cw_qp_event &e) { e.port = 1; }));
    EXPECT_TRUE(differs([](cw_qp_event &e) { e.user_handle = 1; }));
    EXPECT_TRUE(differs([](cw_qp_event &e) { e.flags |= CW_QP_SGID; }));
    // These libibverbs does not show.
    EXPECT_FALSE(differs([](cw_qp_event &e) { e.dmac[0] = 1; }));
    EXPECT_FALSE(differs([](cw_qp_event &e) { e.hop_limit = 1; }));
    EXPECT_FALSE(differs([](cw_qp_event &e) { e.pdn = 1; }));
}

TEST(VerbsComparison, CallsOfOneSideAreCounted) {
    VerbsComparison comparison;
    comparison.add_kernel(call(CW_KIND_QP_CREATE, 7, 17));
    comparison.add_verbs(of_verbs(call(CW_KIND_QP_CREATE, 8, 18)));
    EXPECT_EQ(comparison.counts(), (Counts{.verbs_only = 1}));
    comparison.settle(2, [](const cw_qp_event &) { return true; });
    EXPECT_EQ(comparison.counts(), (Counts{.kernel_only = 1, .verbs_only = 1}));
}

TEST(VerbsComparison, AnExitDestroysWithoutACall) {
    VerbsComparison comparison;
    comparison.add_kernel(call(CW_KIND_QP_CREATE, 7, 17));
    comparison.add_verbs(of_verbs(call(CW_KIND_QP_CREATE, 7, 17)));
    comparison.add_kernel(call(CW_KIND_QP_DESTROY, 7, 17));
    comparison.settle(1, [](const cw_qp_event &) { return true; }); // it may be on its way
    EXPECT_EQ(comparison.counts(), (Counts{.equal = 1}));
    comparison.settle(2, [](const cw_qp_event &event) { return event.tgid == 7; });
    EXPECT_EQ(comparison.counts(), (Counts{.equal = 1, .by_exit = 1}));
    EXPECT_TRUE(comparison.agrees());
}

TEST(VerbsComparison, ACallThatLibibverbsRefusedIsNoDifference) {
    VerbsComparison comparison;
    cw_qp_event refused = of_verbs(call(CW_KIND_QP_STATE));
    refused.result = -95;
    comparison.add_verbs(refused);
    EXPECT_EQ(comparison.counts(), Counts{});
}

TEST(VerbsComparison, TheKernelsOwnQueuePairsAreLeftOut) {
    VerbsComparison comparison;
    cw_qp_event own = call(CW_KIND_QP_CREATE);
    own.flags = CW_QP_KERNEL;
    own.tgid = 0;
    comparison.add_kernel(own);
    EXPECT_EQ(comparison.counts(), Counts{});
}

} // namespace
} // namespace collwire::sources
