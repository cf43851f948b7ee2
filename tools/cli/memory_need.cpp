// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/memory_need.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "correlate/report/units.h"

namespace collwire::cli {
namespace {

// Of jobs of 16 to 8,192 ranks (docs/scale.md).
constexpr std::uint64_t LEAST_BYTES = 55, MOST_BYTES = 110;

// Intervals may have more records than the average, and each has the state before it, too.
constexpr std::uint64_t OF_INTERVAL = 3;
constexpr std::size_t MOST_AT_ONCE = 8;

std::uint64_t interval_bytes(std::uint64_t records, std::size_t n_intervals) {
    return records / std::max<std::size_t>(n_intervals, 1) * OF_INTERVAL * MOST_BYTES;
}

std::optional<std::uint64_t> number_in(const std::string &path) {
    std::ifstream file(path);
    std::uint64_t value = 0;
    return file >> value ? std::optional(value) : std::nullopt; // "max": no limit
}

std::uint64_t available_bytes() {
    std::ifstream file("/proc/meminfo");
    std::string name, rest;
    for (std::uint64_t kib = 0; file >> name >> kib; std::getline(file, rest))
        if (name == "MemAvailable:")
            return kib << 10;
    return UINT64_MAX;
}

// Of version 2: the least limit of the process's own and of those above it.
std::uint64_t group_limit_bytes() {
    std::ifstream file("/proc/self/cgroup");
    std::uint64_t least = UINT64_MAX;
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("0::/"))
            continue;
        for (std::string group = line.substr(3); !group.empty(); group.resize(group.rfind('/')))
            if (const auto limit = number_in("/sys/fs/cgroup" + group + "/memory.max"))
                least = std::min(least, *limit);
    }
    return least;
}

} // namespace

std::uint64_t count_records(const ChosenCaptures &chosen, const capture::Window *window) {
    std::uint64_t records = 0;
    for (const ChosenCapture &capture : chosen.captures) {
        auto file = FileInParts::open(capture.path);
        if (!file)
            continue;
        std::optional<capture::WindowFilter> filter;
        if (window != nullptr)
            filter.emplace(*window);
        // The first block has the clock.
        (void)capture::read_chosen_blocks(
            file->size_bytes(),
            [&](std::uint64_t offset, std::size_t length) { return file->read(offset, length); },
            [&](const capture::BlockHeader &block) {
                if (!filter || filter->needs(block))
                    records += block.n_records;
                return filter && block.sequence == 0;
            },
            [&](const cw_header &header, std::span<const std::byte> record) {
                filter->add(header, record, [](const cw_header &, std::span<const std::byte>) {});
            });
    }
    return records;
}

std::uint64_t free_memory_bytes() {
    std::uint64_t left = std::min(available_bytes(), group_limit_bytes());
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        left = std::min<std::uint64_t>(left, limit.rlim_cur);
    return left == UINT64_MAX ? 0 : left;
}

std::optional<std::string> memory_warning(std::uint64_t records, std::uint64_t free_bytes) {
    if (free_bytes == 0 || records < free_bytes / MOST_BYTES)
        return std::nullopt;
    return fmt::format("{} records may need {} to {} of memory, and {} are free. Fix, if it ends: "
                       "a part of the time (--last 60s, or --from and --to), one job (--job), or "
                       "a machine with more memory. `collwire diagnose` needs less than 100 MiB",
                       report::grouped(records), report::human_bytes(records * LEAST_BYTES),
                       report::human_bytes(records * MOST_BYTES), report::human_bytes(free_bytes));
}

std::optional<std::string> memory_warning_of_interval(std::uint64_t records,
                                                      std::size_t n_intervals,
                                                      std::uint64_t free_bytes) {
    const std::uint64_t need_bytes = interval_bytes(records, n_intervals);
    if (free_bytes == 0 || need_bytes < free_bytes)
        return std::nullopt;
    return fmt::format("an interval may need {} of memory, and {} are free. Fix, if it ends: a "
                       "shorter interval, one job (--job), or a machine with more memory",
                       report::human_bytes(need_bytes), report::human_bytes(free_bytes));
}

std::size_t intervals_at_once(std::uint64_t records, std::size_t n_intervals,
                              std::uint64_t free_bytes, std::size_t cpus) {
    const std::size_t most = std::clamp<std::size_t>(cpus, 1, MOST_AT_ONCE);
    const std::uint64_t each_bytes = interval_bytes(records, n_intervals);
    if (free_bytes == 0 || each_bytes == 0)
        return most;
    return std::clamp<std::size_t>(free_bytes / each_bytes, 1, most);
}

} // namespace collwire::cli
