// SPDX-License-Identifier: Apache-2.0
// Reads small files of /sys and /proc. Paths are plain strings: callers put the root prefix before
// them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace collwire::inventory {

inline constexpr std::size_t small_file_bytes = 4096;

// Reads at most limit_bytes from the start of a file. NotPermitted or Failed with the system's
// reason.
Result<std::string> read_file(const std::string &path, std::size_t limit_bytes);
// The first line of a small file without blanks around it; nullopt if it cannot be read.
std::optional<std::string> read_line(const std::string &path);
// The first number in a file, whose text must be all digits (base 10) or 0x and hex digits.
std::optional<std::uint64_t> read_number(const std::string &path);
// The NUMA node of a device, by its directory in sysfs; -1: unknown or none.
std::int32_t read_numa_node(const std::string &directory);
// Names in a directory without dot files, sorted; empty if it cannot be read.
std::vector<std::string> list_directory(const std::string &path);
// The target of a symbolic link, as stored.
std::optional<std::string> read_link(const std::string &path);
// The last component of a symbolic link's target, empty if there is no link.
std::string link_name(const std::string &path);
bool exists(const std::string &path);

std::string_view trim(std::string_view text);
std::string_view base_name(std::string_view path);
std::vector<std::string_view> split(std::string_view text, char separator);
// The whole text must be the number.
std::optional<std::uint64_t> parse_number(std::string_view text, int base = 10);

// The parts concatenated.
template <typename... Parts> std::string concatenated(const Parts &...parts) {
    std::string text;
    (text.append(parts), ...);
    return text;
}

} // namespace collwire::inventory
