// SPDX-License-Identifier: Apache-2.0
#include "userspace/inject/target.h"

#include <algorithm>

#include <fmt/format.h>

#include "userspace/inject/places.h"
#include "userspace/inventory/files.h"
#include "userspace/process/guest_library.h"

namespace collwire::inject {
namespace {

constexpr std::size_t MAX_STATUS_BYTES = 16384;
constexpr std::size_t MAX_ENVIRONMENT_BYTES = 4 << 20;
constexpr std::string_view INJECTION = "CUDA_INJECTION64_PATH=";
constexpr std::string_view START_ANEW = "Fix: start the job with `collwire run -- CMD`";

std::string_view field_of(std::string_view status, std::string_view name) {
    for (std::string_view line : inventory::split(status, '\n'))
        if (line.starts_with(name))
            return inventory::trim(line.substr(name.size()));
    return {};
}

Error refused(std::string_view what, std::string_view fix) {
    return error(ErrorKind::Unsupported, fmt::format("{}. {}", what, fix));
}

} // namespace

Result<void> check_status(std::string_view status) {
    const auto tracer = field_of(status, "TracerPid:");
    if (!tracer.empty() && tracer != "0")
        return refused(fmt::format("process {} traces it", tracer),
                       "Fix: end that debugger, or strace");
    const auto state = field_of(status, "State:");
    if (state.empty() || state.starts_with('Z') || state.starts_with('X'))
        return refused("it has exited", "Fix: name a process that runs");
    if (state.starts_with('T') || state.starts_with('t'))
        return refused("it is stopped", "Fix: kill -CONT, or wait");
    if (state.starts_with('D'))
        return refused("its main thread waits in the kernel and cannot be interrupted",
                       "Fix: wait until it goes on");
    const auto seccomp = field_of(status, "Seccomp:");
    if (!seccomp.empty() && seccomp != "0")
        return refused("it has a seccomp filter, which may forbid what loading needs", START_ANEW);
    return {};
}

Result<void> check_files(const std::vector<process::Mapping> &mappings,
                         std::string_view environment) {
    const auto has = [&mappings](bool (*is_it)(std::string_view)) {
        return std::ranges::any_of(mappings, [is_it](const process::Mapping &mapping) {
            return mapping.executable && is_it(mapping.path);
        });
    };
    if (has(process::is_guest_library))
        return refused("it has the guest library already", "Fix: omit it from --inject");
    if (!has(is_c_library))
        return refused("it does not run with glibc (static, musl or 32-bit)", START_ANEW);
    if (!has(process::is_cuda_driver))
        return refused("it has not loaded CUDA's driver, libcuda.so",
                       "Fix: name a process that uses a GPU");
    // The driver has loaded it, or tried: a profiler's, in all likelihood.
    for (std::string_view variable : inventory::split(environment, '\0'))
        if (variable.starts_with(INJECTION) && variable.size() > INJECTION.size())
            return refused(fmt::format("it was started with {}", variable),
                           "Fix: start the job without that variable");
    return {};
}

Result<void> check_target(process::ProcessView &view) {
    const auto about = [&view](Error failure) {
        return std::move(failure).in(fmt::format("process {} gets no guest library", view.pid()));
    };
    const auto status =
        inventory::read_file(fmt::format("/proc/{}/status", view.pid()), MAX_STATUS_BYTES);
    if (!status)
        return about(refused("it has exited", "Fix: name a process that runs"));
    if (auto checked = check_status(*status); !checked)
        return about(std::move(checked).failure());
    const auto environment =
        inventory::read_file(fmt::format("/proc/{}/environ", view.pid()), MAX_ENVIRONMENT_BYTES);
    if (!environment || !view.refresh())
        return about(
            error(ErrorKind::NotPermitted, "its memory may not be read. Fix: run as root"));
    if (auto checked = check_files(view.mappings(), *environment); !checked)
        return about(std::move(checked).failure());
    return {};
}

} // namespace collwire::inject
