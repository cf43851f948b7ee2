// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/privileges.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <unistd.h>

#include <linux/capability.h>

namespace collwire::loader {

Lockdown kernel_lockdown(const std::string &root) {
    std::ifstream file(root + "/sys/kernel/security/lockdown");
    std::string text;
    std::getline(file, text);
    if (text.find("[confidentiality]") != std::string::npos)
        return Lockdown::Confidentiality;
    if (text.find("[integrity]") != std::string::npos)
        return Lockdown::Integrity;
    return Lockdown::None;
}

bool has_kernel_btf(const std::string &root) {
    return access((root + "/sys/kernel/btf/vmlinux").c_str(), R_OK) == 0;
}

std::string missing_capabilities(const std::string &root) {
    std::ifstream file(root + "/proc/self/status");
    std::uint64_t effective = 0;
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("CapEff:"))
            effective = std::strtoull(line.c_str() + 7, nullptr, 16);
    const auto has = [&](int capability) { return (effective >> capability & 1) != 0; };
    // fentry on modules and uprobes need CAP_SYS_ADMIN itself on every kernel before 6.6.
    if (has(CAP_SYS_ADMIN))
        return {};
    std::string missing = "CAP_SYS_ADMIN";
    if (!has(CAP_BPF))
        missing += ", CAP_BPF";
    if (!has(CAP_PERFMON))
        missing += ", CAP_PERFMON";
    return missing;
}

bool in_user_namespace(const std::string &root) {
    // "inside outside length": all ids map to themselves in the first namespace
    // (user_namespaces(7)). A kernel without user namespaces has no such file.
    std::ifstream file(root + "/proc/self/uid_map");
    std::uint64_t inside = 0;
    std::uint64_t outside = 0;
    std::uint64_t length = 0;
    if (!(file >> inside >> outside >> length))
        return false;
    return inside != 0 || outside != 0 || length != UINT32_MAX;
}

bool in_pid_namespace(const std::string &root) {
    // PROC_PID_INIT_INO, 0xEFFFFFFC (include/linux/proc_ns.h, since Linux 3.8). A kernel without
    // pid namespaces has no such file.
    std::error_code absent;
    const auto name = std::filesystem::read_symlink(root + "/proc/self/ns/pid", absent);
    return !absent && name != "pid:[4026531836]";
}

} // namespace collwire::loader
