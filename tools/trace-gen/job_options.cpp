// SPDX-License-Identifier: Apache-2.0
#include "tools/trace-gen/job_options.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

namespace collwire::trace_gen {
namespace {

constexpr std::array<std::pair<std::string_view, Damage>, 7> DAMAGES = {{
    {"none", Damage::None},
    {"missing", Damage::Missing},
    {"truncated", Damage::Truncated},
    {"doubled", Damage::Doubled},
    {"corrupt", Damage::Corrupt},
    {"newer-major", Damage::NewerMajor},
    {"newer-minor", Damage::NewerMinor},
}};

std::vector<std::string_view> split(std::string_view text, char at) {
    std::vector<std::string_view> parts;
    while (true) {
        const auto end = text.find(at);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos)
            return parts;
        text.remove_prefix(end + 1);
    }
}

template <typename Number> bool read(std::string_view text, Number &number) {
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    return failure == std::errc() && end == text.data() + text.size();
}

bool read_iterations(std::string_view text, std::uint32_t &first, std::uint32_t &last) {
    const auto parts = split(text, '-');
    return parts.size() == 2 && read(parts[0], first) && read(parts[1], last) && first <= last;
}

Error wrong(std::string_view option, std::string_view text, std::string_view form) {
    return error(ErrorKind::Usage,
                 fmt::format("{} {}: not understood. Fix: give it as {}", option, text, form));
}

} // namespace

Result<LateRank> parse_late(std::string_view text) {
    const auto parts = split(text, ':');
    LateRank late;
    double delay_ms = 0;
    if (parts.size() < 2 || parts.size() > 3 || !read(parts[0], late.rank) ||
        !read(parts[1], delay_ms) || delay_ms < 0 ||
        (parts.size() == 3 &&
         !read_iterations(parts[2], late.first_iteration, late.last_iteration)))
        return wrong("--late", text, "RANK:MS[:FROM-TO]");
    late.delay_ns = static_cast<std::uint64_t>(delay_ms * 1e6);
    return late;
}

Result<SlowLink> parse_slow_link(std::string_view text) {
    const auto parts = split(text, ':');
    SlowLink slow;
    if (parts.size() < 3 || parts.size() > 4 || !read(parts[0], slow.node) ||
        !read(parts[1], slow.nic) || !read(parts[2], slow.factor) || slow.nic >= GPUS ||
        slow.factor < 1 ||
        (parts.size() == 4 &&
         !read_iterations(parts[3], slow.first_iteration, slow.last_iteration)))
        return wrong("--slow-link", text, "NODE:NIC:FACTOR[:FROM-TO]");
    return slow;
}

Result<MovedNic> parse_moved_nic(std::string_view text) {
    const auto parts = split(text, ':');
    MovedNic moved;
    if (parts.size() != 3 || !read(parts[0], moved.node) || !read(parts[1], moved.from) ||
        !read(parts[2], moved.to) || moved.from >= GPUS || moved.to >= GPUS)
        return wrong("--move-nic", text, "NODE:FROM:TO");
    return moved;
}

Result<SetParameter> parse_parameter(std::string_view text) {
    const auto parts = split(text, ':');
    SetParameter parameter;
    if (parts.size() != 2 || parts[0].empty() || !read(parts[1], parameter.value))
        return wrong("--parameter", text, "NAME:VALUE");
    parameter.name = parts[0];
    return parameter;
}

Result<BucketProtocol> parse_protocol(std::string_view text) {
    if (text == "SIMPLE")
        return BucketProtocol::Simple;
    if (text == "LL")
        return BucketProtocol::LL;
    if (text == "LL128")
        return BucketProtocol::LL128;
    return wrong("--protocol", text, "SIMPLE, LL or LL128");
}

Result<PortErrors> parse_port_errors(std::string_view text) {
    const auto parts = split(text, ':');
    PortErrors errors;
    double from_s = 0, to_s = 0;
    if (parts.size() != 4 || !read(parts[0], errors.node) || !read(parts[1], errors.nic) ||
        errors.nic >= GPUS || parts[2].empty())
        return wrong("--port-errors", text, "NODE:NIC:COUNTER:FROM-TO");
    const auto times = split(parts[3], '-');
    if (times.size() != 2 || !read(times[0], from_s) || !read(times[1], to_s) || from_s < 0 ||
        from_s > to_s)
        return wrong("--port-errors", text, "NODE:NIC:COUNTER:FROM-TO, in seconds");
    errors.counter = parts[2];
    errors.from_ns = static_cast<std::uint64_t>(from_s * 1e9);
    errors.to_ns = static_cast<std::uint64_t>(to_s * 1e9);
    return errors;
}

Result<KeptError> parse_kept_error(std::string_view text) {
    const auto parts = split(text, ':');
    KeptError kept;
    double at_s = 0;
    if (parts.size() != 2 || !read(parts[0], at_s) || at_s < 0 || !read(parts[1], kept.rank))
        return wrong("--nccl-error", text, "SECONDS:RANK");
    kept.at_ns = static_cast<std::uint64_t>(at_s * 1e9);
    return kept;
}

Result<StoppedRank> parse_stopped(std::string_view text) {
    const auto parts = split(text, ':');
    StoppedRank stopped;
    double at_s = 0;
    if (parts.size() > 2 || !read(parts[0], at_s) || at_s < 0 ||
        (parts.size() == 2 && !read(parts[1], stopped.rank)))
        return wrong("--die-at", text, "SECONDS[:RANK]");
    stopped.at_ns = static_cast<std::uint64_t>(at_s * 1e9);
    return stopped;
}

Result<DamagedCapture> parse_damage(std::string_view text) {
    const auto parts = split(text, ':');
    DamagedCapture damaged;
    if (parts.size() == 2 && read(parts[0], damaged.node))
        for (const auto &[name, damage] : DAMAGES)
            if (parts[1] == name) {
                damaged.damage = damage;
                return damaged;
            }
    return wrong("--damage", text,
                 "NODE:missing, truncated, doubled, corrupt, newer-major or newer-minor");
}

std::string_view damage_name(Damage damage) {
    for (const auto &[name, value] : DAMAGES)
        if (value == damage)
            return name;
    return "none";
}

Result<SetClock> parse_clock(std::string_view text) {
    const auto parts = split(text, ':');
    SetClock set;
    double ahead_ms = 0;
    double from_s = 0;
    if (parts.size() < 2 || parts.size() > 3 || !read(parts[0], set.node) ||
        !read(parts[1], ahead_ms) || (parts.size() == 3 && (!read(parts[2], from_s) || from_s < 0)))
        return wrong("--clock", text, "NODE:MS[:SECONDS]");
    set.ahead_ns = static_cast<std::int64_t>(ahead_ms * 1e6);
    set.from_ns = static_cast<std::uint64_t>(from_s * 1e9);
    return set;
}

Result<void> parse_skew(std::string_view text, JobOptions &options) {
    const auto parts = split(text, ':');
    double most = 0;
    if (parts.size() == 1 && parts[0] == "none") {
        options.skew = JobSkew::None;
    } else if (parts.size() == 2 && parts[0] == "constant" && read(parts[1], most) && most >= 0) {
        options.skew = JobSkew::Constant;
        options.skew_ns = static_cast<std::uint64_t>(most * 1e6);
    } else if (parts.size() == 2 && parts[0] == "drift" && read(parts[1], most) && most >= 0 &&
               most <= 1000) {
        options.skew = JobSkew::Drift;
        options.drift_ppm = most;
    } else {
        return wrong("--skew", text, "none, constant:MS or drift:PPM");
    }
    return {};
}

Result<void> check_job(const JobOptions &options) {
    const auto usage = [](std::string message) {
        return error(ErrorKind::Usage, std::move(message));
    };
    if (options.nodes < 2 || options.nodes > MOST_NODES)
        return usage(
            fmt::format("--nodes {}: not supported. Fix: give 2 to {}", options.nodes, MOST_NODES));
    if (options.tensor_parallel != 1 && options.tensor_parallel != 4 &&
        options.tensor_parallel != GPUS)
        return usage("--tp: not supported. Fix: give 1, 4 or 8");
    if (options.pipeline_stages == 0 || options.nodes % options.pipeline_stages != 0 ||
        options.nodes / options.pipeline_stages < 2)
        return usage("--pp: the nodes cannot be shared. Fix: give a number of stages that divides "
                     "--nodes and leaves two nodes to each");
    const std::uint32_t of_node = GPUS / options.tensor_parallel;
    const std::uint32_t data_parallel = options.nodes / options.pipeline_stages * of_node;
    if (options.expert_parallel != 0 &&
        (options.expert_parallel % of_node != 0 || data_parallel % options.expert_parallel != 0 ||
         options.expert_parallel / of_node < 2))
        return usage(fmt::format("--ep: the ranks cannot be shared. Fix: give a multiple of {} "
                                 "that divides {} and covers two nodes",
                                 of_node, data_parallel));
    if (options.iterations == 0 || options.step_ns < 10'000'000)
        return usage("nothing to do. Fix: give --iterations 1 or more and --step-ms 10 or more");
    if (options.bucket_bytes < 4096 || options.bucket_bytes > (4ULL << 30))
        return usage("--bucket-kib: not supported. Fix: give 4 to 4194304");
    for (const SetClock &set : options.clocks)
        if (set.node >= options.nodes)
            return usage("--clock: no such node. Fix: give a node below --nodes");
    for (const LateRank &late : options.late)
        if (late.rank >= options.n_ranks())
            return usage("--late: no such rank. Fix: give a rank below 8 x --nodes");
    if (options.stopped && options.stopped->rank >= options.n_ranks())
        return usage("--die-at: no such rank. Fix: give a rank below 8 x --nodes");
    for (const PortErrors &errors : options.port_errors)
        if (errors.node >= options.nodes)
            return usage("--port-errors: no such node. Fix: give a node below --nodes");
    for (const KeptError &kept : options.kept_errors)
        if (kept.rank >= options.nodes * GPUS)
            return usage("--nccl-error: no such rank. Fix: give a rank of the job");
    for (const SlowLink &slow : options.slow)
        if (slow.node >= options.nodes)
            return usage("--slow-link: no such node. Fix: give a node below --nodes");
    for (const MovedNic &moved : options.moved)
        if (moved.node >= options.nodes)
            return usage("--move-nic: no such node. Fix: give a node below --nodes");
    for (const DamagedCapture &damaged : options.damaged)
        if (damaged.node >= options.nodes)
            return usage("--damage: no such node. Fix: give a node below --nodes");
    return {};
}

} // namespace collwire::trace_gen
