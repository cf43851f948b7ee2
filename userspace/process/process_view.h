// SPDX-License-Identifier: Apache-2.0
// Reads another process from the outside: its memory, its mapped files, its RDMA file descriptors.
// The process is never stopped or traced. It may exit at any moment: then reads fail, which is no
// error of ours. Whoever does not answer is left alone (userspace/foreign/).
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
    bool is_heap = false; // the program's first heap (brk)
};

// Identifies a version of a file: another file, or new contents, has another identity.
struct FileIdentity {
    dev_t device = 0;
    ino_t inode = 0;
    std::int64_t written_ns = 0;
    friend auto operator<=>(const FileIdentity &, const FileIdentity &) = default;
};

struct FileStatus {
    FileIdentity identity;
    std::uint64_t bytes = 0;
    std::int64_t changed_ns = 0; // contents, names or rights
    std::uint32_t n_names = 0;
    friend bool operator==(const FileStatus &, const FileStatus &) = default;
};

// Regular files only. From this machine's cache: a remote server, which might not answer, is not
// asked.
std::optional<FileStatus> status_of(const std::string &path);
std::optional<FileStatus> status_of(pid_t pid, const Mapping &mapping);
// The same for many mappings of one process, in one question.
std::vector<std::optional<FileStatus>> statuses_of(pid_t pid, std::span<const Mapping> mappings);

// An open file that a process has mapped, even if it was replaced or deleted since.
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
    // The path that open would use.
    static std::string path_of(pid_t pid, const Mapping &mapping);

    [[nodiscard]] dev_t device() const { return device_; }
    [[nodiscard]] ino_t inode() const { return inode_; }
    // The time of the last write to its bytes.
    [[nodiscard]] timespec changed() const { return changed_; }
    [[nodiscard]] bool is_open() const { return fd_ >= 0; }
    [[nodiscard]] std::optional<FileStatus> status() const;
    // A path to the file for this process, its children, and the kernel on their behalf, while it
    // is open here.
    [[nodiscard]] std::string own_path() const;

private:
    static Result<MappedFile> from_fd(int fd, const std::string &what);
    int fd_ = -1;
    dev_t device_ = 0;
    ino_t inode_ = 0;
    timespec changed_{};
};

// Those whose code is in a file.
std::vector<Mapping> executable_files(std::span<const Mapping> mappings);

// The lines of /proc/PID/maps; malformed lines are left out.
std::vector<Mapping> parse_maps(std::string_view text);

class ProcessView {
public:
    explicit ProcessView(pid_t pid) : pid_(pid) {}

    [[nodiscard]] pid_t pid() const { return pid_; }
    // Reads all of `into` or nothing.
    [[nodiscard]] bool read(std::uint64_t address, std::span<std::byte> into) const;
    template <typename T> [[nodiscard]] std::optional<T> read(std::uint64_t address) const {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        if (!read(address, std::as_writable_bytes(std::span{&value, 1}))) {
            return std::nullopt;
        }
        return value;
    }
    // Reads words of 8 bytes in the order of their addresses; returns how many of the first could
    // be read.
    [[nodiscard]] std::size_t read_words(std::span<const std::uint64_t> addresses,
                                         std::span<std::uint64_t> into) const;
    // As of the last refresh.
    [[nodiscard]] const std::vector<Mapping> &mappings() const { return mappings_; }
    [[nodiscard]] const Mapping *mapping_of(std::uint64_t address) const;
    Result<void> refresh();
    // Whether it holds an open /dev/infiniband/uverbsN.
    [[nodiscard]] bool uses_rdma() const;

private:
    pid_t pid_;
    std::vector<Mapping> mappings_;
};

// All processes of this pid namespace.
std::vector<pid_t> all_processes();
// All processes that hold an open /dev/infiniband/uverbsN.
std::vector<pid_t> rdma_processes();

// The start of a process in clock ticks since boot: distinguishes it from a later one with its pid.
// Empty: no such process.
std::optional<std::uint64_t> start_ticks(pid_t pid);
// The process that a thread belongs to, by Tgid in /proc/TID/status. Empty: there is no such
// thread.
std::optional<pid_t> process_of_thread(pid_t tid);
// Whether the process with that start has exited, or is a zombie.
bool has_ended(pid_t pid, std::uint64_t ticks);

// The name of a driver library of rdma-core: lib*-rdmavN.so, libmlx5.so.1.24.44.0, ...
bool is_provider_name(std::string_view path);

} // namespace collwire::process
