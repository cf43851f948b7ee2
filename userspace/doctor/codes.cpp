// SPDX-License-Identifier: Apache-2.0
#include "userspace/doctor/codes.h"

#include <array>

namespace collwire::doctor {
namespace {

constexpr std::array ENTRIES = {
    CodeEntry{Code::Ok, "ok", "", FixCost::Nothing},
    CodeEntry{Code::CapabilitiesOfUserNamespace, "user-namespace", "capabilities", FixCost::Start},
    CodeEntry{Code::CapabilityMissing, "cap-missing", "capabilities", FixCost::Command},
    CodeEntry{Code::CapabilityMissingToRoot, "cap-missing-to-root", "capabilities", FixCost::Start},
    CodeEntry{Code::PidNamespace, "pid-namespace", "pid namespace", FixCost::Start},
    CodeEntry{Code::LockedMemory, "memlock", "locked memory", FixCost::Command},
    CodeEntry{Code::KernelPointersHidden, "kptr-restrict", "kptr_restrict", FixCost::Command},
    CodeEntry{Code::PerfEventParanoid, "perf-paranoid", "perf_event_paranoid", FixCost::Command},
    CodeEntry{Code::ProcessesHidden, "proc-hidepid", "/proc", FixCost::Command},
    CodeEntry{Code::NoProc, "proc-absent", "/proc", FixCost::Command},
    CodeEntry{Code::LockdownConfidentiality, "lockdown", "lockdown", FixCost::Reboot},
    CodeEntry{Code::NoKernelBtf, "kernel-btf-absent", "kernel BTF", FixCost::Reboot},
    CodeEntry{Code::NoRdmaModuleLoaded, "rdma-module-not-loaded", "module BTF", FixCost::Command},
    CodeEntry{Code::NoModuleBtf, "module-btf-absent", "module BTF", FixCost::Reboot},
    CodeEntry{Code::FeatureNotTried, "not-tried", "", FixCost::Command},
    CodeEntry{Code::FeatureRefused, "refused-by-policy", "", FixCost::Start},
    CodeEntry{Code::NoRingBuffer, "ring-buffer-absent", "ring buffer", FixCost::Reboot},
    CodeEntry{Code::NoKprobes, "kprobes-absent", "kprobes", FixCost::Reboot},
    CodeEntry{Code::NoFentry, "fentry-absent", "fentry", FixCost::Reboot},
    CodeEntry{Code::NoUprobes, "uprobes-absent", "uprobes", FixCost::Reboot},
    CodeEntry{Code::NoTracepoints, "tracepoints-absent", "tracepoints", FixCost::Reboot},
    CodeEntry{Code::NoRdmaSubsystem, "rdma-absent", "RDMA subsystem", FixCost::Command},
    CodeEntry{Code::NoRdmaDevice, "rdma-device-absent", "RDMA devices", FixCost::Command},
    CodeEntry{Code::RdmaDeviceOfOtherNamespace, "rdma-other-namespace", "RDMA devices",
              FixCost::Start},
    CodeEntry{Code::RdmaPortDown, "rdma-port-down", "RDMA ports", FixCost::Vendor},
    CodeEntry{Code::RdmaCoreUnknown, "ib-core-without-btf", "kernel modules", FixCost::Vendor},
    CodeEntry{Code::RdmaModuleUnknown, "rdma-module-without-btf", "kernel modules",
              FixCost::Vendor},
    CodeEntry{Code::NoPortCounter, "port-counter-absent", "port counters", FixCost::Nothing},
    CodeEntry{Code::QpCountersUnsupported, "qp-counters-absent", "mlx5 per-QP counters",
              FixCost::Vendor},
    CodeEntry{Code::QpCountersOff, "qp-counters-off", "mlx5 per-QP counters", FixCost::Command},
    CodeEntry{Code::NoLibibverbs, "libibverbs-absent", "libibverbs", FixCost::Start},
    CodeEntry{Code::NoVerbsProviders, "providers-absent", "verbs providers", FixCost::Start},
    CodeEntry{Code::NoCudaDriver, "cuda-absent", "CUDA driver", FixCost::Nothing},
    CodeEntry{Code::NoNccl, "nccl-absent", "NCCL", FixCost::Nothing},
    CodeEntry{Code::NcclInferred, "nccl-inferred", "NCCL in use", FixCost::Start},
    CodeEntry{Code::NcclUnknown, "nccl-unknown", "NCCL in use", FixCost::Start},
    CodeEntry{Code::NcclUnreadable, "nccl-unreadable", "NCCL in use", FixCost::Command},
    CodeEntry{Code::NoNuma, "numa-absent", "NUMA", FixCost::Reboot},
    CodeEntry{Code::NoGuestLibrary, "guest-absent", "GPU trace", FixCost::Start},
    CodeEntry{Code::GuestLibraryNotLoaded, "guest-not-loaded", "GPU trace", FixCost::Start},
    CodeEntry{Code::NoNvml, "nvml-absent", "NVLink", FixCost::Start},
    CodeEntry{Code::NvmlFailed, "nvml-failed", "NVLink", FixCost::Vendor},
    CodeEntry{Code::NoNvlinkBytes, "nvlink-bytes-absent", "NVLink", FixCost::Vendor},
    CodeEntry{Code::NoKernelLog, "kernel-log-absent", "kernel log", FixCost::Start},
    CodeEntry{Code::KernelLogUnreadable, "kernel-log-unreadable", "kernel log", FixCost::Command},
};

constexpr bool in_order() {
    for (std::size_t i = 0; i < ENTRIES.size(); ++i)
        if (static_cast<std::size_t>(ENTRIES[i].code) != i)
            return false;
    return static_cast<std::size_t>(Code::KernelLogUnreadable) + 1 == ENTRIES.size();
}
static_assert(in_order());

} // namespace

const CodeEntry &entry_of(Code code) {
    return ENTRIES[static_cast<std::size_t>(code)];
}

std::span<const CodeEntry> all_codes() {
    return std::span(ENTRIES).subspan(1);
}

std::string_view cost_name(FixCost cost) {
    switch (cost) {
    case FixCost::Command:
        return "command";
    case FixCost::Start:
        return "start";
    case FixCost::Reboot:
        return "reboot";
    case FixCost::Vendor:
        return "vendor";
    case FixCost::Nothing:
        break;
    }
    return "nothing";
}

} // namespace collwire::doctor
