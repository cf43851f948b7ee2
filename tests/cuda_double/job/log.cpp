// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/job/log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "tests/cuda_double/rendezvous.h"

namespace collwire::job {
namespace {

std::int64_t clock_ns(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

} // namespace

Moment Moment::now() {
    return {clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_REALTIME)};
}

JobLog::JobLog(const std::string &path) {
    if (path.empty())
        return;
    file_ = std::fopen(path.c_str(), "w");
    if (file_ == nullptr)
        give_up(fmt::format("--log {}: {}. Fix: a path that can be written", path,
                            std::strerror(errno)));
}

JobLog::~JobLog() {
    if (file_ != nullptr)
        std::fclose(file_);
}

void JobLog::write(const char *event, const Moment &at, const Fields &fields) {
    if (file_ == nullptr)
        return;
    Fields line = {
        {"event", event}, {"at_ns", at.monotonic_ns}, {"at_realtime_ns", at.realtime_ns}};
    line.update(fields);
    const std::string text = line.dump() + "\n";
    std::fwrite(text.data(), 1, text.size(), file_);
    std::fflush(file_); // a job may be killed
}

std::string hexadecimal(const void *address) {
    return fmt::format("{:#x}", reinterpret_cast<std::uintptr_t>(address));
}

} // namespace collwire::job
