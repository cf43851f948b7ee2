// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>

#include <linux/capability.h>

#include "userspace/doctor/checks.h"
#include "userspace/inventory/files.h"
#include "userspace/loader/privileges.h"

namespace collwire::doctor {
namespace {

constexpr std::size_t status_bytes = 64UL * 1024;
constexpr std::string_view as_root_in_container =
    "privileged: true, docker run --privileged, or the unit's CapabilityBoundingSet=";

struct Capability {
    int number;
    std::string_view name;
    std::string_view effect; // of lacking it
};

// CAP_SYS_ADMIN decides: CAP_BPF + CAP_PERFMON alone lack module BTF by id, and uprobes before 6.6.
constexpr std::array<Capability, 7> capability_list = {
    {{CAP_SYS_ADMIN, "CAP_SYS_ADMIN",
      "no BPF program can be loaded: no queue pairs, no bytes per queue pair"},
     {CAP_SYS_PTRACE, "CAP_SYS_PTRACE",
      "no program names, libraries and jobs for processes of other users"},
     {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH",
      "libraries in directories of other users cannot be opened: posts through them are not "
      "counted"},
     {CAP_SYSLOG, "CAP_SYSLOG",
      "kernel addresses are hidden: rdma_rxe packets cannot be counted; the kernel log cannot be "
      "read: no errors of the NVIDIA driver (Xid)"},
     // The reader of a library file becomes user nobody first.
     {CAP_SETUID, "CAP_SETUID", "NCCL libraries cannot be read: no NCCL operations"},
     {CAP_SETGID, "CAP_SETGID", "NCCL libraries cannot be read: no NCCL operations"},
     {CAP_KILL, "CAP_KILL", "a reader of an NCCL library that hangs cannot be ended"}}};

std::optional<std::uint64_t> effective_capabilities(const std::string &root) {
    const auto text = inventory::read_file(root + "/proc/self/status", status_bytes);
    if (!text)
        return std::nullopt;
    for (const std::string_view line : inventory::split(*text, '\n')) {
        if (line.starts_with("CapEff:"))
            return inventory::parse_number(inventory::trim(line.substr(7)), 16);
    }
    return std::nullopt;
}

Check check_capabilities(const std::string &root, std::uint64_t effective) {
    if (loader::in_user_namespace(root))
        return {"capabilities",
                CheckState::Missing,
                "valid in this user namespace only (a rootless container), not on the machine",
                "no BPF program can be loaded: no queue pairs, no bytes per queue pair",
                "run collwire outside the container, or in a privileged one",
                true,
                Code::CapabilitiesOfUserNamespace};
    Check check = ok("capabilities", "complete for recording");
    std::string lacking;
    for (const Capability &capability : capability_list) {
        if ((effective >> capability.number & 1) != 0)
            continue;
        lacking += (lacking.empty() ? "" : ", ") + std::string(capability.name);
        check.effect += (check.effect.empty() ? "" : "; ") + std::string(capability.effect);
        check.state = capability.number == CAP_SYS_ADMIN || check.state == CheckState::Missing
                          ? CheckState::Missing
                          : CheckState::Limited;
    }
    if (!lacking.empty()) {
        check.found = "this process lacks " + lacking;
        check.fix = privilege_fix(root);
        check.permission = true;
        check.code = check.fix == as_root_in_container ? Code::CapabilityMissingToRoot
                                                       : Code::CapabilityMissing;
    }
    return check;
}

Check check_pid_namespace(const std::string &root) {
    if (!loader::in_pid_namespace(root))
        return ok("pid namespace", "the machine's");
    return {"pid namespace",
            CheckState::Missing,
            "a container's own; the kernel reports pids of the machine's namespace",
            "queue pairs cannot be matched to processes: record refuses to run, except with "
            "--counters-only",
            "run collwire outside the container, or with --pid=host (hostPID: true)",
            true,
            Code::PidNamespace};
}

Check check_memory_limit(const DoctorOptions &options, std::uint64_t effective) {
    const std::string &root = options.root;
    // "Max locked memory  8388608  8388608  bytes"
    const auto text = inventory::read_file(root + "/proc/self/limits", status_bytes);
    std::string soft;
    for (const std::string_view line :
         inventory::split(text ? std::string_view(*text) : "", '\n')) {
        constexpr std::string_view key = "Max locked memory";
        if (line.starts_with(key)) {
            const std::string_view rest = inventory::trim(line.substr(key.size()));
            soft = rest.substr(0, rest.find(' '));
        }
    }
    if ((effective >> CAP_SYS_RESOURCE & 1) != 0)
        return ok("locked memory", "can be raised (CAP_SYS_RESOURCE)");
    if (soft == "unlimited")
        return ok("locked memory", "unlimited");
    if (options.trials.memory_in_cgroup().outcome == Trial::Outcome::Works)
        return ok("locked memory", "the limit does not apply to BPF on this kernel");
    return {"locked memory",
            CheckState::Limited,
            "limit " + (soft.empty() ? std::string("unknown") : soft + " bytes"),
            "kernels before 5.11 charge BPF maps to it and refuse large ones",
            privilege_fix(root),
            true,
            Code::LockedMemory};
}

Check check_number(const std::string &root, std::string name, const std::string &path,
                   std::uint64_t highest, std::string effect, std::string fix, bool privileged,
                   Code code) {
    const auto value = inventory::read_line(root + path);
    if (!value)
        return ok(std::move(name), "no such setting on this kernel");
    const auto number = inventory::parse_number(*value);
    // A negative number is the most permissive setting of these files.
    if (privileged || value->starts_with('-') || (number && *number <= highest))
        return ok(std::move(name), *value + (privileged ? ", does not apply to this user" : ""));
    return {std::move(name),
            CheckState::Limited,
            *value,
            std::move(effect),
            std::move(fix),
            true,
            code};
}

Check check_proc(const std::string &root, bool privileged) {
    const auto text = inventory::read_file(root + "/proc/self/mounts", status_bytes);
    for (const std::string_view line :
         inventory::split(text ? std::string_view(*text) : "", '\n')) {
        const auto fields = inventory::split(line, ' ');
        if (fields.size() < 4 || fields[1] != "/proc" || fields[2] != "proc")
            continue;
        for (const std::string_view option : inventory::split(fields[3], ',')) {
            if (!option.starts_with("hidepid=") || option == "hidepid=0" || option == "hidepid=off")
                continue;
            if (privileged)
                return ok("/proc", std::string(option) + ", does not apply to this user");
            return {"/proc",
                    CheckState::Limited,
                    std::string(option),
                    "queue pairs of other users: only the pid of the owner is known",
                    privilege_fix(root),
                    true,
                    Code::ProcessesHidden};
        }
        return ok("/proc", "all processes visible");
    }
    return {"/proc",
            CheckState::Missing,
            "not mounted",
            "no program, job or cgroup for the owner of a queue pair",
            "mount -t proc proc /proc",
            false,
            Code::NoProc};
}

} // namespace

// Root that lacks a capability is in a container or a service: sudo does not help.
std::string privilege_fix(const std::string &root) {
    const auto text = inventory::read_file(root + "/proc/self/status", status_bytes);
    for (const std::string_view line :
         inventory::split(text ? std::string_view(*text) : "", '\n')) {
        // "Uid:  real  effective  saved  file system"
        if (line.starts_with("Uid:\t") && inventory::split(line, '\t').size() > 2 &&
            inventory::split(line, '\t')[2] == "0")
            return std::string(as_root_in_container);
    }
    return privilege_fix_without_root;
}

bool has_capability(const std::string &root, int capability) {
    return (effective_capabilities(root).value_or(0) >> capability & 1) != 0;
}

std::vector<Check> check_privileges(const DoctorOptions &options) {
    const std::string &root = options.root;
    const std::uint64_t effective = effective_capabilities(root).value_or(0);
    const bool admin = (effective >> CAP_SYS_ADMIN & 1) != 0;
    const bool ptrace = (effective >> CAP_SYS_PTRACE & 1) != 0;
    const bool perfmon = admin || (effective >> CAP_PERFMON & 1) != 0;
    const bool syslog = (effective >> CAP_SYSLOG & 1) != 0;
    return {check_capabilities(root, effective), check_pid_namespace(root),
            check_memory_limit(options, effective),
            // 2 hides them from all users.
            check_number(root, "kptr_restrict", "/proc/sys/kernel/kptr_restrict", syslog ? 1 : 0,
                         "kernel addresses are hidden: rdma_rxe packets cannot be counted",
                         "sudo sysctl kernel.kptr_restrict=1 (and CAP_SYSLOG)", false,
                         Code::KernelPointersHidden),
            check_number(root, "perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid", 1,
                         "no probes without CAP_PERFMON; changing this setting is not enough",
                         privilege_fix(root), perfmon, Code::PerfEventParanoid),
            check_proc(root, ptrace)};
}

} // namespace collwire::doctor
