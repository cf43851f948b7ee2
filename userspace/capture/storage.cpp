// SPDX-License-Identifier: Apache-2.0
#include "userspace/capture/storage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

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
    int release() { return std::exchange(fd_, -1); }
    void reset(int fd) {
        close();
        fd_ = fd;
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
    [[nodiscard]] bool is_gone() const override {
        struct stat status {};
        return ::fstat(fd_.get(), &status) == 0 && status.st_nlink == 0;
    }

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

constexpr int MAX_LINKS = 40; // as the kernel
constexpr mode_t OWN_MODE = 0700;

Error refused(const std::string &path, const std::string &part, uid_t owner, const char *what) {
    return error(ErrorKind::NotPermitted,
                 fmt::format("{}: not used for captures: {} is a {} of user {}, who could lead "
                             "them elsewhere. Fix: give a directory of root's with -o",
                             path, part, what, owner));
}

// Walks from directory to directory by descriptors: what was checked is what is used.
class OwnedPath {
public:
    explicit OwnedPath(const std::string &path) : path_(path) {
        if (const char *text = std::getenv("SUDO_UID"); text != nullptr && *text != '\0') {
            char *end = nullptr;
            const unsigned long number = std::strtoul(text, &end, 10);
            if (*end == '\0')
                sudo_user_ = static_cast<uid_t>(number);
        }
    }

    Result<int> open() {
        push(path_);
        Descriptor folder{::open(path_.starts_with('/') ? "/" : ".", FOLDER_FLAGS)};
        shown_ = path_.starts_with('/') ? "/" : "";
        while (!left_.empty()) {
            const std::string name = std::move(left_.back());
            left_.pop_back();
            auto next = step(folder.get(), name);
            if (!next)
                return std::move(next).failure();
            if (*next >= 0)
                folder.reset(*next);
        }
        const int fd = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? Result<int>{cannot(errno)} : Result<int>{fd};
    }

private:
    static constexpr int FOLDER_FLAGS = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

    void push(std::string_view path) {
        std::vector<std::string> names;
        while (!path.empty()) {
            const std::size_t end = std::min(path.find('/'), path.size());
            if (end != 0 && path.substr(0, end) != ".")
                names.emplace_back(path.substr(0, end));
            path.remove_prefix(std::min(end + 1, path.size()));
        }
        for (auto name = names.rbegin(); name != names.rend(); ++name)
            left_.push_back(std::move(*name));
    }

    [[nodiscard]] bool trusts(uid_t owner) const {
        return ::geteuid() != 0 || owner == 0 || owner == sudo_user_;
    }

    [[nodiscard]] Error cannot(int error_number) const {
        return error(kind_of(error_number),
                     fmt::format("{}: cannot write captures to this directory: {}. Fix: give "
                                 "another directory with -o",
                                 path_, std::strerror(error_number)));
    }

    // The next directory. -1: it was a link, whose parts come first now.
    Result<int> step(int folder, const std::string &name) {
        struct stat status {};
        const std::string shown = shown_ + name;
        if (::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno != ENOENT ||
                (::mkdirat(folder, name.c_str(), OWN_MODE) != 0 && errno != EEXIST))
                return cannot(errno);
        } else if (S_ISLNK(status.st_mode)) {
            return follow(folder, name, shown, status.st_uid);
        }
        return enter(folder, name, shown, FOLDER_FLAGS);
    }

    Result<int> follow(int folder, const std::string &name, const std::string &shown, uid_t owner) {
        if (!trusts(owner))
            return refused(path_, shown, owner, "link");
        struct statfs file_system {};
        if (::fstatfs(folder, &file_system) == 0 && file_system.f_type == PROC_SUPER_MAGIC)
            // A link of procfs may lead to what has no name (/proc/self/fd/3).
            return enter(folder, name, shown, O_PATH | O_DIRECTORY | O_CLOEXEC);
        std::string target(PATH_MAX, '\0');
        const ssize_t n = ::readlinkat(folder, name.c_str(), target.data(), target.size());
        if (n < 0)
            return cannot(errno);
        if (++n_links_ > MAX_LINKS)
            return cannot(ELOOP);
        target.resize(static_cast<std::size_t>(n));
        push(target);
        if (!target.starts_with('/'))
            return -1;
        shown_ = "/";
        const int root = ::open("/", FOLDER_FLAGS);
        return root < 0 ? Result<int>{cannot(errno)} : Result<int>{root};
    }

    Result<int> enter(int folder, const std::string &name, const std::string &shown, int flags) {
        Descriptor next{::openat(folder, name.c_str(), flags)};
        struct stat status {};
        if (next.get() < 0 || ::fstat(next.get(), &status) != 0)
            return cannot(errno);
        if (!trusts(status.st_uid))
            return refused(path_, shown, status.st_uid, "directory");
        shown_ = shown + "/";
        return next.release();
    }

    const std::string &path_;
    std::optional<uid_t> sudo_user_;
    std::vector<std::string> left_; // the next one last
    std::string shown_;
    int n_links_ = 0;
};

} // namespace

Result<std::unique_ptr<Storage>> open_directory(const std::string &path) {
    auto opened = OwnedPath{path}.open();
    if (!opened)
        return std::move(opened).failure();
    return std::unique_ptr<Storage>(std::make_unique<PosixDirectory>(*opened));
}

} // namespace collwire::capture
