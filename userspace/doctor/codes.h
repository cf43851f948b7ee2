// SPDX-License-Identifier: Apache-2.0
// The stable codes of doctor's findings. docs/doctor.md lists them; a code that was released keeps
// its meaning.
#pragma once

#include <span>
#include <string_view>

namespace collwire::doctor {

enum class Code {
    Ok,
    CapabilitiesOfUserNamespace,
    CapabilityMissing,
    CapabilityMissingToRoot, // in a container or a service
    PidNamespace,
    LockedMemory,
    KernelPointersHidden,
    PerfEventParanoid,
    ProcessesHidden,
    NoProc,
    LockdownConfidentiality,
    NoKernelBtf,
    NoRdmaModuleLoaded,
    NoModuleBtf,
    FeatureNotTried, // for want of a privilege
    FeatureRefused,  // to root, by a policy
    NoRingBuffer,
    NoKprobes,
    NoFentry,
    NoUprobes,
    NoTracepoints,
    NoRdmaSubsystem,
    NoRdmaDevice,
    RdmaDeviceOfOtherNamespace,
    RdmaPortDown,
    RdmaCoreUnknown,
    RdmaModuleUnknown,
    NoPortCounter,
    QpCountersUnsupported,
    QpCountersOff,
    NoLibibverbs,
    NoVerbsProviders,
    NoCudaDriver,
    NoNccl,
    NcclInferred,
    NcclUnknown,
    NcclUnreadable,
    NoNuma,
    NoGuestLibrary,
    GuestLibraryNotLoaded,
    NoNvml,
    NvmlFailed,
    NoNvlinkBytes,
    NoKernelLog,
    KernelLogUnreadable,
};

// What the change costs a site, the cheapest first.
enum class FixCost {
    Command, // a command now; nothing restarts
    Start,   // start collwire, its container or the jobs in another way; install a file
    Reboot,  // boot the node with another kernel or setting
    Vendor,  // another build of a driver or library, another device
    Nothing, // nothing to do
};

struct CodeEntry {
    Code code;
    std::string_view name;  // in JSON: "cap-missing"
    std::string_view check; // the check that gives it; empty: several do
    FixCost cost;
};

[[nodiscard]] const CodeEntry &entry_of(Code code);
[[nodiscard]] std::span<const CodeEntry> all_codes(); // without Code::Ok
[[nodiscard]] std::string_view cost_name(FixCost cost);

} // namespace collwire::doctor
