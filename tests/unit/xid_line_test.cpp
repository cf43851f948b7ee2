// SPDX-License-Identifier: Apache-2.0
// Errors of the NVIDIA driver in the kernel log: lines as operators published them.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "base/clock.h"
#include "collwire/record_kinds.h"
#include "userspace/nvidia/kernel_log.h"
#include "userspace/nvidia/xid_line.h"
#include "userspace/sources/xid_source.h"

namespace collwire::nvidia {
namespace {

TEST(XidLine, NvLink5HasUnitSeverityLinkAndRegisters) {
    const auto xid =
        parse_xid("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 "
                  "(0x025525c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000001)");
    ASSERT_TRUE(xid);
    EXPECT_EQ(xid->xid, 149U);
    EXPECT_EQ(xid->bus_id, 0x1801000U);
    EXPECT_EQ(xid->link, 9);
    EXPECT_STREQ(xid->unit, "NETIR_LINK_EVT");
    EXPECT_EQ(xid->flags, static_cast<__u32>(CW_XID_FATAL));
    ASSERT_EQ(xid->n_registers, 6U);
    EXPECT_EQ(xid->registers[0], 0x025525c6U);
    EXPECT_EQ(xid->registers[5], 1U);
    EXPECT_TRUE(std::string(xid->text).starts_with("Xid (PCI:0018:01:00): 149, NETIR"));
}

TEST(XidLine, NonfatalIsNotFatal) {
    const auto xid =
        parse_xid("NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 "
                  "(0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)");
    ASSERT_TRUE(xid);
    EXPECT_EQ(xid->xid, 145U);
    EXPECT_EQ(xid->link, 13);
    EXPECT_EQ(xid->flags, static_cast<__u32>(CW_XID_NONFATAL));
}

TEST(XidLine, OlderFormsOfNvLink5) {
    const auto brackets = parse_xid(
        "NVRM: Xid (PCI:0000:00:1e): 149, NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0000000a]");
    ASSERT_TRUE(brackets);
    EXPECT_EQ(brackets->link, 1);
    EXPECT_EQ(brackets->n_registers, 1U);
    EXPECT_EQ(brackets->bus_id, 0x1e0U);
    const auto commas =
        parse_xid("NVRM: Xid (PCI:0000:b9:00): 145, RLW, nonfatal, cross-contain=0, "
                  "injected=0, Link 3 (0x00000004 0x00000001)");
    ASSERT_TRUE(commas);
    EXPECT_STREQ(commas->unit, "RLW");
    EXPECT_EQ(commas->link, 3);
    EXPECT_EQ(commas->flags, static_cast<__u32>(CW_XID_NONFATAL));
}

TEST(XidLine, ALinkOfMinusOneIsNone) {
    const auto xid = parse_xid("NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 "
                               "(0x000fe406 0x00000000)");
    ASSERT_TRUE(xid);
    EXPECT_EQ(xid->link, -1);
}

TEST(XidLine, Xid74HasItsLinkAndSevenRegisters) {
    const auto xid =
        parse_xid("NVRM: Xid (PCI:0000:D8:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal "
                  "error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)");
    ASSERT_TRUE(xid);
    EXPECT_EQ(xid->xid, 74U);
    EXPECT_EQ(xid->bus_id, 0xd8000U);
    EXPECT_EQ(xid->link, 14);
    EXPECT_EQ(xid->flags, static_cast<__u32>(CW_XID_FATAL));
    EXPECT_EQ(xid->n_registers, 7U);
    EXPECT_EQ(xid->registers[2], 0x10000U);
    EXPECT_EQ(xid->pid, 0U);
}

TEST(XidLine, TheDriverNamesTheCauseItself) {
    const auto xid = parse_xid("NVRM: Xid (PCI:0000:ba:00): 45, pid=1818989, name=python3, Ch "
                               "00000002 caused by previous Xid 145");
    ASSERT_TRUE(xid);
    EXPECT_EQ(xid->xid, 45U);
    EXPECT_EQ(xid->pid, 1818989U);
    EXPECT_EQ(xid->caused_by, 145U);
    EXPECT_EQ(xid->link, -1);
    EXPECT_EQ(xid->n_registers, 0U);
}

TEST(XidLine, TheNameOfAProcessIsNoLink) {
    const auto xid =
        parse_xid("NVRM: Xid (PCI:0000:d8:00): 74, pid=12, name=x, link 5(0x1), NVLink: "
                  "fatal error detected on link 2(0x8)");
    ASSERT_TRUE(xid);
    EXPECT_EQ(xid->link, 2);
    EXPECT_EQ(xid->registers[0], 8U);
}

TEST(XidLine, AddressesWithoutPciAndWithAFunction) {
    EXPECT_EQ(parse_xid("NVRM: Xid (0000:01:00): 31, Ch 0000000b")->bus_id, 0x1000U);
    EXPECT_EQ(parse_xid("NVRM: Xid (PCI:0000:01:00.1): 31, Ch 0000000b")->bus_id, 0x1001U);
}

TEST(XidLine, OtherLinesAreNone) {
    for (const char *line :
         {"", "NVRM: Xid (", "NVRM: Xid (PCI:", "NVRM: Xid (PCI:0000:01:00)",
          "NVRM: Xid (PCI:0000:01:00): ", "NVRM: Xid (PCI:0000:01:00): x",
          "NVRM: Xid (PCI:0000:01:00): 0,", "NVRM: Xid (PCI:zz:01:00): 31,",
          "NVRM: Xid (PCI:0000:1ff:00): 31,", "NVRM: GPU at PCI:0000:01:00: GPU-bc0f",
          "x NVRM: Xid (PCI:0000:01:00): 31, Ch",
          "nvidia-nvswitch0: SXid (PCI:0000:aa:00.0): 10003"})
        EXPECT_FALSE(parse_xid(line)) << line;
}

TEST(KernelLine, HasItsHeadAndTheFirstLine) {
    const auto line = parse_kernel_line("3,9876,5140900123,-,caller=T1;NVRM: Xid (PCI:0000:01:00): "
                                        "31, Ch\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n");
    ASSERT_TRUE(line);
    EXPECT_EQ(line->sequence, 9876U);
    EXPECT_EQ(line->kernel_ns, 5'140'900'123'000U);
    EXPECT_EQ(line->facility, 0U);
    EXPECT_EQ(line->text, "NVRM: Xid (PCI:0000:01:00): 31, Ch");
    EXPECT_EQ(parse_kernel_line("12,1,2,-;x")->facility, 1U);
    EXPECT_FALSE(parse_kernel_line("3,9876"));
    EXPECT_FALSE(parse_kernel_line("3,9876,5140900123,-"));
}

class Collector : public source::RecordSink {
public:
    void append(const cw_header &record) override {
        ASSERT_EQ(record.kind, CW_KIND_XID);
        errors.push_back(reinterpret_cast<const cw_xid &>(record));
    }
    std::vector<cw_xid> errors;
};

// A pipe that keeps records apart stands for /dev/kmsg.
TEST(XidSource, ErrorsFromBeforeAreKeptApartAndProgramsAreNotBelieved) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_DIRECT | O_CLOEXEC), 0);
    const auto log = [&ends](const std::string &record) {
        ASSERT_EQ(write(ends[1], record.data(), record.size()),
                  static_cast<ssize_t>(record.size()));
    };
    sources::XidOptions options;
    options.log = "/proc/self/fd/" + std::to_string(ends[0]);
    sources::XidSource source(options);
    ASSERT_TRUE(source.prepare());
    log("3,1,1000000,-;NVRM: Xid (PCI:0000:01:00): 31, Ch 1\n");
    log("6,2,1000001,-;something else\n");
    ASSERT_TRUE(source.attach());
    const std::uint64_t attached_ns = monotonic_ns();
    log("3,3,9000000,-;NVRM: Xid (PCI:0000:dc:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 04 "
        "(0x1)\n");
    log("11,4,9000001,-;NVRM: Xid (PCI:0000:dc:00): 149, written by a program\n");
    Collector collected;
    source.sample(collected, true);
    ASSERT_EQ(collected.errors.size(), 2U);
    EXPECT_EQ(collected.errors[0].flags, static_cast<__u32>(CW_XID_BEFORE));
    EXPECT_EQ(collected.errors[0].after_ns, 0U);
    EXPECT_EQ(collected.errors[1].flags, static_cast<__u32>(CW_XID_FATAL));
    EXPECT_LE(collected.errors[1].after_ns, attached_ns);
    EXPECT_NE(collected.errors[1].after_ns, 0U);
    EXPECT_GE(collected.errors[1].header.time_ns, attached_ns);
    EXPECT_EQ(collected.errors[1].kernel_ns, 9'000'000'000U);
    EXPECT_EQ(collected.errors[1].sequence, 3U);
    source.sample(collected, false);
    EXPECT_EQ(collected.errors.size(), 2U);
    EXPECT_NE(source.due_ns(), 0U);
    close(ends[0]);
    close(ends[1]);
}

TEST(XidSource, ALogThatCannotBeReadIsAState) {
    sources::XidOptions options;
    options.log = "/nonexistent/kmsg";
    sources::XidSource source(options);
    ASSERT_TRUE(source.prepare());
    ASSERT_TRUE(source.attach());
    EXPECT_EQ(source.states().front().state, CW_SOURCE_UNAVAILABLE);
    EXPECT_EQ(source.due_ns(), 0U);
}

} // namespace
} // namespace collwire::nvidia
