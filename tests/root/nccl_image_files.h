// SPDX-License-Identifier: Apache-2.0
// A double of NCCL's file that processes map and never call, on a file system of its own.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/root/bpf_here.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/nccl/layout/find_nccl.h"

namespace collwire::sources {

// NCCL's own is larger than the double.
inline void write_nccl(const std::string &path, const char *from = NCCL_DOUBLE) {
    std::ifstream in{from, std::ios::binary};
    std::ofstream out{path, std::ios::binary};
    out << in.rdbuf() << std::string(nccl::LEAST_FILE_BYTES, '\0');
}

inline void rename_in(const std::string &path, std::string_view from, std::string_view to) {
    std::string bytes;
    {
        std::ifstream in{path, std::ios::binary};
        bytes.assign(std::istreambuf_iterator<char>{in}, {});
    }
    for (auto at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at))
        bytes.replace(at, from.size(), to);
    std::ofstream{path, std::ios::binary} << bytes;
}

// A process that maps a file to execute it, until this goes.
class Mapper {
public:
    explicit Mapper(const std::string &path) {
        std::array<int, 2> ready{};
        if (pipe2(ready.data(), O_CLOEXEC) != 0)
            return;
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
            struct stat status {};
            const bool mapped = fd >= 0 && fstat(fd, &status) == 0 &&
                                mmap(nullptr, static_cast<std::size_t>(status.st_size),
                                     PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED;
            close(fd);
            if (!mapped || write(ready[1], "x", 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
        char byte = 0;
        close(ready[1]);
        EXPECT_EQ(read(ready[0], &byte, 1), 1) << path;
        close(ready[0]);
    }
    Mapper(const Mapper &) = delete;
    Mapper &operator=(const Mapper &) = delete;
    ~Mapper() {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    [[nodiscard]] pid_t pid() const { return pid_; }

private:
    pid_t pid_ = -1;
};

// From here on mounts are seen by this process and its children alone and go with them. In a
// chroot the root is no mount that could be made private; it may be so already.
inline bool has_own_mounts() {
    if (unshare(CLONE_NEWNS) != 0)
        return false;
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0)
        return true;
    std::ifstream file("/proc/self/mountinfo");
    const std::string mounts{std::istreambuf_iterator<char>{file}, {}};
    return !mounts.empty() && mounts.find(" shared:") == std::string::npos;
}

class NcclLibraryFiles : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string reason = test::no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
        // Once: readers of collwire's stay in the namespace in which they were started.
        static const bool is_apart = has_own_mounts();
        if (!is_apart)
            GTEST_SKIP() << "mounts made here would be seen elsewhere";
        auto created = loader::SharedMaps::create({});
        ASSERT_TRUE(created) << created.failure().message;
        maps_ = std::move(*created);
        char folder[] = "/tmp/collwire-nccl-XXXXXX";
        ASSERT_NE(mkdtemp(folder), nullptr);
        folder_ = folder;
        ASSERT_EQ(mount("tmpfs", folder, "tmpfs", 0, nullptr), 0);
    }
    void TearDown() override {
        if (folder_.empty())
            return;
        while (umount2(folder_.c_str(), MNT_DETACH) == 0) {
        }
        rmdir(folder_.c_str());
    }
    [[nodiscard]] std::string file(const std::string &name) const { return folder_ + "/" + name; }
    [[nodiscard]] static std::uint64_t inode_of(const std::string &path) {
        struct stat status {};
        return stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
    }

    std::unique_ptr<loader::SharedMaps> maps_;
    std::string folder_;
};

} // namespace collwire::sources
