// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/injections.h"

#include <fmt/format.h>

#include "collwire/gpu_records.h"
#include "userspace/inject/inject.h"
#include "userspace/process/guest_library.h"
#include "userspace/record/say.h"

namespace collwire::record {
namespace {

constexpr std::uint64_t NS_PER_US = 1000;

} // namespace

Result<void> inject_guests(const RecordOptions &options) {
    if (options.inject.empty())
        return {};
    const auto installed = process::installed_guest_libraries();
    if (installed.empty())
        return error(ErrorKind::Failed, fmt::format("--inject: no {} is installed. Fix: install it "
                                                    "next to collwire",
                                                    CW_GPU_LIBRARY));
    const auto library = inject::read_guest_library(installed.front());
    if (!library)
        return library.failure();
    for (const std::uint32_t pid : options.inject)
        if (auto checked = inject::check(static_cast<pid_t>(pid)); !checked)
            return checked;
    if (options.dry_run)
        return {};
    for (const std::uint32_t pid : options.inject) {
        const auto done = inject::inject(static_cast<pid_t>(pid), *library);
        if (!done)
            return done.failure();
        say("process {}: loaded {}; paused thread {} ({}, in {}) for {} us", pid, CW_GPU_LIBRARY,
            done->tid, done->name, done->call, done->paused_ns / NS_PER_US);
    }
    return {};
}

} // namespace collwire::record
