// SPDX-License-Identifier: Apache-2.0
#include <linux/capability.h>

#include "userspace/doctor/checks.h"
#include "userspace/inventory/files.h"
#include "userspace/inventory/module_origin.h"

namespace collwire::doctor {
namespace {

Check check_lockdown(const std::string &root) {
    const auto text = inventory::read_line(root + "/sys/kernel/security/lockdown");
    if (!text)
        return ok("lockdown", "no lockdown on this kernel, or not visible");
    if (text->find("[confidentiality]") != std::string::npos)
        return {"lockdown",
                CheckState::Missing,
                "confidentiality",
                "the kernel refuses all probes and reads of kernel memory, for root too; port "
                "counters and the inventory still work",
                "boot without lockdown=confidentiality (integrity, as by Secure Boot, is fine)",
                true,
                Code::LockdownConfidentiality};
    if (text->find("[integrity]") != std::string::npos)
        return ok("lockdown", "integrity: tracing is allowed");
    return ok("lockdown", "none");
}

Check check_kernel_btf(const std::string &root) {
    if (inventory::exists(root + "/sys/kernel/btf/vmlinux"))
        return ok("kernel BTF", "present");
    return {"kernel BTF",
            CheckState::Missing,
            "no /sys/kernel/btf/vmlinux",
            "kernel struct layouts are unknown: no queue pairs, no bytes per queue pair; port "
            "counters and the inventory still work",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF=y",
            false,
            Code::NoKernelBtf};
}

Check check_module_btf(const std::string &root) {
    std::string with;
    std::string without;
    for (const char *module : {"ib_core", "ib_uverbs", "rdma_rxe", "mlx5_core", "mlx5_ib"}) {
        const inventory::ModuleOrigin origin = inventory::module_origin(root, module);
        if (!origin.present)
            continue;
        std::string &list = origin.btf_present ? with : without;
        list += (list.empty() ? "" : ", ") + std::string(module);
    }
    if (with.empty() && without.empty())
        return {"module BTF",
                CheckState::Limited,
                "no RDMA module is loaded",
                "cannot be checked until one is loaded",
                "sudo modprobe ib_uverbs",
                false,
                Code::NoRdmaModuleLoaded};
    if (without.empty())
        return ok("module BTF", with);
    return {"module BTF",
            CheckState::Limited,
            "missing for " + without,
            "kprobes instead of fentry on these modules: each call costs more",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF_MODULES=y",
            false,
            Code::NoModuleBtf};
}

struct Missing {
    CheckState state; // of the check
    std::string effect;
    std::string fix;
    Code code;
};

Check of_trial(const std::string &root, std::string name, const Trial &trial, bool privileged,
               Missing missing) {
    switch (trial.outcome) {
    case Trial::Outcome::Works:
        return ok(std::move(name), "tried: works");
    case Trial::Outcome::NotPermitted:
        if (!privileged)
            return {std::move(name),        CheckState::Missing,
                    "not permitted to try", "cannot be checked without root",
                    privilege_fix(root),    true,
                    Code::FeatureNotTried};
        return {
            std::move(name),
            missing.state,
            "tried: refused although CAP_SYS_ADMIN is set",
            std::move(missing.effect),
            "check lockdown and the security policy of this kernel (SELinux, AppArmor, seccomp)",
            false,
            Code::FeatureRefused};
    case Trial::Outcome::Fails:
        break;
    }
    return {std::move(name),
            missing.state,
            "tried: " + trial.reason,
            std::move(missing.effect),
            std::move(missing.fix),
            false,
            missing.code};
}

} // namespace

std::vector<Check> check_kernel(const DoctorOptions &options) {
    const bool privileged = has_capability(options.root, CAP_SYS_ADMIN);
    const auto tried = [&](std::string name, const std::function<Trial()> &trial, Missing missing) {
        return of_trial(options.root, std::move(name), trial(), privileged, std::move(missing));
    };
    Check kprobes = tried("kprobes", options.trials.kprobe,
                          {CheckState::Limited,
                           "no probes on kernel functions without fentry; carrier changes between "
                           "two samples have a count, no time",
                           "boot a kernel with CONFIG_KPROBE_EVENTS=y", Code::NoKprobes});
    Check fentry = tried("fentry", options.trials.fentry,
                         {CheckState::Limited, "kprobes are used instead: each call costs more",
                          "boot a kernel with BTF and CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS=y",
                          Code::NoFentry});
    // One of the two is enough; without both no kernel function can be probed.
    if (kprobes.state == CheckState::Limited && fentry.state == CheckState::Limited)
        for (Check *check : {&kprobes, &fentry}) {
            check->state = CheckState::Missing;
            check->effect = "neither kprobes nor fentry: no queue pairs, no port events";
        }
    return {check_lockdown(options.root),
            check_kernel_btf(options.root),
            check_module_btf(options.root),
            tried("ring buffer", options.trials.ring_buffer,
                  {CheckState::Missing, "queue pair events cannot reach the recorder",
                   "boot Linux 5.8 or later", Code::NoRingBuffer}),
            std::move(kprobes),
            std::move(fentry),
            tried("uprobes", options.trials.uprobe,
                  {CheckState::Limited, "no NCCL operations, and posted bytes cannot be counted",
                   "boot a kernel with CONFIG_UPROBE_EVENTS=y", Code::NoUprobes}),
            tried("tracepoints", options.trials.tracepoint,
                  {CheckState::Limited,
                   "NCCL sockets that close before their first sample have no measured bytes",
                   "boot a kernel with CONFIG_BPF_EVENTS=y", Code::NoTracepoints})};
}

} // namespace collwire::doctor
