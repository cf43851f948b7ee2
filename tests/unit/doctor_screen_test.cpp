// SPDX-License-Identifier: Apache-2.0
// The screen that a new site sees, the codes, and the libraries in use.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/unit/doctor_fixture.h"

namespace collwire::doctor {
namespace {

// A made-up site: root of a container without privileges, on a node with lockdown, a vendor's RDMA
// stack without BTF and no kprobes, whose job has a stripped, unknown NCCL.
class WorstSite : public Doctor {
protected:
    void SetUp() override {
        Doctor::SetUp();
        tree_.file("/proc/self/status", "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n");
        tree_.link("/proc/self/ns/pid", "pid:[4026532573]");
        tree_.file("/proc/self/mounts", "proc /proc proc rw,hidepid=invisible 0 0\n");
        tree_.file("/proc/sys/kernel/kptr_restrict", "2\n");
        tree_.file("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
        tree_.remove("/sys/kernel/btf");
        tree_.module("ib_core", "OE");
        tree_.module("mlx5_ib", "OE");
        tree_.file("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
        tree_.remove("/sys/class/infiniband/mlx5_0/ports/1/counters");
        tree_.remove("/usr");
        tree_.remove("/opt");
        tree_.remove("/sys/devices/system/node");
        tree_.file("/proc/driver/nvidia/version", "");
        tree_.file("/proc/4711/maps", "7f0000000000-7f0000001000 r-xp 00000000 08:01 7  "
                                      "/usr/lib/libnccl.so.2.19.9\n"
                                      "7f0000002000-7f0000003000 r-xp 00000000 08:01 8  "
                                      "/usr/lib/libcuda.so.570.1\n");
        options_.trials = {denied, denied, denied, denied, [] { return fails("no"); }, denied};
        options_.guest_libraries = [] { return std::vector<std::string>{}; };
        options_.netlink = [] { return inventory::NetlinkFacts{}; };
        options_.optional_counters = [](std::uint32_t, std::uint32_t) {
            return Result<std::vector<netlink::OptionalCounter>>(
                error(ErrorKind::Unsupported, "no"));
        };
        options_.nccl_library = [](const std::string &) {
            return NcclLook{NcclLook::Outcome::Unknown, "2.19.9, stripped, no layout is known"};
        };
    }
};

TEST_F(WorstSite, FitsOnOneScreenWithAFixForEachLine) {
    const DoctorReport report = run();
    const std::string screen = render_screen(report, false);
    RecordProperty("screen", screen);
    EXPECT_LE(std::ranges::count(screen, '\n'), 50) << screen;
    std::istringstream lines(screen);
    std::size_t findings = 0;
    std::size_t fixes = 0;
    for (std::string line; std::getline(lines, line);) {
        EXPECT_LE(line.size(), 100U) << line;
        findings += line.starts_with("    missing ") || line.starts_with("    limited ") ? 1 : 0;
        fixes += line.starts_with("             fix: ") ? 1 : 0;
    }
    EXPECT_EQ(findings, fixes) << screen;
    EXPECT_GE(findings, 10U) << screen;
    for (const char *fix : {"hostPID: true", "privileged: true", "CONFIG_DEBUG_INFO_BTF=y",
                            "lockdown=confidentiality", "in-tree modules", "--symbols PLACE"})
        EXPECT_NE(screen.find(fix), std::string::npos) << fix << "\n" << screen;
    // Whatever lacks a privilege is one change.
    EXPECT_NE(screen.find("capabilities and "), std::string::npos) << screen;
    for (const Check &entry : report.checks) {
        if (entry.state != CheckState::Ok && !entry.permission) {
            EXPECT_NE(screen.find(entry.name), std::string::npos) << entry.name << "\n" << screen;
        }
    }
    EXPECT_EQ(screen.find("sudo collwire ..."), std::string::npos) << "it is root already";
}

TEST_F(WorstSite, ChangesAreOrderedByTheirCost) {
    const std::string screen = render_screen(run(), false);
    std::size_t before = 0;
    for (const char *title :
         {"Now, with a command", "Start or install", "Reboot the node", "Another build, driver"}) {
        const std::size_t place = screen.find(title);
        ASSERT_NE(place, std::string::npos) << title << "\n" << screen;
        EXPECT_GT(place, before) << screen;
        before = place;
    }
    EXPECT_LT(screen.find("sudo sysctl kernel.kptr_restrict"), screen.find("Start or install"));
    EXPECT_GT(screen.find("hostPID"), screen.find("Start or install"));
    EXPECT_LT(screen.find("hostPID"), screen.find("Reboot the node"));
}

TEST_F(WorstSite, EveryFindingHasTheCodeOfItsCheck) {
    const auto json = nlohmann::json::parse(render_json(run(), "1"));
    for (const auto &entry : json["checks"]) {
        EXPECT_EQ(entry["code"].is_null(), entry["state"] == "ok") << entry;
        EXPECT_EQ(entry["fix_cost"].is_null(), entry["state"] == "ok") << entry;
        if (entry["state"] == "ok")
            continue;
        const auto known = std::ranges::find_if(
            all_codes(), [&](const CodeEntry &code) { return entry["code"] == code.name; });
        ASSERT_NE(known, all_codes().end()) << entry;
        EXPECT_TRUE(known->check.empty() || entry["name"] == known->check) << entry;
    }
}

TEST_F(Doctor, AWorkingSiteHasAShortScreen) {
    const std::string screen = render_screen(run(), false);
    EXPECT_LE(std::ranges::count(screen, '\n'), 14) << screen;
    EXPECT_EQ(screen.find("What to change"), std::string::npos) << screen;
    EXPECT_NE(screen.find("You get"), std::string::npos) << screen;
}

TEST_F(Doctor, OneLibraryInTwoProcessesIsReadOnce) {
    int reads = 0;
    options_.nccl_library = [&reads](const std::string &path) {
        ++reads;
        EXPECT_TRUE(path.ends_with("/root/opt/nccl/libnccl.so.2")) << path;
        return NcclLook{NcclLook::Outcome::Inferred, "2.28.9, operations inferred"};
    };
    EXPECT_EQ(check(run(), "NCCL in use").state, CheckState::Ok);
    for (const char *pid : {"11", "12"})
        tree_.file(std::string("/proc/") + pid + "/maps",
                   "7f0000000000-7f0000001000 r-xp 00000000 08:01 7  /opt/nccl/libnccl.so.2\n"
                   "7f0000001000-7f0000002000 r-xp 00001000 08:01 7  /opt/nccl/libnccl.so.2\n");
    reads = 0;
    const DoctorReport report = run();
    EXPECT_EQ(reads, 1);
    EXPECT_EQ(check(report, "NCCL in use").code, Code::NcclInferred);
    EXPECT_EQ(source(report, "nccl"), CheckState::Limited);
    EXPECT_EQ(report.exit_status, EXIT_DONE);
}

TEST_F(Doctor, WithoutUprobesThereIsNoNccl) {
    options_.trials.uprobe = [] { return fails("no uprobes"); };
    const DoctorReport report = run();
    EXPECT_EQ(source(report, "nccl"), CheckState::Missing);
    EXPECT_EQ(source(report, "sockets"), CheckState::Missing);
}

// docs/doctor.md, table "Codes": | `cap-missing` | capabilities | command | ... |
TEST(DoctorCodes, AreThoseOfTheDocument) {
    std::ifstream file(COLLWIRE_SOURCE_DIR "/docs/doctor.md");
    std::set<std::string> documented;
    bool in_table = false;
    for (std::string line; std::getline(file, line);) {
        in_table = line.starts_with("## Codes") || (in_table && !line.starts_with("## "));
        if (in_table && line.starts_with("| `"))
            documented.insert(
                line.substr(0, line.find(" |", line.find(" |", line.find(" |", 2) + 1) + 1)));
    }
    std::set<std::string> expected;
    for (const CodeEntry &entry : all_codes())
        expected.insert("| `" + std::string(entry.name) + "` | " +
                        std::string(entry.check.empty() ? "(several)" : entry.check) + " | " +
                        std::string(cost_name(entry.cost)));
    EXPECT_EQ(documented, expected);
    EXPECT_EQ(expected.size(), all_codes().size()) << "a code twice";
}

} // namespace
} // namespace collwire::doctor
