// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include <gtest/gtest.h>

#include "userspace/loader/kernel_functions.h"
#include "userspace/loader/libbpf_log.h"
#include "userspace/loader/return_probes.h"

namespace collwire::loader {
namespace {

TEST(KernelFunctions, NamesTheModuleAndCountsSymbols) {
    const std::string text("ffffffff81000000 T _text\n"
                           "ffffffff81000100 t create_qp\n"
                           "ffffffffc0000100 t create_qp\t[ib_uverbs]\n"
                           "ffffffffc0000200 T ib_query_qp\t[ib_core]\n"
                           "ffffffffc0000300 d rxe_rcv\t[rdma_rxe]\n"
                           "ffffffffc0000400 t __pfx_ib_query_qp\t[ib_core]\n"
                           "garbage\n");
    const auto found = KernelFunctions::parse(text, {"create_qp", "ib_query_qp", "rxe_rcv"});
    ASSERT_NE(found.find("ib_query_qp"), nullptr);
    EXPECT_EQ(found.find("ib_query_qp")->module, "ib_core");
    EXPECT_EQ(found.find("ib_query_qp")->symbols, 1u);
    ASSERT_NE(found.find("create_qp"), nullptr);
    EXPECT_EQ(found.find("create_qp")->symbols, 2u);
    EXPECT_EQ(found.find("rxe_rcv"), nullptr) << "data is no function";
    EXPECT_EQ(found.find("_text"), nullptr) << "was not asked for";
}

TEST(LibbpfLog, FindsTheVerifiersLastWords) {
    const auto cause =
        cause_in_libbpf_log("libbpf: prog 'on_modify': BPF program load failed: Permission denied\n"
                            "libbpf: prog 'on_modify': -- BEGIN PROG LOAD LOG --\n"
                            "0: (79) r6 = *(u64 *)(r1 +0)\n"
                            "R1 invalid mem access 'inv'\n"
                            "processed 7 insns (limit 1000000)\n"
                            "-- END PROG LOAD LOG --\n"
                            "libbpf: failed to load object 'qp'\n");
    EXPECT_EQ(cause, "prog 'on_modify': BPF program load failed: Permission denied: verifier: "
                     "R1 invalid mem access 'inv'");
}

TEST(LibbpfLog, TakesTheLastLineWithoutAVerifierLog) {
    EXPECT_EQ(cause_in_libbpf_log("libbpf: map 'events': failed to create: Invalid argument(-22)\n"
                                  "libbpf: failed to load object 'shared'\n"),
              "map 'events': failed to create: Invalid argument(-22)");
    EXPECT_EQ(cause_in_libbpf_log(""), "");
}

TEST(ReturnProbes, AreLeftOutWhereAFilterMayRefuseThem) {
    for (const char *release : {"6.11.0-19-generic", "6.11", "6.12.0", "6.12.13-amd64", "6.13.2"})
        EXPECT_TRUE(may_refuse_return_probes(release)) << release;
    for (const char *release : {"5.10.0-28-amd64", "6.1.0-56-amd64", "6.10.9", "6.12.14", "6.13.3",
                                "6.14.0-rc2", "6.18.5", "7.2.0", "", "nonsense", "6"})
        EXPECT_FALSE(may_refuse_return_probes(release)) << release;
}

} // namespace
} // namespace collwire::loader
