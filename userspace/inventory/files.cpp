// SPDX-License-Identifier: Apache-2.0
#include "userspace/inventory/files.h"

#include <cerrno>
#include <charconv>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

namespace collwire::inventory {
namespace {

constexpr std::size_t first_read_bytes = 4096;
// A counter of a dead device or a FIFO in a temporary tree must not hang the reader.
constexpr int open_flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

Error failed(const std::string &path, int errnum) {
    const bool denied = errnum == EACCES || errnum == EPERM;
    return error(denied ? ErrorKind::NotPermitted : ErrorKind::Failed,
                 path + ": " + std::strerror(errnum));
}

} // namespace

Result<std::string> read_file(const std::string &path, std::size_t limit_bytes) {
    const int file = open(path.c_str(), open_flags);
    if (file < 0)
        return failed(path, errno);
    std::string text;
    std::size_t got = 0;
    int errnum = 0;
    while (got < limit_bytes) {
        if (got == text.size())
            text.resize(std::min(limit_bytes, std::max(2 * got, first_read_bytes)));
        const ssize_t n = read(file, text.data() + got, text.size() - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            errnum = errno;
        if (n <= 0)
            break;
        got += static_cast<std::size_t>(n);
    }
    close(file);
    if (errnum != 0)
        return failed(path, errnum);
    text.resize(got);
    return text;
}

std::optional<std::string> read_line(const std::string &path) {
    auto text = read_file(path, small_file_bytes);
    if (!text)
        return std::nullopt;
    const std::string_view line = *text;
    return std::string(trim(line.substr(0, line.find('\n'))));
}

std::optional<std::uint64_t> read_number(const std::string &path) {
    const auto line = read_line(path);
    if (!line)
        return std::nullopt;
    if (line->starts_with("0x"))
        return parse_number(std::string_view(*line).substr(2), 16);
    return parse_number(*line);
}

std::int32_t read_numa_node(const std::string &directory) {
    const auto node = read_number(directory + "/numa_node"); // "-1" is no number
    return node && *node <= INT32_MAX ? static_cast<std::int32_t>(*node) : -1;
}

std::vector<std::string> list_directory(const std::string &path) {
    std::vector<std::string> names;
    DIR *directory = opendir(path.c_str());
    if (directory == nullptr)
        return names;
    while (const dirent *entry = readdir(directory)) {
        if (entry->d_name[0] != '.')
            names.emplace_back(entry->d_name);
    }
    closedir(directory);
    std::sort(names.begin(), names.end());
    return names;
}

std::optional<std::string> read_link(const std::string &path) {
    std::string target(small_file_bytes, '\0');
    const ssize_t n = readlink(path.c_str(), target.data(), target.size());
    if (n < 0)
        return std::nullopt;
    target.resize(static_cast<std::size_t>(n));
    return target;
}

std::string link_name(const std::string &path) {
    const auto target = read_link(path);
    return target ? std::string(base_name(*target)) : std::string();
}

bool exists(const std::string &path) {
    return access(path.c_str(), F_OK) == 0;
}

std::string_view trim(std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n";
    const std::size_t first = text.find_first_not_of(blanks);
    if (first == std::string_view::npos)
        return {};
    return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string_view base_name(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (true) {
        const std::size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos)
            return parts;
        text.remove_prefix(end + 1);
    }
}

std::optional<std::uint64_t> parse_number(std::string_view text, int base) {
    std::uint64_t value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (status != std::errc() || end != text.data() + text.size())
        return std::nullopt;
    return value;
}

} // namespace collwire::inventory
