// SPDX-License-Identifier: Apache-2.0
#include "userspace/capture/storage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

namespace collwire::capture {
namespace {

class Descriptor {
public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor() { close(); }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;

    [[nodiscard]] int get() const { return fd_; }
    int close() {
        const int fd = std::exchange(fd_, -1);
        return fd >= 0 && ::close(fd) != 0 ? -errno : 0;
    }

private:
    int fd_;
};

class PosixFile : public StorageFile {
public:
    explicit PosixFile(int fd) : fd_(fd) {}

    std::int64_t write_at(std::span<const std::byte> bytes, std::uint64_t offset_bytes) override {
        const ssize_t written =
            ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes));
        return written < 0 ? -errno : written;
    }
    int truncate(std::uint64_t size_bytes) override {
        return ::ftruncate(fd_.get(), static_cast<off_t>(size_bytes)) != 0 ? -errno : 0;
    }
    int sync() override { return ::fdatasync(fd_.get()) != 0 ? -errno : 0; }
    int close() override { return fd_.close(); }

private:
    Descriptor fd_;
};

class PosixDirectory : public Storage {
public:
    explicit PosixDirectory(int fd) : fd_(fd) {}

    int create(const std::string &name, std::unique_ptr<StorageFile> &file) override {
        const int fd = ::openat(fd_.get(), name.c_str(),
                                O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return -errno;
        file = std::make_unique<PosixFile>(fd);
        struct stat status {};
        if (::fstat(fd, &status) == 0)
            made_[name] = {status.st_dev, status.st_ino};
        return 0;
    }

    int remove(const std::string &name) override {
        const auto made = made_.find(name);
        if (made == made_.end())
            return -ENOENT;
        struct stat status {};
        int result =
            ::fstatat(fd_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
        if (result == 0 && Identity{status.st_dev, status.st_ino} != made->second)
            result = -ENOENT;
        if (result == 0 && ::unlinkat(fd_.get(), name.c_str(), 0) != 0)
            result = -errno;
        if (result == 0 || result == -ENOENT)
            made_.erase(made);
        return result;
    }

private:
    using Identity = std::pair<dev_t, ino_t>;
    Descriptor fd_;
    std::map<std::string, Identity> made_;
};

ErrorKind kind_of(int error_number) {
    return error_number == EACCES || error_number == EPERM ? ErrorKind::NotPermitted
                                                           : ErrorKind::Failed;
}

} // namespace

Result<std::unique_ptr<Storage>> open_directory(const std::string &path) {
    std::error_code failure;
    std::filesystem::create_directories(path, failure);
    // Any of these failures shows at open as well, with the plainer reason.
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        const int error_number = failure && errno == ENOENT ? failure.value() : errno;
        return error(kind_of(error_number),
                     fmt::format("{}: cannot write captures to this directory: {}. Fix: give "
                                 "another directory with -o",
                                 path, std::strerror(error_number)));
    }
    return std::unique_ptr<Storage>(std::make_unique<PosixDirectory>(fd));
}

} // namespace collwire::capture
