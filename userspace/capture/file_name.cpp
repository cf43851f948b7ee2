// SPDX-License-Identifier: Apache-2.0
#include "userspace/capture/file_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>

namespace collwire::capture {
namespace {

std::string host_part(std::string_view host) {
    std::string part(host.substr(0, 100));
    for (char &c : part)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.' && c != '_')
            c = '_';
    if (part.empty() || part.front() == '.')
        part.insert(0, "_");
    return part;
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// '0' in the pattern stands for a digit.
bool takes(std::string_view &text, std::string_view pattern) {
    if (text.size() < pattern.size())
        return false;
    for (std::size_t i = 0; i < pattern.size(); ++i)
        if (pattern[i] == '0' ? !is_digit(text[i]) : text[i] != pattern[i])
            return false;
    text.remove_prefix(pattern.size());
    return true;
}

} // namespace

std::string file_stem(std::string_view host, std::uint64_t realtime_ns) {
    const auto seconds = static_cast<std::time_t>(realtime_ns / 1'000'000'000);
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    return fmt::format("{}-{:04}{:02}{:02}T{:02}{:02}{:02}.{:03}Z", host_part(host),
                       utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                       utc.tm_sec, realtime_ns / 1'000'000 % 1000);
}

bool is_name_of_host(std::string_view name, std::string_view host) {
    const std::string begin = host_part(host) + "-";
    if (!name.starts_with(begin))
        return false;
    name.remove_prefix(begin.size());
    if (!takes(name, "00000000T000000.000Z"))
        return false;
    if (takes(name, "-0"))
        name.remove_prefix(
            static_cast<std::size_t>(std::ranges::find_if_not(name, is_digit) - name.begin()));
    return name == ".cwc";
}

} // namespace collwire::capture
