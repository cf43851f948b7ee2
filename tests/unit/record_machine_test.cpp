// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/exit_status.h"
#include "tests/unit/inventory_tree.h"
#include "userspace/record/machine.h"

namespace collwire::record {
namespace {

using test::Tree;

constexpr Recording COUNTERS_ONLY = Recording::CountersOnly;

// A machine on which recording works; each test takes something away.
class Machine : public testing::Test {
protected:
    void SetUp() override {
        capabilities("000001ffffffffff");
        tree_.file("/proc/self/uid_map", "         0          0 4294967295\n");
        tree_.file("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        tree_.file("/sys/kernel/btf/vmlinux", "");
        tree_.directory("/sys/class/infiniband/mlx5_0");
    }
    void capabilities(const std::string &effective) const {
        tree_.file("/proc/self/status", "Name:\tx\nCapEff:\t" + effective + "\n");
    }
    // Everything but what is missing, which the message names, is as it should be.
    void expect(int status, const std::string &missing,
                Recording what = Recording::QueuePairs) const {
        const auto checked = check_machine(what, tree_.root());
        ASSERT_FALSE(checked);
        const std::string &message = checked.failure().message;
        EXPECT_EQ(exit_status_of(checked.failure()), status) << message;
        EXPECT_NE(message.find(missing), std::string::npos) << message;
        EXPECT_NE(message.find("Fix: "), std::string::npos) << message;
        EXPECT_NE(message.find("`doctor` still work"), std::string::npos) << "what still works";
        EXPECT_EQ(message.find('\n'), std::string::npos);
    }
    void expect_counters_still_work() const {
        EXPECT_TRUE(check_machine(COUNTERS_ONLY, tree_.root()));
    }
    Tree tree_;
};

TEST_F(Machine, NothingIsMissing) {
    EXPECT_TRUE(check_machine(Recording::QueuePairs, tree_.root()));
    expect_counters_still_work();
}

TEST_F(Machine, NotRoot) {
    capabilities("0000000000000000");
    expect(EXIT_NOT_PERMITTED, "CAP_SYS_ADMIN, CAP_BPF, CAP_PERFMON");
    capabilities("000000c000000000"); // CAP_PERFMON, CAP_BPF
    expect(EXIT_NOT_PERMITTED, "needs CAP_SYS_ADMIN.");
    expect_counters_still_work();
}

TEST_F(Machine, RootOfAUserNamespace) {
    tree_.file("/proc/self/uid_map", "         0       1000          1\n");
    expect(EXIT_NOT_PERMITTED, "user namespace");
    expect_counters_still_work();
}

TEST_F(Machine, PidNamespaceOfItsOwn) {
    tree_.link("/proc/self/ns/pid", "pid:[4026531836]");
    EXPECT_TRUE(check_machine(Recording::QueuePairs, tree_.root())) << "the machine's";
    tree_.remove("/proc/self/ns/pid");
    tree_.link("/proc/self/ns/pid", "pid:[4026532573]");
    expect(EXIT_NOT_PERMITTED, "pid namespace");
    expect_counters_still_work();
}

TEST_F(Machine, Lockdown) {
    tree_.file("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
    expect(EXIT_NOT_PERMITTED, "/sys/kernel/security/lockdown");
    expect_counters_still_work();
    tree_.remove("/sys/kernel/security");
    EXPECT_TRUE(check_machine(Recording::QueuePairs, tree_.root())) << "a kernel without lockdown";
}

TEST_F(Machine, NoBtf) {
    tree_.remove("/sys/kernel/btf");
    expect(EXIT_UNSUPPORTED, "/sys/kernel/btf/vmlinux");
    expect_counters_still_work();
}

TEST_F(Machine, NoRdmaDevice) {
    tree_.remove("/sys/class/infiniband/mlx5_0");
    expect(EXIT_UNSUPPORTED, "no RDMA device");
    expect(EXIT_UNSUPPORTED, "no RDMA device", COUNTERS_ONLY);
    tree_.remove("/sys/class/infiniband");
    expect(EXIT_UNSUPPORTED, "no RDMA device");
    EXPECT_TRUE(check_machine(Recording::NcclToo, tree_.root())) << "NCCL has sockets, too";
}

TEST_F(Machine, ProcessIds) {
    tree_.file("/proc/7/status", "Name:\tx\nTgid:\t7\nPid:\t7\n");
    tree_.file("/proc/8/status", "Name:\tx\nTgid:\t7\nPid:\t8\n");
    const auto known = check_process("7", tree_.root());
    ASSERT_TRUE(known);
    EXPECT_EQ(*known, 7U);
    for (const auto &[text, because] :
         {std::pair{"8", "8 is a thread of process 7. Fix: --pid 7"},
          std::pair{"9", "no process 9"}, std::pair{"0", "'0' is not a process id"},
          std::pair{"", "'' is not a process id"}, std::pair{"-7", "'-7' is not a process id"},
          std::pair{"4294967303", "is not a process id"}}) {
        const auto checked = check_process(text, tree_.root());
        ASSERT_FALSE(checked) << text;
        EXPECT_EQ(exit_status_of(checked.failure()), EXIT_USAGE);
        EXPECT_NE(checked.failure().message.find(because), std::string::npos)
            << checked.failure().message;
        EXPECT_NE(checked.failure().message.find("Fix: "), std::string::npos);
    }
}

TEST_F(Machine, WhatIsNotPermittedIsSaidFirst) {
    capabilities("0");
    tree_.remove("/sys/class");
    tree_.remove("/sys/kernel/btf");
    expect(EXIT_NOT_PERMITTED, "CAP_SYS_ADMIN");
    capabilities("000001ffffffffff");
    expect(EXIT_UNSUPPORTED, "/sys/kernel/btf/vmlinux");
}

} // namespace
} // namespace collwire::record
