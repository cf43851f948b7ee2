// SPDX-License-Identifier: Apache-2.0
// What the process that reads a file has of its caller, and for how long it is waited for.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/tcp_pair.h"
#include "userspace/inventory/files.h"
#include "userspace/nccl/layout/find_nccl.h"
#include "userspace/nccl/library/reader_process.h"

namespace collwire::nccl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

const std::vector<std::string> SELF{"/proc/self/exe"};
constexpr ReaderTimes SHORT{milliseconds{300}, milliseconds{600}};

std::string status_line(const std::string &name) {
    const auto text = inventory::read_file("/proc/self/status", inventory::small_file_bytes);
    const auto at = text ? text->find("\n" + name + ":") : std::string::npos;
    return at == std::string::npos
               ? std::string{}
               : std::string{inventory::trim(text->substr(
                     at + name.size() + 2, text->find('\n', at + 1) - at - name.size() - 2))};
}

TEST(NcclReader, HasTheFileAndThePipeAlone) {
    std::array<int, 2> gate{};
    ASSERT_EQ(pipe2(gate.data(), O_CLOEXEC), 0);
    auto *shared = static_cast<char *>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(shared, MAP_FAILED);
    const ReaderAnswer answer =
        ask_reader(SELF, {}, [shared](int fd, std::span<const Result<elf::FileBytes>> files) {
            std::string text = files.size() == 1 && files[0] ? "read " : "not read ";
            for (int other = 0; other < 256; ++other)
                if (other != fd && fcntl(other, F_GETFD) >= 0)
                    text += "open ";
            unsigned char there = 0;
            if (mincore(shared, 4096, &there) == 0)
                text += "shared ";
            write_all(fd, text);
        });
    EXPECT_TRUE(answer.ran);
    EXPECT_EQ(answer.problem, "");
    EXPECT_EQ(answer.n_opened, 1U);
    EXPECT_EQ(answer.text, "read ");
    munmap(shared, 4096);
    close(gate[0]);
    close(gate[1]);
}

TEST(NcclReader, HasNoPrivilegesAndEndsWithItsCaller) {
    const ReaderAnswer answer =
        ask_reader(SELF, {}, [](int fd, std::span<const Result<elf::FileBytes>>) {
            int signal = 0;
            (void)prctl(PR_GET_PDEATHSIG, &signal);
            write_all(fd, std::to_string(signal) + " " + status_line("CapPrm") + " " +
                              status_line("CapEff") + " " + (geteuid() == 0 ? "root" : "other"));
        });
    EXPECT_EQ(answer.text, "9 0000000000000000 0000000000000000 other");
}

// As a service that was given CAP_BPF and no more.
TEST(NcclReader, CapabilitiesWithoutRootDoNotStay) {
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root";
    const pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
        if (setresuid(65534, 65534, 65534) != 0)
            _exit(2);
        __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
        std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> some{};
        some[0].effective = some[0].permitted = 1U << CAP_DAC_READ_SEARCH;
        if (syscall(SYS_capset, &header, some.data()) != 0)
            _exit(3);
        const ReaderAnswer answer =
            ask_reader(SELF, {}, [](int fd, std::span<const Result<elf::FileBytes>>) {
                write_all(fd, status_line("CapPrm"));
            });
        _exit(answer.text == "0000000000000000" ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Other tests of this program leave the process that starts readers.
std::string children() {
    std::ifstream file("/proc/thread-self/children");
    return {std::istreambuf_iterator<char>{file}, {}};
}

TEST(NcclReader, HasATimeLimit) {
    const std::string before = children();
    for (const bool closes : {false, true}) {
        const auto begin = steady_clock::now();
        const ReaderAnswer answer =
            ask_reader(SELF, SHORT, [closes](int fd, std::span<const Result<elf::FileBytes>>) {
                write_all(fd, "some");
                if (closes)
                    close(fd);
                for (;;)
                    pause();
            });
        EXPECT_LT(steady_clock::now() - begin, milliseconds{5000});
        EXPECT_EQ(answer.text, "some");
        EXPECT_EQ(answer.problem, "its reader did not end in time");
        EXPECT_FALSE(answer.in_time);
    }
    EXPECT_EQ(children(), before) << "nothing of it is left";
}

TEST(NcclReader, IsCutAtTheLimitOfItsCpuTime) {
    const ReaderAnswer answer = ask_reader(SELF, {.cpu = std::chrono::seconds{1}},
                                           [](int, std::span<const Result<elf::FileBytes>>) {
                                               for (volatile unsigned i = 0;; i = i + 1) {
                                               }
                                           });
    EXPECT_TRUE(answer.is_cut);
    EXPECT_TRUE(answer.in_time);
    EXPECT_NE(answer.problem, "");
}

TEST(NcclReader, RunsOnWhileItAnswers) {
    const auto begin = steady_clock::now();
    const ReaderAnswer answer =
        ask_reader(SELF, SHORT, [](int fd, std::span<const Result<elf::FileBytes>>) {
            for (;;) {
                write_all(fd, "x");
                std::this_thread::sleep_for(milliseconds{20});
            }
        });
    EXPECT_GE(steady_clock::now() - begin, SHORT.all);
    EXPECT_LT(steady_clock::now() - begin, milliseconds{5000});
    EXPECT_GT(answer.text.size(), 1U);
}

// One that has something to do is not silent: it may get little of a CPU.
TEST(NcclReader, RunsOnWhileItMakesProgress) {
    constexpr ReaderTimes times{milliseconds{200}, milliseconds{10'000}};
    const ReaderAnswer answer =
        ask_reader(SELF, times, [](int fd, std::span<const Result<elf::FileBytes>>) {
            const auto end = steady_clock::now() + milliseconds{900};
            while (steady_clock::now() < end) {
            }
            write_all(fd, "read");
        });
    EXPECT_EQ(answer.problem, "");
    EXPECT_TRUE(answer.in_time);
    EXPECT_EQ(answer.text, "read");
}

TEST(NcclReader, ACrashIsReported) {
    const ReaderAnswer answer = ask_reader(
        SELF, {}, [](int, std::span<const Result<elf::FileBytes>>) { (void)raise(SIGKILL); });
    EXPECT_EQ(answer.problem, "its reader was ended by signal 9 (Killed)");
}

// A file system in user space whose program answers nothing.
TEST(NcclReader, FilesThatCannotBeOpenedHoldUpNoOther) {
    const test::Fd device(open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (geteuid() != 0 || device.get() < 0)
        GTEST_SKIP() << "needs root and /dev/fuse";
    char folder[] = "/tmp/collwire-reader-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    const std::string options =
        "fd=" + std::to_string(device.get()) + ",rootmode=40000,user_id=0,group_id=0";
    if (mount("collwire-test", folder, "fuse", MS_NODEV | MS_NOSUID, options.c_str()) != 0) {
        rmdir(folder);
        GTEST_SKIP() << "mount: " << std::strerror(errno);
    }
    const std::array<std::string, 3> paths{"/proc/self/exe", std::string{folder} + "/file",
                                           "/nonexistent"};
    const auto begin = steady_clock::now();
    const auto looks = check_for_nccl(paths, {milliseconds{300}, milliseconds{3000}});
    EXPECT_LT(steady_clock::now() - begin, milliseconds{3000});
    using enum FileCheck::Verdict;
    ASSERT_EQ(looks.size(), paths.size());
    EXPECT_EQ(looks[0].verdict, Other);
    EXPECT_EQ(looks[1].verdict, Silent);
    EXPECT_EQ(looks[1].problem, "its reader did not end in time");
    EXPECT_EQ(looks[2].verdict, Unopened);
    umount2(folder, MNT_FORCE | MNT_DETACH);
    rmdir(folder);
}

} // namespace
} // namespace collwire::nccl
