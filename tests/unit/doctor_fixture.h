// SPDX-License-Identifier: Apache-2.0
// A made-up machine on which everything works, for tests that take something away.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/exit_status.h"
#include "tests/unit/inventory_tree.h"
#include "userspace/doctor/doctor.h"

namespace collwire::doctor {

using test::Tree;

inline const Trial works{Trial::Outcome::Works, ""};

inline Trial fails(std::string reason) {
    return {Trial::Outcome::Fails, std::move(reason)};
}
inline Trial denied() {
    return {Trial::Outcome::NotPermitted, "Operation not permitted"};
}

// A machine on which everything works; each test takes something away.
class Doctor : public testing::Test {
protected:
    void SetUp() override {
        status("000001ffffffffff");
        tree_.file("/proc/self/limits", "Max locked memory         8388608   8388608   bytes\n");
        tree_.file("/proc/self/mounts", "proc /proc proc rw,nosuid 0 0\n");
        tree_.file("/proc/sys/kernel/kptr_restrict", "0\n");
        tree_.file("/proc/sys/kernel/perf_event_paranoid", "2\n");
        tree_.file("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
        for (const char *name : {"vmlinux", "ib_core", "mlx5_core", "mlx5_ib"})
            tree_.file(std::string("/sys/kernel/btf/") + name, "");
        for (const char *name : {"ib_core", "mlx5_core", "mlx5_ib"})
            tree_.module(name);
        tree_.pci_device("mlx5_0", "0000:17:00.0", "mlx5_core");
        tree_.port("mlx5_0", 1, "InfiniBand", "400 Gb/sec (4X NDR)");
        tree_.file("/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "1\n");
        tree_.file("/usr/lib64/libibverbs.so.1", "");
        tree_.file("/usr/lib64/libibverbs/libmlx5-rdmav34.so", "");
        tree_.file("/usr/lib64/libcuda.so.1", "");
        tree_.file("/opt/nccl/libnccl.so.2", "");
        tree_.file("/etc/ld.so.conf.d/nccl.conf", "# comment\n/opt/nccl\n");
        tree_.file("/sys/devices/system/node/node0/cpulist", "0\n");
        options_.root = tree_.root();
        options_.trials = {[] { return works; }, [] { return works; }, [] { return works; },
                           [] { return works; }, [] { return works; }, [] { return works; }};
        options_.guest_libraries = [] {
            return std::vector<std::string>{"/usr/lib/collwire/libcollwire_cupti.so"};
        };
        options_.nvlink = [] { return nvidia::NvlinkLook{}; };
        options_.netlink = [] {
            inventory::NetlinkFacts facts;
            facts.devices["mlx5_0"].name = "mlx5_0";
            return facts;
        };
        options_.optional_counters = [this](std::uint32_t, std::uint32_t) {
            return Result<std::vector<netlink::OptionalCounter>>(counters_);
        };
    }
    void status(const std::string &effective) const {
        tree_.file("/proc/self/status", "Name:\tx\nCapEff:\t" + effective + "\n");
    }
    [[nodiscard]] DoctorReport run() const { return run_doctor(options_); }
    static Check check(const DoctorReport &report, std::string_view name) {
        const Check *found = find_check(report, name);
        EXPECT_NE(found, nullptr) << name;
        return found != nullptr ? *found : Check{};
    }
    static CheckState source(const DoctorReport &report, std::string_view name) {
        for (const SourceOutlook &outlook : report.sources) {
            if (outlook.name == name)
                return outlook.state;
        }
        ADD_FAILURE() << name;
        return CheckState::Missing;
    }
    Tree tree_;
    DoctorOptions options_;
    std::vector<netlink::OptionalCounter> counters_ = {{"rdma_tx_bytes", true},
                                                       {"rdma_rx_bytes", true},
                                                       {"rdma_tx_packets", true},
                                                       {"rdma_rx_packets", true}};
};

} // namespace collwire::doctor
