// SPDX-License-Identifier: Apache-2.0
// What this process may do and what this kernel lets anybody do. `root` goes before
// every path; empty: the machine itself.
#pragma once

#include <string>

namespace collwire::loader {

enum class Lockdown { None, Integrity, Confidentiality };

// The kernel's lockdown mode; None where the kernel has none or does not say.
[[nodiscard]] Lockdown kernel_lockdown(const std::string &root = {});

[[nodiscard]] bool has_kernel_btf(const std::string &root = {});

// Names of the capabilities that recording needs and this process lacks, comma-separated; empty:
// none lacks. CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON (Linux 5.8).
[[nodiscard]] std::string missing_capabilities(const std::string &root = {});

// Capabilities of a user namespace other than the machine's own do not reach BPF.
[[nodiscard]] bool in_user_namespace(const std::string &root = {});

// Whether this process is in another pid namespace than the machine's first: BPF tells the pids of
// the first one, which mean nothing, or somebody else, here.
[[nodiscard]] bool in_pid_namespace(const std::string &root = {});

} // namespace collwire::loader
