// SPDX-License-Identifier: Apache-2.0
// Whether a process survives a uretprobe.
#pragma once

#include <string_view>

namespace collwire::loader {

// From Linux 6.11 on, a probed function on x86-64 returns through the system call uretprobe. An
// older seccomp filter, such as a container runtime's, may refuse it, which kills the process.
// Since 6.14, 6.13.3 and 6.12.14 filters are not asked ("seccomp: passthrough uretprobe systemcall
// without filtering"). `release`: uname's, "6.12.9-amd64". A distribution may have the change
// earlier: true there, too.
[[nodiscard]] bool may_refuse_return_probes(std::string_view release);

// For this kernel.
[[nodiscard]] bool may_refuse_return_probes();

} // namespace collwire::loader
