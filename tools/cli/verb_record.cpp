// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/exit_status.h"
#include "base/units.h"
#include "tools/cli/verbs.h"
#include "userspace/capture/writer.h"
#include "userspace/record/machine.h"
#include "userspace/record/recorder.h"
#include "userspace/record/say.h"

namespace collwire::cli {
namespace {

Result<std::uint32_t> ring_bytes(const std::string &text) {
    auto bytes = parse_size_bytes(text);
    if (!bytes)
        return std::move(bytes).failure().in("--ring");
    const std::uint64_t size = *bytes;
    if (size < 4096 || size > (1u << 30) || (size & (size - 1)) != 0)
        return error(
            ErrorKind::Usage,
            fmt::format("--ring {}: not a power of two from 4KiB to 1GiB. Fix: --ring 8MiB", text));
    return static_cast<std::uint32_t>(size);
}

// Converts the texts to numbers and reports the first that cannot be converted.
Result<void> interpret(RecordCommand &command) {
    record::RecordOptions &options = command.options;
    const auto convert = [](const std::string &flag, const std::optional<std::string> &text,
                            auto parse, std::uint64_t &into) -> Result<void> {
        if (!text)
            return {};
        auto parsed = parse(*text);
        if (!parsed)
            return std::move(parsed).failure().in(flag);
        if (*parsed == 0)
            return error(
                ErrorKind::Usage,
                fmt::format("{} {}: must be more than 0. Fix: omit it, or give more", flag, *text));
        into = *parsed;
        return {};
    };
    if (auto r = convert("--duration", command.duration, parse_duration_ns, options.duration_ns);
        !r)
        return r;
    if (auto r = convert("--interval", command.interval, parse_duration_ns, options.interval_ns);
        !r)
        return r;
    if (auto r = convert("--keep", command.keep, parse_duration_ns, options.keep_ns); !r)
        return r;
    if (auto r = convert("--max", command.max, parse_size_bytes, options.max_bytes); !r)
        return r;
    if (options.interval_ns < 10'000'000)
        return error(
            ErrorKind::Usage,
            fmt::format("--interval {}: too short for port counters. Fix: use 10ms or more",
                        *command.interval));
    if (command.max && options.max_bytes < capture::MIN_MAX_BYTES)
        return error(ErrorKind::Usage,
                     fmt::format("--max {}: too small for a capture. Fix: use {}KiB or more",
                                 *command.max, capture::MIN_MAX_BYTES >> 10));
    for (const std::string &pid : command.pids) {
        auto process = record::check_process(pid);
        if (!process)
            return std::move(process).failure().in("--pid");
        options.pids.push_back(*process);
    }
    auto ring = ring_bytes(command.ring);
    if (!ring)
        return std::move(ring).failure();
    options.ring_bytes = *ring;
    options.wire = !command.no_wire;
    options.nccl = !command.no_nccl;
    options.posts = command.posts == "on"    ? record::PostsMode::On
                    : command.posts == "off" ? record::PostsMode::Off
                                             : record::PostsMode::Auto;
    return {};
}

} // namespace

int run_record(RecordCommand command) {
    if (!command.options.command.empty() && !command.has_separator) {
        const std::string &word = command.options.command.front();
        record::say("{}: not expected. Fix: -o {} for a directory, -- {} for a command", word, word,
                    word);
        return EXIT_USAGE;
    }
    if (auto interpreted = interpret(command); !interpreted) {
        record::say("{}", interpreted.failure().message);
        return exit_status_of(interpreted.failure());
    }
    return record::run_record(command.options);
}

} // namespace collwire::cli
