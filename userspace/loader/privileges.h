// SPDX-License-Identifier: Apache-2.0
// What this process may do and what this kernel lets anybody do.
#pragma once

#include <string>

namespace collwire {

enum class Lockdown { None, Integrity, Confidentiality };

// The kernel's lockdown mode; None where the kernel has none or does not say.
[[nodiscard]] Lockdown kernel_lockdown();

[[nodiscard]] bool has_kernel_btf();

// Names of the capabilities that recording needs and this process lacks, comma-separated; empty:
// none lacks. CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON (Linux 5.8).
[[nodiscard]] std::string missing_capabilities();

} // namespace collwire
