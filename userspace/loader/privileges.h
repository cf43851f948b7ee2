// SPDX-License-Identifier: Apache-2.0
// The privileges of this process, and the restrictions of this kernel. `root` goes before every
// path; empty: the machine itself.
#pragma once

#include <string>

namespace collwire::loader {

enum class Lockdown { None, Integrity, Confidentiality };

// The kernel's lockdown mode; None if the kernel has none or does not show it.
[[nodiscard]] Lockdown kernel_lockdown(const std::string &root = {});

[[nodiscard]] bool has_kernel_btf(const std::string &root = {});

// Names of the missing capabilities that recording needs, comma-separated; empty: none is missing.
// CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON (Linux 5.8).
[[nodiscard]] std::string missing_capabilities(const std::string &root = {});

// Whether this process is in another user namespace than the first: capabilities there do not allow
// BPF.
[[nodiscard]] bool in_user_namespace(const std::string &root = {});

// Whether this process is in another pid namespace than the first: BPF reports pids of the first
// one, which mean nothing or another process here.
[[nodiscard]] bool in_pid_namespace(const std::string &root = {});

} // namespace collwire::loader
