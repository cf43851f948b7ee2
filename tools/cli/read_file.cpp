// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>

namespace collwire::cli {
namespace {

namespace fs = std::filesystem;

Error failed(const std::string &path, int error_number) {
    const bool denied = error_number == EACCES || error_number == EPERM;
    const bool is_path = error_number == ENOENT || error_number == ENOTDIR ||
                         error_number == ELOOP || error_number == ENAMETOOLONG;
    return error(denied ? ErrorKind::NotPermitted : ErrorKind::BadInput,
                 fmt::format("{}: cannot read: {}{}", path, std::strerror(error_number),
                             denied    ? ". Fix: run as its owner or as root"
                             : is_path ? ". Fix: check the path"
                                       : ". Fix: check its disk"));
}

Error refused(const std::string &path, const char *what) {
    return error(ErrorKind::BadInput,
                 fmt::format("{}: {}, not a file. Fix: give a regular file", path, what));
}

Result<std::vector<std::byte>> read_descriptor(int fd, const std::string &path,
                                               std::size_t limit_bytes) {
    struct stat status {};
    if (::fstat(fd, &status) != 0)
        return failed(path, errno);
    if (S_ISDIR(status.st_mode))
        return refused(path, "is a directory");
    if (S_ISFIFO(status.st_mode))
        return refused(path, "is a FIFO");
    if (!S_ISREG(status.st_mode))
        return refused(path, "is a device or a socket");
    const std::size_t size_bytes = std::min(static_cast<std::size_t>(status.st_size), limit_bytes);
    std::vector<std::byte> bytes;
    try {
        bytes.resize(size_bytes);
    } catch (const std::exception &) {
        return error(
            ErrorKind::Failed,
            fmt::format("{}: {} bytes do not fit into memory. Fix: use a machine with more memory",
                        path, size_bytes));
    }
    std::size_t got = 0;
    while (got < size_bytes) {
        const ssize_t n = ::read(fd, bytes.data() + got, size_bytes - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return failed(path, errno);
        if (n == 0)
            break;
        got += static_cast<std::size_t>(n);
    }
    bytes.resize(got);
    return bytes;
}

Result<std::vector<std::string>> captures_in(const std::string &directory) {
    std::error_code failure;
    std::vector<std::string> found;
    for (fs::directory_iterator entry(directory, failure), end; !failure && entry != end;
         entry.increment(failure)) {
        std::error_code ignored;
        if (entry->path().extension() == ".cwc" && !entry->is_directory(ignored))
            found.push_back(entry->path().string());
    }
    if (failure)
        return failed(directory, failure.value());
    if (found.empty())
        return error(ErrorKind::BadInput,
                     fmt::format("{}: no capture (*.cwc) in this directory; subdirectories are not "
                                 "searched. Fix: give them by name ({})",
                                 directory, (fs::path(directory) / "*" / "").string()));
    std::sort(found.begin(), found.end());
    return found;
}

Result<std::vector<std::string>> files_of(const std::string &path) {
    std::error_code failure;
    const fs::file_status status = fs::status(path, failure);
    if (!fs::exists(status))
        return failed(path, failure ? failure.value() : ENOENT);
    if (fs::is_directory(status))
        return captures_in(path);
    return std::vector<std::string>{path};
}

} // namespace

Result<std::vector<std::byte>> read_file(const std::string &path, std::size_t limit_bytes) {
    // O_NONBLOCK: open() of a FIFO without a writer would block forever.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return failed(path, errno);
    auto bytes = read_descriptor(fd, path, limit_bytes);
    ::close(fd);
    return bytes;
}

NamedCaptures expand_captures(const std::vector<std::string> &paths) {
    NamedCaptures named;
    std::set<fs::path> seen;
    for (const std::string &path : paths) {
        auto files = files_of(path);
        if (!files) {
            named.refused.push_back({path, std::move(files).failure()});
            continue;
        }
        for (std::string &file : *files) {
            std::error_code failure;
            const fs::path canonical = fs::canonical(file, failure);
            if (failure || seen.insert(canonical).second)
                named.files.push_back(std::move(file));
        }
    }
    return named;
}

} // namespace collwire::cli
