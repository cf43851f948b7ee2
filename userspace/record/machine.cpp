// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/machine.h"

#include <string_view>

#include <fmt/format.h>

#include "userspace/inventory/rdma_devices.h"
#include "userspace/loader/privileges.h"

namespace collwire {
namespace {

constexpr std::string_view STILL_WORKS =
    "Without it, `collwire record --counters-only` records devices, ports and their counters, and "
    "`collwire report`, `topology` and `doctor` work";

Result<void> check_privileges(const std::string &root) {
    if (const std::string missing = missing_capabilities(root); !missing.empty())
        return error(ErrorKind::NotPermitted,
                     fmt::format("not permitted: recording needs {}. Fix: sudo collwire record. {}",
                                 missing, STILL_WORKS));
    if (in_user_namespace(root))
        return error(ErrorKind::NotPermitted,
                     fmt::format("not permitted: this is root of a user namespace (a rootless "
                                 "container), not of the machine. Fix: run it outside of the "
                                 "container, or in a privileged one. {}",
                                 STILL_WORKS));
    if (in_pid_namespace(root))
        return error(ErrorKind::NotPermitted,
                     fmt::format("not permitted: this is a pid namespace of its own (a container), "
                                 "and the kernel tells pids of the machine's. Fix: run it outside "
                                 "of the container, or with --pid=host (hostPID: true). {}",
                                 STILL_WORKS));
    if (kernel_lockdown(root) == Lockdown::Confidentiality)
        return error(
            ErrorKind::NotPermitted,
            fmt::format("not permitted: the kernel is locked down (confidentiality in "
                        "/sys/kernel/security/lockdown), no program may look into it. Fix: "
                        "boot with lockdown=integrity. {}",
                        STILL_WORKS));
    return {};
}

Result<void> check_btf(const std::string &root) {
    if (has_kernel_btf(root))
        return {};
    return error(ErrorKind::Unsupported,
                 fmt::format("unsupported: the kernel does not describe its types "
                             "(/sys/kernel/btf/vmlinux is missing). Fix: boot a kernel built with "
                             "CONFIG_DEBUG_INFO_BTF=y. {}",
                             STILL_WORKS));
}

Result<void> check_rdma(const std::string &root) {
    if (!rdma_device_names(root).empty())
        return {};
    return error(ErrorKind::Unsupported,
                 "unsupported: no RDMA device (/sys/class/infiniband is empty or missing). Fix: "
                 "load the driver of the network card (modprobe mlx5_ib), or, without hardware, "
                 "`rdma link add rxe0 type rxe netdev eth0`. Without it, `collwire report`, "
                 "`topology` and `doctor` work; doctor tells more");
}

} // namespace

Result<void> check_machine(bool counters_only, const std::string &root) {
    if (!counters_only) {
        if (auto permitted = check_privileges(root); !permitted)
            return permitted;
        if (auto described = check_btf(root); !described)
            return described;
    }
    return check_rdma(root);
}

} // namespace collwire
