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
    "Without it, `collwire record --counters-only` records devices, ports and their counters, and "
    "`collwire report`, `topology` and `doctor` work";

Result<void> check_privileges(const std::string &root) {
    if (const std::string missing = loader::missing_capabilities(root); !missing.empty())
        return error(ErrorKind::NotPermitted,
                     fmt::format("not permitted: recording needs {}. Fix: sudo collwire record. {}",
                                 missing, STILL_WORKS));
    if (loader::in_user_namespace(root))
        return error(ErrorKind::NotPermitted,
                     fmt::format("not permitted: this is root of a user namespace (a rootless "
                                 "container), not of the machine. Fix: run it outside of the "
                                 "container, or in a privileged one. {}",
                                 STILL_WORKS));
    if (loader::in_pid_namespace(root))
        return error(ErrorKind::NotPermitted,
                     fmt::format("not permitted: this is a pid namespace of its own (a container), "
                                 "and the kernel tells pids of the machine's. Fix: run it outside "
                                 "of the container, or with --pid=host (hostPID: true). {}",
                                 STILL_WORKS));
    if (loader::kernel_lockdown(root) == loader::Lockdown::Confidentiality)
        return error(
            ErrorKind::NotPermitted,
            fmt::format("not permitted: the kernel is locked down (confidentiality in "
                        "/sys/kernel/security/lockdown), no program may look into it. Fix: "
                        "boot with lockdown=integrity. {}",
                        STILL_WORKS));
    return {};
}

Result<void> check_btf(const std::string &root) {
    if (loader::has_kernel_btf(root))
        return {};
    return error(ErrorKind::Unsupported,
                 fmt::format("unsupported: the kernel does not describe its types "
                             "(/sys/kernel/btf/vmlinux is missing). Fix: boot a kernel built with "
                             "CONFIG_DEBUG_INFO_BTF=y. {}",
                             STILL_WORKS));
}

Result<void> check_rdma(const std::string &root) {
    if (!inventory::rdma_device_names(root).empty())
        return {};
    return error(ErrorKind::Unsupported,
                 "unsupported: no RDMA device (/sys/class/infiniband is empty or missing). Fix: "
                 "load the driver of the network card (modprobe mlx5_ib), or, without hardware, "
                 "`rdma link add rxe0 type rxe netdev eth0`. Without it, `collwire report`, "
                 "`topology` and `doctor` work; doctor tells more");
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
        return error(ErrorKind::Usage,
                     fmt::format("'{}' is no process id. Fix: give that of a running process, or "
                                 "leave --pid out for all",
                                 text));
    const auto status =
        inventory::read_file(fmt::format("{}/proc/{}/status", root, *pid), STATUS_BYTES);
    if (!status)
        return error(ErrorKind::Usage,
                     fmt::format("no process {}. Fix: give the id of a running one, or leave "
                                 "--pid out for all",
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
