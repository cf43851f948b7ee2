// SPDX-License-Identifier: Apache-2.0
// Reads the files named on the command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace collwire::cli {

// The first `limit_bytes` of a regular file, or its size at open: a capture may still grow.
// BadInput for a directory, FIFO, device or socket; NotPermitted without read permission. The
// message begins with the path.
[[nodiscard]] Result<std::vector<std::byte>>
read_file(const std::string &path,
          std::size_t limit_bytes = std::numeric_limits<std::size_t>::max());

// A regular file that is read in parts.
class FileInParts {
public:
    // Errors: as read_file.
    [[nodiscard]] static Result<FileInParts> open(const std::string &path);
    FileInParts(FileInParts &&from) noexcept;
    FileInParts &operator=(FileInParts &&) = delete;
    ~FileInParts();

    // At open: a capture may still grow.
    [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
    // The bytes live until the next call. Fewer: the file ends, or cannot be read.
    [[nodiscard]] std::span<const std::byte> read(std::uint64_t offset, std::size_t length);

private:
    FileInParts(int fd, std::uint64_t size_bytes) : fd_(fd), size_bytes_(size_bytes) {}

    int fd_;
    std::uint64_t size_bytes_;
    std::uint64_t begin_ = 0; // of what is in the buffer
    std::size_t n_bytes_ = 0;
    std::uint64_t last_end_ = 0; // of what was asked for
    std::vector<std::byte> buffer_;
};

struct NamedCaptures {
    struct Refused {
        std::string path;
        Error failure; // its message begins with the path
    };
    std::vector<std::string> files;
    std::vector<Refused> refused;
};

// A directory stands for its *.cwc files, sorted by name; any other path for itself. Duplicates are
// removed. Refused, as BadInput: a directory without a capture, and a path that does not exist.
[[nodiscard]] NamedCaptures expand_captures(const std::vector<std::string> &paths);

} // namespace collwire::cli
