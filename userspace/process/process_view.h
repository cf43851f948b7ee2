// SPDX-License-Identifier: Apache-2.0
// Reads another process from the outside: its memory, its mapped files, its RDMA file descriptors.
// It is never stopped or traced. A process may end at any moment: then reads fail, and that is no
// error of ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <sys/types.h>

#include "base/result.h"

namespace collwire::process {

struct Mapping {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t file_offset = 0;
    std::uint64_t inode = 0; // as the process's mount namespace shows it
    bool executable = false;
    std::string path; // in the process's mount namespace; empty if anonymous
    bool writable = false;
};

// Tells a file from others, and from what it was before it was written again.
struct FileIdentity {
    dev_t device = 0;
    ino_t inode = 0;
    std::int64_t written_ns = 0;
    friend auto operator<=>(const FileIdentity &, const FileIdentity &) = default;
};

struct FileStatus {
    FileIdentity identity;
    std::uint64_t bytes = 0;
    std::int64_t changed_ns = 0; // it, its names or its rights
    std::uint32_t n_names = 0;
    friend bool operator==(const FileStatus &, const FileStatus &) = default;
};

// Of regular files. As this machine knows it: nobody else is asked, which might not answer.
std::optional<FileStatus> status_of(const std::string &path);
std::optional<FileStatus> status_of(pid_t pid, const Mapping &mapping);

// An open file, the same one that a process has mapped, even if it was replaced or deleted since.
class MappedFile {
public:
    MappedFile() = default;
    MappedFile(const MappedFile &) = delete;
    MappedFile &operator=(const MappedFile &) = delete;
    MappedFile(MappedFile &&other) noexcept;
    MappedFile &operator=(MappedFile &&other) noexcept;
    ~MappedFile();

    static Result<MappedFile> open(pid_t pid, const Mapping &mapping);
    static Result<MappedFile> open(const std::string &path);
    // The path by which open would open it.
    static std::string path_of(pid_t pid, const Mapping &mapping);

    [[nodiscard]] dev_t device() const { return device_; }
    [[nodiscard]] ino_t inode() const { return inode_; }
    // When its bytes were written last.
    [[nodiscard]] timespec changed() const { return changed_; }
    [[nodiscard]] bool is_open() const { return fd_ >= 0; }
    [[nodiscard]] std::optional<FileStatus> status() const;
    // A path by which this process, its children, and the kernel for them reach the file while it
    // is open here.
    [[nodiscard]] std::string own_path() const;

private:
    static Result<MappedFile> from_fd(int fd, const std::string &what);
    int fd_ = -1;
    dev_t device_ = 0;
    ino_t inode_ = 0;
    timespec changed_{};
};

// The lines of /proc/PID/maps; lines that make no sense are left out.
std::vector<Mapping> parse_maps(std::string_view text);

class ProcessView {
public:
    explicit ProcessView(pid_t pid) : pid_(pid) {}

    [[nodiscard]] pid_t pid() const { return pid_; }
    // All of `into` or nothing.
    [[nodiscard]] bool read(std::uint64_t address, std::span<std::byte> into) const;
    template <typename T> [[nodiscard]] std::optional<T> read(std::uint64_t address) const {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        if (!read(address, std::as_writable_bytes(std::span{&value, 1}))) {
            return std::nullopt;
        }
        return value;
    }
    // Words of 8 bytes, one behind the other in the order of their addresses: how many of the
    // first could be read.
    [[nodiscard]] std::size_t read_words(std::span<const std::uint64_t> addresses,
                                         std::span<std::uint64_t> into) const;
    // As of the last refresh.
    [[nodiscard]] const std::vector<Mapping> &mappings() const { return mappings_; }
    [[nodiscard]] const Mapping *mapping_of(std::uint64_t address) const;
    Result<void> refresh();
    // It holds an open /dev/infiniband/uverbsN.
    [[nodiscard]] bool uses_rdma() const;

private:
    pid_t pid_;
    std::vector<Mapping> mappings_;
};

// All processes of this pid namespace.
std::vector<pid_t> all_processes();
// Those that hold an open /dev/infiniband/uverbsN.
std::vector<pid_t> rdma_processes();

// When a process started, in clock ticks since boot: tells it from a later one with its number.
// Empty: there is none.
std::optional<std::uint64_t> start_ticks(pid_t pid);
// The process that started then: it is not there any more, or only as a zombie.
bool has_ended(pid_t pid, std::uint64_t ticks);

// The name of a driver library of rdma-core: lib*-rdmavN.so, libmlx5.so.1.24.44.0, ...
bool is_provider_name(std::string_view path);

} // namespace collwire::process
