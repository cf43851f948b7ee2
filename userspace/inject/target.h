// SPDX-License-Identifier: Apache-2.0
// Whether a process may get the guest library while it runs.
#pragma once

#include <string>
#include <string_view>

#include <sys/types.h>

#include "base/result.h"
#include "userspace/process/process_view.h"

namespace collwire::inject {

// By /proc/PID/status: a process that is stopped, traced, exited, or has a seccomp filter is
// refused. NotPermitted, Unsupported or Failed; the message names what to do.
Result<void> check_status(std::string_view status);

// By its mappings and environment ("NAME=VALUE" with zeros between): no glibc, no CUDA, another
// file that CUDA has injected, or the guest library, are refused.
Result<void> check_files(const std::vector<process::Mapping> &mappings,
                         std::string_view environment);

// Both, of a process. The view is refreshed.
Result<void> check_target(process::ProcessView &view);

} // namespace collwire::inject
