// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
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

constexpr std::uint64_t LEAST_GPU_SLICE_NS = 500'000'000;
constexpr std::uint64_t LEAST_POSTS_SLICE_NS = 100'000'000;
constexpr double LEAST_BUDGET_PERCENT = 0.001;

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

Result<double> budget_share(const std::string &text) {
    double percent = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), percent);
    const bool is_number = code == std::errc{} && std::string_view(end) == "%";
    if (!is_number || !(percent >= LEAST_BUDGET_PERCENT && percent <= 100))
        return error(ErrorKind::Usage,
                     fmt::format("--budget {}: not a share of one CPU from {}% to 100%. Fix: "
                                 "--budget 0.3%",
                                 text, LEAST_BUDGET_PERCENT));
    return percent / 100;
}

Error bad_gpu(const std::string &text, std::string_view problem) {
    return error(ErrorKind::Usage,
                 fmt::format("--gpu={}: {}. Fix: --gpu, --gpu=slices, "
                             "--gpu=slices:2s/60s, --gpu=signal or --gpu=stall:10s",
                             text, problem));
}

Result<void> interpret_gpu(const std::string &text, record::RecordOptions &options) {
    constexpr std::string_view SLICES = "slices", STALL = "stall";
    if (text.empty())
        return {};
    if (text == "always") {
        options.gpu = record::GpuMode::Always;
        return {};
    }
    if (text == "signal") {
        options.gpu = record::GpuMode::OnSignal;
        return {};
    }
    if (text == STALL || text.starts_with("stall:")) {
        options.gpu = record::GpuMode::OnStall;
        if (text == STALL)
            return {};
        const auto stall_ns = parse_duration_ns(std::string_view(text).substr(STALL.size() + 1));
        if (!stall_ns || *stall_ns == 0)
            return bad_gpu(text, "no duration");
        options.gpu_stall_ns = *stall_ns;
        return {};
    }
    if (!text.starts_with(SLICES))
        return bad_gpu(text, "not known");
    options.gpu = record::GpuMode::Slices;
    std::string_view times = std::string_view(text).substr(SLICES.size());
    if (times.empty())
        return {};
    const auto slash = times.find('/');
    if (times.front() != ':' || slash == std::string_view::npos)
        return bad_gpu(text, "not known");
    const auto on_ns = parse_duration_ns(times.substr(1, slash - 1));
    const auto period_ns = parse_duration_ns(times.substr(slash + 1));
    if (!on_ns || !period_ns)
        return bad_gpu(text, "no duration");
    // The library polls its semaphore four times a second.
    if (*on_ns < LEAST_GPU_SLICE_NS || *period_ns < LEAST_GPU_SLICE_NS ||
        *period_ns - LEAST_GPU_SLICE_NS < *on_ns)
        return bad_gpu(text, "a slice, and the time between two, must be 500 ms or more");
    options.gpu_on_ns = *on_ns;
    options.gpu_period_ns = *period_ns;
    return {};
}

Error bad_posts_slice(const std::string &text, std::string_view problem) {
    return error(ErrorKind::Usage, fmt::format("--posts-slice={}: {}. Fix: --posts-slice=1s/60s, "
                                               "or --posts-slice=always",
                                               text, problem));
}

Result<void> interpret_posts_slice(const RecordCommand &command, record::RecordOptions &options) {
    if (!command.posts_slice)
        return {};
    const std::string &text = *command.posts_slice;
    if (command.posts != "auto")
        return error(ErrorKind::Usage,
                     fmt::format("--posts-slice={}: --posts={} has no slices. Fix: omit one of "
                                 "them",
                                 text, command.posts));
    if (text == "always") {
        options.posts_on_ns = 0;
        return {};
    }
    const auto slash = text.find('/');
    if (slash == std::string::npos)
        return bad_posts_slice(text, "not ON/PERIOD");
    const auto on_ns = parse_duration_ns(std::string_view(text).substr(0, slash));
    const auto period_ns = parse_duration_ns(std::string_view(text).substr(slash + 1));
    if (!on_ns || !period_ns)
        return bad_posts_slice(text, "no duration");
    // To place and to remove probes takes up to tenths of a second.
    if (*on_ns < LEAST_POSTS_SLICE_NS || *period_ns < LEAST_POSTS_SLICE_NS ||
        *period_ns - LEAST_POSTS_SLICE_NS < *on_ns)
        return bad_posts_slice(text, "a slice, and the time between two, must be 100 ms or more");
    options.posts_on_ns = *on_ns;
    options.posts_period_ns = *period_ns;
    return {};
}

Result<void> interpret_inject(const RecordCommand &command, record::RecordOptions &options) {
    for (const std::string &pid : command.inject) {
        auto process = record::check_process(pid);
        if (!process)
            return std::move(process).failure().in("--inject");
        if (!options.pids.empty() &&
            std::ranges::find(options.pids, *process) == options.pids.end())
            return error(ErrorKind::Usage,
                         fmt::format("--inject {}: --pid excludes it. Fix: add it to --pid", pid));
        if (std::ranges::find(options.inject, *process) == options.inject.end())
            options.inject.push_back(*process);
    }
    return {};
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
    if (!command.choice.empty()) {
        auto chosen = inventory::choose_processes("", command.choice);
        if (!chosen)
            return std::move(chosen).failure();
        for (const std::uint32_t pid : *chosen)
            if (std::ranges::find(options.pids, pid) == options.pids.end())
                options.pids.push_back(pid);
    }
    if (auto r = interpret_inject(command, options); !r)
        return r;
    if (auto r = interpret_gpu(command.gpu, options); !r)
        return r;
    if (auto r = interpret_posts_slice(command, options); !r)
        return r;
    auto ring = ring_bytes(command.ring);
    if (!ring)
        return std::move(ring).failure();
    options.ring_bytes = *ring;
    if (command.budget) {
        auto share = budget_share(*command.budget);
        if (!share)
            return std::move(share).failure();
        options.budget = *share;
    }
    options.wire = !command.no_wire;
    options.nccl = !command.no_nccl;
    options.nvlink = !command.no_nvlink;
    if (options.gpu == record::GpuMode::OnStall && !options.nccl)
        return bad_gpu(command.gpu, "a stall is seen in NCCL, which --no-nccl leaves out");
    options.posts = command.posts == "on"    ? record::PostsMode::On
                    : command.posts == "off" ? record::PostsMode::Off
                                             : record::PostsMode::Auto;
    options.qp_source = command.qp_source == "kernel"  ? record::QpSourceMode::Kernel
                        : command.qp_source == "verbs" ? record::QpSourceMode::Verbs
                        : command.qp_source == "both"  ? record::QpSourceMode::Both
                                                       : record::QpSourceMode::Auto;
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
