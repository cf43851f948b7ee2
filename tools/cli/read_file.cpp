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
#include <utility>

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

Result<std::uint64_t> size_of_regular(int fd, const std::string &path) {
    struct stat status {};
    if (::fstat(fd, &status) != 0)
        return failed(path, errno);
    if (S_ISDIR(status.st_mode))
        return refused(path, "is a directory");
    if (S_ISFIFO(status.st_mode))
        return refused(path, "is a FIFO");
    if (!S_ISREG(status.st_mode))
        return refused(path, "is a device or a socket");
    return static_cast<std::uint64_t>(status.st_size);
}

// O_NONBLOCK: open() of a FIFO without a writer would block forever.
int open_to_read(const std::string &path) {
    return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

Result<std::vector<std::byte>> read_descriptor(int fd, const std::string &path,
                                               std::size_t limit_bytes) {
    const auto size = size_of_regular(fd, path);
    if (!size)
        return size.failure();
    const std::size_t size_bytes = std::min<std::size_t>(*size, limit_bytes);
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

// Small blocks are close together, and those between are hopped over.
constexpr std::size_t AHEAD_BYTES = 64U << 10U;

} // namespace

Result<std::vector<std::byte>> read_file(const std::string &path, std::size_t limit_bytes) {
    const int fd = open_to_read(path);
    if (fd < 0)
        return failed(path, errno);
    auto bytes = read_descriptor(fd, path, limit_bytes);
    ::close(fd);
    return bytes;
}

Result<FileInParts> FileInParts::open(const std::string &path) {
    const int fd = open_to_read(path);
    if (fd < 0)
        return failed(path, errno);
    const auto size = size_of_regular(fd, path);
    if (!size) {
        ::close(fd);
        return size.failure();
    }
    return FileInParts(fd, *size);
}

FileInParts::FileInParts(FileInParts &&from) noexcept
    : fd_(std::exchange(from.fd_, -1)), size_bytes_(from.size_bytes_), begin_(from.begin_),
      n_bytes_(std::exchange(from.n_bytes_, 0)), last_end_(from.last_end_),
      buffer_(std::move(from.buffer_)) {}

FileInParts::~FileInParts() {
    if (fd_ >= 0)
        ::close(fd_);
}

std::span<const std::byte> FileInParts::read(std::uint64_t offset, std::size_t length) {
    length = std::min<std::uint64_t>(length, size_bytes_ - std::min(offset, size_bytes_));
    if (length == 0)
        return {};
    const bool is_near = offset >= last_end_ && offset - last_end_ <= AHEAD_BYTES;
    last_end_ = offset + length;
    if (offset >= begin_ && offset - begin_ <= n_bytes_ && length <= n_bytes_ - (offset - begin_))
        return std::span(buffer_).subspan(offset - begin_, length);
    const std::size_t wanted =
        is_near ? std::min<std::uint64_t>(std::max(length, AHEAD_BYTES), size_bytes_ - offset)
                : length;
    buffer_.resize(std::max(buffer_.size(), wanted));
    begin_ = offset;
    n_bytes_ = 0;
    while (n_bytes_ < wanted) {
        const ssize_t n = ::pread(fd_, buffer_.data() + n_bytes_, wanted - n_bytes_,
                                  static_cast<off_t>(offset + n_bytes_));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        n_bytes_ += static_cast<std::size_t>(n);
    }
    return std::span(buffer_).first(std::min(n_bytes_, length));
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
