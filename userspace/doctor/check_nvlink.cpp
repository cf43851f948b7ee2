// SPDX-License-Identifier: Apache-2.0
// Whether NVLink counters and errors of the NVIDIA driver can be recorded.
#include <algorithm>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "userspace/doctor/checks.h"
#include "userspace/inventory/files.h"

namespace collwire::doctor {
namespace {

using nvidia::NvlinkLook;

std::string listed(const NvlinkLook &look) {
    std::string text;
    for (const NvlinkLook::Gpu &gpu : look.gpus)
        text += fmt::format("{}{}: {}{}", text.empty() ? "" : "; ", gpu.pci_address,
                            gpu.links == 0 ? "no NVLink" : fmt::format("{} NVLinks", gpu.links),
                            gpu.has_state ? fmt::format(", {} up", gpu.active_links) : "");
    return text;
}

Check check_counters(const NvlinkLook &look, bool has_driver) {
    constexpr const char *NAME = "NVLink";
    if (look.outcome == NvlinkLook::Outcome::NoLibrary && !has_driver)
        return ok(NAME, "no NVIDIA driver");
    if (look.outcome == NvlinkLook::Outcome::NoLibrary)
        return {NAME,
                CheckState::Limited,
                look.problem + ", but the driver is loaded",
                "record has no NVLink counters",
                "install the driver's user-space libraries, or pass them into the container",
                false,
                Code::NoNvml};
    if (look.outcome != NvlinkLook::Outcome::Listed)
        return {NAME,
                CheckState::Limited,
                look.problem,
                "record has no NVLink counters",
                "nvidia-smi says which GPU is ill",
                false,
                Code::NvmlFailed};
    if (look.gpus.empty())
        return ok(NAME, "no GPU");
    const bool lacks_bytes = std::ranges::any_of(
        look.gpus, [](const NvlinkLook::Gpu &gpu) { return gpu.links != 0 && !gpu.has_bytes; });
    if (lacks_bytes)
        return {NAME,
                CheckState::Limited,
                listed(look) + "; NVML has no byte counter for some",
                "the NVLink bytes of these GPUs are not measured",
                "a newer driver",
                false,
                Code::NoNvlinkBytes};
    return ok(NAME, listed(look));
}

Check check_log(const std::string &root) {
    constexpr const char *NAME = "kernel log";
    const int fd = open((root + "/dev/kmsg").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const bool is_absent = fd < 0 && !inventory::exists(root + "/dev/kmsg");
    if (fd >= 0)
        close(fd);
    if (fd >= 0)
        return ok(NAME, "readable");
    return {NAME,
            CheckState::Limited,
            is_absent ? "no /dev/kmsg" : "not readable",
            "record has no errors of the NVIDIA driver (Xid)",
            is_absent ? "pass /dev/kmsg into the container" : "run as root, or with CAP_SYSLOG",
            false,
            is_absent ? Code::NoKernelLog : Code::KernelLogUnreadable};
}

} // namespace

// Of a machine without NVIDIA's driver one line.
std::vector<Check> check_nvlink(const DoctorOptions &options) {
    const bool has_driver = inventory::exists(options.root + "/proc/driver/nvidia");
    const NvlinkLook look = options.nvlink();
    std::vector<Check> checks{check_counters(look, has_driver)};
    if (has_driver || look.outcome != NvlinkLook::Outcome::NoLibrary)
        checks.push_back(check_log(options.root));
    return checks;
}

} // namespace collwire::doctor
