// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <iterator>
#include <utility>

#include "base/foreign_text.h"

namespace collwire::report {

namespace {

constexpr std::uint64_t NS_PER_S = 1'000'000'000;

std::tm calendar(std::uint64_t realtime_ns) {
    const auto seconds = static_cast<std::time_t>(realtime_ns / NS_PER_S);
    std::tm time{};
    gmtime_r(&seconds, &time);
    return time;
}

} // namespace

std::string grouped(std::uint64_t value) {
    std::string digits = std::to_string(value);
    for (std::size_t from_end = 3; from_end < digits.size(); from_end += 4)
        digits.insert(digits.size() - from_end, 1, ',');
    return digits;
}

std::string number_ranges(std::vector<std::uint64_t> numbers, std::size_t most) {
    std::sort(numbers.begin(), numbers.end());
    std::vector<std::string> ranges;
    for (auto first = numbers.begin(); first != numbers.end();) {
        auto next = std::next(first);
        std::uint64_t last = *first;
        for (; next != numbers.end() && *next <= last + 1; ++next)
            last = *next;
        if (ranges.size() == most) {
            ranges.emplace_back("...");
            break;
        }
        ranges.push_back(last == *first ? fmt::format("{}", last)
                                        : fmt::format("{}-{}", *first, last));
        first = next;
    }
    return fmt::format("{}", fmt::join(ranges, ", "));
}

std::string human_bytes(std::uint64_t bytes) {
    static constexpr std::array units = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024)
        return fmt::format("{} B", bytes);
    double value = static_cast<double>(bytes) / 1024;
    std::size_t unit = 0;
    while (value >= 1023.995 && unit + 1 < units.size()) {
        value /= 1024;
        ++unit;
    }
    return fmt::format("{:.2f} {}", value, units[unit]);
}

std::string human_bytes(const model::Known &bytes) {
    return bytes ? human_bytes(*bytes) : "n/a";
}

std::string exact_bytes(const model::Known &bytes) {
    if (!bytes)
        return "n/a";
    if (*bytes < 1024)
        return human_bytes(*bytes);
    return fmt::format("{} ({} B)", human_bytes(*bytes), grouped(*bytes));
}

std::string share(const model::Known &part, const model::Known &whole) {
    if (!part || !whole || *whole == 0)
        return "n/a";
    return fmt::format("{:.1f} %",
                       100.0 * static_cast<double>(*part) / static_cast<double>(*whole));
}

std::string bar(const model::Known &part, const model::Known &whole, std::size_t width) {
    if (!part || !whole || *whole == 0)
        return {};
    const double filled = std::ceil(static_cast<double>(width) * static_cast<double>(*part) /
                                    static_cast<double>(*whole));
    const auto count = std::min(width, static_cast<std::size_t>(filled));
    return std::string(count, '#') + std::string(width - count, '.');
}

std::string utc(std::uint64_t realtime_ns) {
    const std::tm time = calendar(realtime_ns);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z", time.tm_year + 1900,
                       time.tm_mon + 1, time.tm_mday, time.tm_hour, time.tm_min, time.tm_sec,
                       realtime_ns % NS_PER_S);
}

std::string utc_time(std::uint64_t realtime_ns) {
    const std::tm time = calendar(realtime_ns);
    return fmt::format("{:02}:{:02}:{:02}.{:03}", time.tm_hour, time.tm_min, time.tm_sec,
                       realtime_ns % NS_PER_S / 1'000'000);
}

std::string duration(std::uint64_t ns) {
    const std::uint64_t seconds = ns / NS_PER_S;
    if (seconds < 60)
        return fmt::format("{:.1f} s", static_cast<double>(ns) / static_cast<double>(NS_PER_S));
    if (seconds < 3600)
        return fmt::format("{} min {} s", seconds / 60, seconds % 60);
    return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
}

std::string short_duration(std::uint64_t ns) {
    const auto us = static_cast<double>(ns) / 1e3;
    if (ns < 1'000'000)
        return fmt::format("{:.0f} us", us);
    return ns < NS_PER_S ? fmt::format("{:.1f} ms", us / 1e3) : duration(ns);
}

std::string printable(std::string_view text) {
    return escaped(text);
}

} // namespace collwire::report
