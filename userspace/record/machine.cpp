// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/machine.h"

#include <string_view>

#include <fmt/format.h>

#include "userspace/inventory/files.h"
#include "userspace/inventory/rdma_devices.h"
#include "userspace/loader/privileges.h"

namespace collwire::record {
namespace {

constexpr std::uint64_t PID_MAX_LIMIT = 1 << 22; // include/linux/threads.h
constexpr std::size_t STATUS_BYTES = 64 << 10;

constexpr std::string_view STILL_WORKS =
    "Without it, `collwire record --counters-only` (devices, ports and their counters), `report`, "
    "`topology` and `doctor` still work";

Result<void> check_privileges(const std::string &root) {
    if (const std::string missing = loader::missing_capabilities(root); !missing.empty())
        return error(ErrorKind::NotPermitted,
                     fmt::format("not permitted: recording needs {}. Fix: sudo collwire record. {}",
                                 missing, STILL_WORKS));
    if (loader::in_user_namespace(root))
        return error(
            ErrorKind::NotPermitted,
            fmt::format(
                "not permitted: root of a user namespace (a rootless container), not of the "
                "machine. Fix: run it outside the container, or in a privileged one. {}",
                STILL_WORKS));
    if (loader::in_pid_namespace(root))
        return error(ErrorKind::NotPermitted,
                     fmt::format("not permitted: this pid namespace is a container's own, but the "
                                 "kernel reports pids of the machine's. Fix: run it outside the "
                                 "container, or with --pid=host (hostPID: true). {}",
                                 STILL_WORKS));
    if (loader::kernel_lockdown(root) == loader::Lockdown::Confidentiality)
        return error(
            ErrorKind::NotPermitted,
            fmt::format("not permitted: lockdown=confidentiality (/sys/kernel/security/lockdown) "
                        "forbids reading kernel memory. Fix: boot with lockdown=integrity. {}",
                        STILL_WORKS));
    return {};
}

Result<void> check_btf(const std::string &root) {
    if (loader::has_kernel_btf(root))
        return {};
    return error(ErrorKind::Unsupported,
                 fmt::format("unsupported: the kernel has no BTF (/sys/kernel/btf/vmlinux is "
                             "missing). Fix: boot a kernel built with CONFIG_DEBUG_INFO_BTF=y. {}",
                             STILL_WORKS));
}

Result<void> check_rdma(const std::string &root) {
    if (!inventory::rdma_device_names(root).empty())
        return {};
    return error(
        ErrorKind::Unsupported,
        "unsupported: no RDMA device (/sys/class/infiniband is empty or missing). Fix: load the "
        "NIC driver (modprobe mlx5_ib), or, without hardware, `rdma link add rxe0 type rxe netdev "
        "eth0`. Without it, `report`, `topology` and `doctor` still work");
}

} // namespace

Result<void> check_machine(Recording what, const std::string &root) {
    if (what != Recording::CountersOnly) {
        if (auto permitted = check_privileges(root); !permitted)
            return permitted;
        if (auto described = check_btf(root); !described)
            return described;
    }
    return what == Recording::NcclToo ? Result<void>{} : check_rdma(root);
}

Result<std::uint32_t> check_process(const std::string &text, const std::string &root) {
    const auto pid = inventory::parse_number(text);
    const bool is_a_number = pid && *pid != 0 && *pid <= PID_MAX_LIMIT;
    if (!is_a_number)
        return error(ErrorKind::Usage, fmt::format("'{}' is not a process id. Fix: give the pid of "
                                                   "a running process, or omit --pid to record all",
                                                   text));
    const auto status =
        inventory::read_file(fmt::format("{}/proc/{}/status", root, *pid), STATUS_BYTES);
    if (!status)
        return error(ErrorKind::Usage, fmt::format("no process {}. Fix: give the pid of a running "
                                                   "process, or omit --pid to record all",
                                                   *pid));
    for (const std::string_view line : inventory::split(*status, '\n')) {
        if (!line.starts_with("Tgid:"))
            continue;
        if (const auto tgid = inventory::parse_number(inventory::trim(line.substr(5)));
            tgid && *tgid != *pid)
            return error(
                ErrorKind::Usage,
                fmt::format("{} is a thread of process {}. Fix: --pid {}", *pid, *tgid, *tgid));
    }
    return static_cast<std::uint32_t>(*pid);
}

} // namespace collwire::record
