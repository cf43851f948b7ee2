// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "tests/unit/doctor_fixture.h"

namespace collwire::doctor {
namespace {

TEST_F(Doctor, EverythingWorks) {
    const DoctorReport report = run();
    for (const Check &entry : report.checks) {
        EXPECT_EQ(entry.state, CheckState::Ok) << entry.name << ": " << entry.found;
        EXPECT_EQ(entry.effect + entry.fix, "") << entry.name;
    }
    EXPECT_EQ(report.exit_status, EXIT_DONE);
    EXPECT_EQ(source(report, "qp"), CheckState::Ok);
    EXPECT_EQ(check(report, "NCCL").found, "/opt/nccl/libnccl.so.2");
    EXPECT_EQ(check(report, "verbs providers").found, "mlx5");
}

TEST_F(Doctor, EveryCheckThatIsNotOkSaysWhatItMeans) {
    tree_.remove("/sys");
    tree_.remove("/usr");
    tree_.remove("/etc");
    status("0");
    options_.trials = {denied, denied, denied, denied, denied, denied};
    for (const Check &entry : run().checks) {
        EXPECT_NE(entry.found, "") << entry.name;
        if (entry.state != CheckState::Ok) {
            EXPECT_NE(entry.effect, "") << entry.name;
        }
    }
}

TEST_F(Doctor, NotRoot) {
    status("0000000000000000");
    options_.trials = {denied, denied, denied, denied, [] { return fails(""); }, denied};
    const DoctorReport report = run();
    EXPECT_EQ(report.exit_status, EXIT_NOT_PERMITTED);
    EXPECT_EQ(check(report, "capabilities").state, CheckState::Missing);
    EXPECT_NE(check(report, "capabilities").found.find("CAP_SYS_ADMIN"), std::string::npos);
    EXPECT_EQ(check(report, "locked memory").state, CheckState::Limited);
    EXPECT_EQ(check(report, "kprobes").found, "not permitted to try");
    EXPECT_EQ(source(report, "qp"), CheckState::Missing);
    EXPECT_EQ(source(report, "counters"), CheckState::Ok) << "needs no privilege";
    EXPECT_EQ(source(report, "inventory"), CheckState::Ok);
}

TEST_F(Doctor, ConfidentialityIsNotPermittedEvenToRoot) {
    tree_.file("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
    const DoctorReport report = run();
    EXPECT_EQ(report.exit_status, EXIT_NOT_PERMITTED);
    EXPECT_EQ(check(report, "lockdown").state, CheckState::Missing);
    EXPECT_EQ(source(report, "posts"), CheckState::Missing);
    tree_.file("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    EXPECT_EQ(run().exit_status, EXIT_DONE);
}

TEST_F(Doctor, RootOfAUserNamespaceIsNotPermitted) {
    tree_.file("/proc/self/uid_map", "         0       1000          1\n");
    const DoctorReport report = run();
    EXPECT_EQ(report.exit_status, EXIT_NOT_PERMITTED);
    EXPECT_EQ(check(report, "capabilities").state, CheckState::Missing);
    tree_.file("/proc/self/uid_map", "         0          0 4294967295\n");
    EXPECT_EQ(run().exit_status, EXIT_DONE);
}

TEST_F(Doctor, PidNamespaceOfItsOwnIsNotPermitted) {
    tree_.link("/proc/self/ns/pid", "pid:[4026532573]");
    const DoctorReport report = run();
    EXPECT_EQ(report.exit_status, EXIT_NOT_PERMITTED);
    EXPECT_EQ(check(report, "pid namespace").state, CheckState::Missing);
    for (const char *name : {"qp", "posts"})
        EXPECT_EQ(source(report, name), CheckState::Missing) << name;
    EXPECT_EQ(source(report, "counters"), CheckState::Ok);
    tree_.remove("/proc/self/ns/pid");
    tree_.link("/proc/self/ns/pid", "pid:[4026531836]");
    EXPECT_EQ(run().exit_status, EXIT_DONE);
}

// As record does: without BTF it places nothing.
TEST_F(Doctor, NoKernelBtf) {
    tree_.remove("/sys/kernel/btf");
    const DoctorReport report = run();
    EXPECT_EQ(report.exit_status, EXIT_UNSUPPORTED);
    EXPECT_NE(check(report, "kernel BTF").effect.find("still work"), std::string::npos);
    for (const char *name : {"qp", "rxe_wire", "mlx5", "posts", "ports"})
        EXPECT_EQ(source(report, name), CheckState::Missing) << name;
    for (const char *name : {"counters", "inventory"})
        EXPECT_EQ(source(report, name), CheckState::Ok) << name;
}

TEST_F(Doctor, NoRdma) {
    tree_.remove("/sys/class/infiniband");
    const DoctorReport report = run();
    EXPECT_EQ(report.exit_status, EXIT_UNSUPPORTED);
    EXPECT_EQ(check(report, "RDMA subsystem").state, CheckState::Missing);
    EXPECT_EQ(check(report, "RDMA devices").found, "none");
    EXPECT_NE(check(report, "RDMA devices").effect.find("still work"), std::string::npos);
    EXPECT_EQ(source(report, "inventory"), CheckState::Limited);
}

TEST_F(Doctor, KernelAddressesHiddenFromEverybody) {
    for (const auto &[value, state] :
         {std::pair{"1", CheckState::Ok}, std::pair{"2", CheckState::Limited}}) {
        tree_.file("/proc/sys/kernel/kptr_restrict", std::string(value) + "\n");
        EXPECT_EQ(check(run(), "kptr_restrict").state, state) << value;
    }
}

TEST_F(Doctor, OneKindOfKernelProbeIsEnough) {
    options_.trials.kprobe = [] { return fails("no kprobes"); };
    EXPECT_EQ(run().exit_status, EXIT_DONE);
    options_.trials.fentry = denied; // to root: a policy, not a missing privilege
    const DoctorReport report = run();
    EXPECT_EQ(report.exit_status, EXIT_UNSUPPORTED);
    EXPECT_FALSE(check(report, "fentry").permission);
    for (const char *name : {"kprobes", "fentry"}) {
        EXPECT_EQ(check(report, name).state, CheckState::Missing);
        EXPECT_NE(check(report, name).effect.find("neither"), std::string::npos);
    }
    EXPECT_EQ(source(report, "qp"), CheckState::Limited) << "libibverbs shows queue pairs";
    EXPECT_EQ(source(report, "verbs"), CheckState::Ok);
    EXPECT_EQ(source(report, "posts"), CheckState::Ok);
    options_.trials.uprobe = [] { return fails("no uprobes"); };
    const DoctorReport without = run();
    for (const char *name : {"qp", "verbs", "posts"})
        EXPECT_EQ(source(without, name), CheckState::Missing) << name;
}

TEST_F(Doctor, WithoutTracepointsEverySourceWorks) {
    options_.trials.tracepoint = [] { return fails("No such file or directory"); };
    const DoctorReport report = run();
    EXPECT_EQ(check(report, "tracepoints").state, CheckState::Limited);
    EXPECT_EQ(report.exit_status, EXIT_DONE);
}

TEST_F(Doctor, SoftwareDeviceWithoutModuleBtf) {
    tree_.file("/sys/class/infiniband/mlx5_0/parent", "eth0\n"); // as rdma_rxe shows itself
    EXPECT_EQ(source(run(), "rxe_wire"), CheckState::Ok);
    for (const char *name : {"ib_core", "mlx5_core", "mlx5_ib"})
        tree_.remove(std::string("/sys/kernel/btf/") + name);
    const DoctorReport report = run();
    EXPECT_EQ(source(report, "rxe_wire"), CheckState::Limited);
    EXPECT_EQ(source(report, "qp"), CheckState::Ok);
    EXPECT_EQ(report.exit_status, EXIT_DONE);
}

TEST_F(Doctor, ForeignModuleIsNamed) {
    tree_.module("ib_core", "OE");
    EXPECT_EQ(check(run(), "kernel modules").state, CheckState::Ok) << "its BTF describes it";
    tree_.remove("/sys/kernel/btf/ib_core");
    const DoctorReport report = run();
    EXPECT_EQ(check(report, "kernel modules").state, CheckState::Limited);
    EXPECT_NE(check(report, "kernel modules").found.find("ib_core"), std::string::npos);
    EXPECT_EQ(report.exit_status, EXIT_UNSUPPORTED) << "DEVX is in the driver alone";
    EXPECT_EQ(source(report, "mlx5"), CheckState::Missing);
    EXPECT_EQ(source(report, "qp"), CheckState::Limited) << "libibverbs shows queue pairs";
    EXPECT_EQ(source(report, "verbs"), CheckState::Ok);
    EXPECT_EQ(source(report, "posts"), CheckState::Ok) << "each has its queue pair";
    EXPECT_EQ(source(report, "ports"), CheckState::Limited) << "carriers are the kernel's own";
    EXPECT_EQ(source(report, "counters"), CheckState::Ok);
}

TEST_F(Doctor, ForeignDriverIsInTheWayOfItsOwnSourceAlone) {
    tree_.module("rdma_rxe", "OE");
    const DoctorReport report = run();
    EXPECT_EQ(check(report, "kernel modules").state, CheckState::Limited);
    EXPECT_NE(check(report, "kernel modules").found.find("rdma_rxe"), std::string::npos);
    EXPECT_EQ(source(report, "rxe_wire"), CheckState::Missing);
    EXPECT_EQ(source(report, "qp"), CheckState::Ok);
    EXPECT_EQ(report.exit_status, EXIT_DONE);
}

TEST_F(Doctor, PerQueuePairCountersThatAreOff) {
    counters_ = {{"cc_rx_ce_pkts", true}, {"rdma_tx_bytes", false}, {"rdma_rx_bytes", false}};
    const DoctorReport report = run();
    const Check counters = check(report, "mlx5 per-QP counters");
    EXPECT_EQ(counters.state, CheckState::Limited);
    EXPECT_NE(counters.fix.find("rdma statistic set link mlx5_0/1 optional-counters "
                                "cc_rx_ce_pkts,rdma_tx_bytes,rdma_rx_bytes"),
              std::string::npos)
        << counters.fix << ": what is enabled stays enabled";
    EXPECT_NE(counters.fix.find("rdma statistic qp bind link mlx5_0/1 lqpn"), std::string::npos);
    EXPECT_EQ(report.exit_status, EXIT_DONE);
}

TEST_F(Doctor, PerQueuePairCountersOfAnOldKernel) {
    options_.optional_counters = [](std::uint32_t, std::uint32_t) {
        return Result<std::vector<netlink::OptionalCounter>>(error(ErrorKind::Unsupported, "no"));
    };
    const Check counters = check(run(), "mlx5 per-QP counters");
    EXPECT_EQ(counters.state, CheckState::Limited);
    EXPECT_NE(counters.fix.find("6.15"), std::string::npos);
}

TEST_F(Doctor, PortThatIsDown) {
    tree_.file("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    const Check ports = check(run(), "RDMA ports");
    EXPECT_EQ(ports.state, CheckState::Limited);
    EXPECT_NE(ports.found.find("mlx5_0/1"), std::string::npos);
}

TEST_F(Doctor, PortWithoutByteCounter) {
    tree_.remove("/sys/class/infiniband/mlx5_0/ports/1/counters");
    EXPECT_EQ(check(run(), "port counters").state, CheckState::Limited);
}

TEST_F(Doctor, HiddenProcesses) {
    status("0000000000000000");
    tree_.file("/proc/self/mounts", "proc /proc proc rw,hidepid=invisible 0 0\n");
    EXPECT_EQ(check(run(), "/proc").state, CheckState::Limited);
    status("000001ffffffffff");
    EXPECT_EQ(check(run(), "/proc").state, CheckState::Ok);
}

TEST_F(Doctor, CudaProcessesWithoutTheGuestLibraryAreNamed) {
    const std::string cuda =
        "7f0000000000-7f0000001000 r-xp 00000000 08:01 7  /usr/lib64/libcuda.so.570.1\n";
    const std::string guest =
        "7f0000002000-7f0000003000 r-xp 00000000 08:01 8  /opt/c/libcollwire_cupti.so\n";
    const std::string runtime =
        "7f0000004000-7f0000005000 r-xp 00000000 08:01 9  /usr/lib64/libcudart.so.12\n";
    tree_.file("/proc/11/maps", cuda + guest);
    tree_.file("/proc/13/maps", runtime);
    Check gpu = check(run(), "GPU trace");
    EXPECT_EQ(gpu.state, CheckState::Ok) << gpu.found;
    EXPECT_NE(gpu.found.find("loaded in process 11"), std::string::npos) << gpu.found;
    tree_.file("/proc/12/maps", cuda);
    gpu = check(run(), "GPU trace");
    EXPECT_EQ(gpu.state, CheckState::Limited);
    EXPECT_NE(gpu.found.find("without it: 12"), std::string::npos) << gpu.found;
    EXPECT_EQ(gpu.found.find("13"), std::string::npos) << gpu.found;
    EXPECT_NE(gpu.fix.find("collwire run"), std::string::npos) << gpu.fix;
    EXPECT_EQ(run().exit_status, EXIT_DONE);
}

TEST_F(Doctor, MissingGuestLibraryIsNamed) {
    options_.guest_libraries = [] { return std::vector<std::string>{}; };
    const Check gpu = check(run(), "GPU trace");
    EXPECT_EQ(gpu.state, CheckState::Limited);
    EXPECT_NE(gpu.found.find("not installed"), std::string::npos) << gpu.found;
    EXPECT_FALSE(gpu.fix.empty());
}

TEST_F(Doctor, NvlinksAreListedWithTheirState) {
    EXPECT_EQ(check(run(), "NVLink").found, "no NVIDIA driver");
    EXPECT_EQ(find_check(run(), "kernel log"), nullptr);
    nvidia::NvlinkLook look;
    look.outcome = nvidia::NvlinkLook::Outcome::Listed;
    look.gpus.push_back({"0000:1b:00.0", "H100", 18, 17, true, true});
    options_.nvlink = [&look] { return look; };
    tree_.file("/proc/driver/nvidia/version", "");
    tree_.file("/dev/kmsg", "");
    EXPECT_EQ(check(run(), "NVLink").state, CheckState::Ok);
    EXPECT_EQ(check(run(), "NVLink").found, "0000:1b:00.0: 18 NVLinks, 17 up");
    EXPECT_EQ(check(run(), "kernel log").state, CheckState::Ok);
    look.gpus[0].has_bytes = false;
    EXPECT_EQ(check(run(), "NVLink").state, CheckState::Limited);
    look.outcome = nvidia::NvlinkLook::Outcome::NoAnswer;
    look.problem = "NVML gave no answer within 10 s";
    EXPECT_EQ(check(run(), "NVLink").state, CheckState::Limited);
    EXPECT_FALSE(check(run(), "NVLink").fix.empty());
    EXPECT_EQ(run().exit_status, EXIT_DONE);
}

TEST_F(Doctor, ADriverWithoutNvmlAndAMissingKernelLogAreNamed) {
    tree_.file("/proc/driver/nvidia/version", "");
    EXPECT_EQ(check(run(), "NVLink").state, CheckState::Limited);
    EXPECT_EQ(check(run(), "kernel log").found, "no /dev/kmsg");
}

TEST_F(Doctor, JsonHoldsWhatTheTextSays) {
    tree_.file("/sys/class/infiniband/mlx5_0/fw_ver", "\xff\xfe\n");
    const DoctorReport report = run();
    const auto json = nlohmann::json::parse(render_json(report, "1.2.3"), nullptr, false);
    ASSERT_FALSE(json.is_discarded());
    EXPECT_EQ(json["schema"], "collwire-doctor");
    EXPECT_EQ(json["schema_version"], doctor_schema_version);
    EXPECT_EQ(json["tool_version"], "1.2.3");
    EXPECT_EQ(json["exit_status"], 0);
    EXPECT_EQ(json["checks"].size(), report.checks.size());
    EXPECT_EQ(json["checks"][0]["state"], "ok");
    EXPECT_TRUE(json["checks"][0]["fix"].is_null());
    EXPECT_EQ(json["devices"][0]["name"], "mlx5_0");
    EXPECT_EQ(json["devices"][0]["pci_address"], "0000:17:00.0");
    EXPECT_EQ(json["devices"][0]["ports"][0]["optional_counters"][0]["name"], "rdma_tx_bytes");
    EXPECT_TRUE(json["devices"][0]["ports"][0]["carrier"].is_null()) << "not known is not false";
    const std::string text = render_text(report, false);
    for (const Check &entry : report.checks)
        EXPECT_NE(text.find(entry.name), std::string::npos);
    EXPECT_EQ(text.find('\033'), std::string::npos);
    EXPECT_NE(render_text(report, true).find('\033'), std::string::npos);
}

// On any machine the trials answer and leave nothing.
TEST(DoctorTrials, AnswerHere) {
    const Trials trials = machine_trials();
    for (const auto &trial :
         {trials.ring_buffer, trials.kprobe, trials.uprobe, trials.fentry, trials.tracepoint}) {
        const Trial result = trial();
        EXPECT_EQ(result.reason.empty(), result.outcome == Trial::Outcome::Works);
    }
}

} // namespace
} // namespace collwire::doctor
