// SPDX-License-Identifier: Apache-2.0
// Which threads may be borrowed, which processes are refused, and where code and memory go.
#include <array>
#include <dlfcn.h>
#include <pthread.h>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include "userspace/inject/places.h"
#include "userspace/inject/sleepers.h"
#include "userspace/inject/target.h"
#include "userspace/process/guest_library.h"

namespace collwire::inject {
namespace {

SystemCall call_of(long number, std::array<std::uint64_t, 6> arguments = {}) {
    return {static_cast<std::uint64_t>(number), arguments};
}

TEST(InjectSystemCall, IsReadFromTheKernelsText) {
    const auto call = parse_system_call("232 0x4 0x7ffe0 0x1 0xffffffff 0x0 0x8 0x7ffd1 0x7f112\n");
    ASSERT_TRUE(call);
    EXPECT_EQ(call->number, 232u);
    EXPECT_EQ(call->arguments[3], 0xffffffffu);
    EXPECT_FALSE(parse_system_call("running"));
    EXPECT_FALSE(parse_system_call("-1 0x7ffd1 0x7f112"));
    EXPECT_FALSE(parse_system_call("232 4 0x7ffe0 0x1 0x0 0x0 0x8 0x7ffd1 0x7f112"));
    EXPECT_FALSE(parse_system_call(""));
}

TEST(InjectSystemCall, OnlyThoseThatContinueExactlyAreBorrowed) {
    for (const long number : {SYS_poll, SYS_nanosleep, SYS_clock_nanosleep, SYS_restart_syscall,
                              SYS_select, SYS_read, SYS_ppoll, SYS_pselect6})
        EXPECT_EQ(reason_not_to_borrow(call_of(number)), "") << number;
    EXPECT_NE(reason_not_to_borrow(call_of(SYS_ppoll, {0, 0, 0, 1})), "");
    EXPECT_NE(reason_not_to_borrow(call_of(SYS_pselect6, {0, 0, 0, 0, 0, 1})), "");
    for (const long number : {SYS_write, SYS_ioctl, SYS_munmap, SYS_mprotect, SYS_sched_yield,
                              SYS_wait4, SYS_io_uring_enter, SYS_vfork})
        EXPECT_NE(reason_not_to_borrow(call_of(number)), "") << number;
}

TEST(InjectSystemCall, AnEpollWithATimeLimitIsNot) {
    for (const long number : {SYS_epoll_wait, SYS_epoll_pwait}) {
        EXPECT_EQ(reason_not_to_borrow(call_of(number, {3, 1, 1, 0xffffffff})), "");
        EXPECT_EQ(reason_not_to_borrow(call_of(number, {3, 1, 1, ~std::uint64_t{0}})), "");
        EXPECT_NE(reason_not_to_borrow(call_of(number, {3, 1, 1, 1000})), "");
    }
    EXPECT_NE(reason_not_to_borrow(call_of(SYS_epoll_pwait, {3, 1, 1, 0xffffffff, 0x7ff0})), "");
}

TEST(InjectSystemCall, AWaiterForALockIsNot) {
    for (const int flags : {0, FUTEX_PRIVATE_FLAG, FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME}) {
        const auto futex = [flags](int operation) {
            return call_of(SYS_futex, {0x1000, static_cast<std::uint64_t>(operation | flags)});
        };
        EXPECT_EQ(reason_not_to_borrow(futex(FUTEX_WAIT_BITSET)), "");
        EXPECT_NE(reason_not_to_borrow(futex(FUTEX_WAIT)), "");
        EXPECT_NE(reason_not_to_borrow(futex(FUTEX_LOCK_PI)), "");
    }
}

TEST(InjectSystemCall, OnlyReadsThatConsumeNothingBeforeTheySleepAre) {
    EXPECT_TRUE(may_borrow_reader("pipe:[123]"));
    EXPECT_TRUE(may_borrow_reader("anon_inode:[eventfd]"));
    EXPECT_TRUE(may_borrow_reader("/dev/pts/3"));
    for (const char *link : {"socket:[1]", "anon_inode:inotify", "/data/file",
                             "anon_inode:[timerfd]", "anon_inode:[infinibandevent]"})
        EXPECT_FALSE(may_borrow_reader(link)) << link;
}

std::string refusal(const Result<void> &checked) {
    return checked ? "" : checked.failure().message;
}

TEST(InjectTarget, IsRefusedByItsStatus) {
    EXPECT_EQ(refusal(check_status("State:\tS (sleeping)\nTracerPid:\t0\nSeccomp:\t0\n")), "");
    EXPECT_NE(refusal(check_status("State:\tS (sleeping)\nTracerPid:\t17\n")).find("process 17"),
              std::string::npos);
    EXPECT_NE(refusal(check_status("State:\tT (stopped)\nTracerPid:\t0\n")).find("stopped"),
              std::string::npos);
    EXPECT_NE(refusal(check_status("State:\tD (disk sleep)\nTracerPid:\t0\n")), "");
    EXPECT_NE(refusal(check_status("State:\tZ (zombie)\nTracerPid:\t0\n")), "");
    EXPECT_NE(refusal(check_status("State:\tS (sleeping)\nSeccomp:\t2\n")).find("seccomp"),
              std::string::npos);
    EXPECT_NE(refusal(check_status("")), "");
}

process::Mapping code(std::string path) {
    process::Mapping mapping;
    mapping.executable = true;
    mapping.path = std::move(path);
    return mapping;
}

TEST(InjectTarget, IsRefusedByItsFiles) {
    const std::vector both{code("/usr/lib/libc.so.6"), code("/usr/lib/libcuda.so.580.1")};
    const std::string none;
    EXPECT_EQ(refusal(check_files(both, none)), "");
    EXPECT_EQ(refusal(check_files({code("/lib/libc-2.31.so"), both[1]}, none)), "");
    EXPECT_NE(refusal(check_files({both[0]}, none)).find("libcuda.so"), std::string::npos);
    EXPECT_NE(refusal(check_files({both[1]}, none)).find("glibc"), std::string::npos);
    EXPECT_NE(refusal(check_files({code("/lib/ld-musl-x86_64.so.1"), both[1]}, none)).find("glibc"),
              std::string::npos);
    for (const char *guest :
         {"/usr/lib/collwire/libcollwire_cupti.so", "/memfd:libcollwire_cupti.so (deleted)"}) {
        EXPECT_TRUE(process::is_guest_library(guest));
        EXPECT_NE(refusal(check_files({both[0], both[1], code(guest)}, none)).find("already"),
                  std::string::npos);
    }
    const std::string other{"HOME=/\0CUDA_INJECTION64_PATH=/opt/nsys/lib.so\0A=b", 48};
    EXPECT_NE(refusal(check_files(both, other)).find("/opt/nsys/lib.so"), std::string::npos);
    EXPECT_EQ(refusal(check_files(both, "CUDA_INJECTION64_PATH=")), "");
}

TEST(InjectPlaces, TheRegionIsFarFromAllMappings) {
    constexpr std::uint64_t BYTES = 1 << 18;
    process::Mapping low;
    low.begin = 0x200000000;
    low.end = 0x300000000;
    process::Mapping high;
    high.begin = 0x3f0000000000;
    high.end = 0x7fffffffe000;
    const auto at = find_free_range({low, high}, BYTES);
    ASSERT_TRUE(at);
    EXPECT_GT(*at, low.end + (1ull << 40));
    EXPECT_LT(*at + BYTES, high.begin - (1ull << 40));
    EXPECT_EQ(*at % 4096, 0u);
    process::Mapping all;
    all.begin = 0x1000;
    all.end = 0x7fffffffe000;
    EXPECT_FALSE(find_free_range({all}, BYTES));
}

TEST(InjectPlaces, FindsFunctionsAndRoomInThisProcess) {
    process::ProcessView view{getpid()};
    ASSERT_TRUE(view.refresh());
    const auto functions = find_functions(view);
    ASSERT_TRUE(functions) << functions.failure().message;
    // A sanitizer has its own pthread_create; pthread_self is the C library's everywhere.
    EXPECT_EQ(functions->pthread_self, reinterpret_cast<std::uint64_t>(&pthread_self));
    const auto room = find_code_room(view, 1024);
    ASSERT_TRUE(room);
    const auto *mapping = view.mapping_of(*room);
    ASSERT_NE(mapping, nullptr);
    EXPECT_TRUE(mapping->executable);
    EXPECT_LE(*room + 1024, mapping->end);
}

TEST(InjectPlaces, CodeGoesToNoFileThatMayBeUnmapped) {
    std::vector<void *> handles;
    for (const char *name : {"libresolv.so.2", "libnsl.so.1", "libanl.so.1", "libthread_db.so.1",
                             "libBrokenLocale.so.1"})
        if (void *handle = dlopen(name, RTLD_NOW))
            handles.push_back(handle);
    ASSERT_FALSE(handles.empty());
    process::ProcessView view{getpid()};
    ASSERT_TRUE(view.refresh());
    // Every size: each file with room is the first one for some.
    for (std::uint64_t bytes = 64; bytes < 4096; bytes += 64) {
        const auto room = find_code_room(view, bytes);
        if (!room)
            continue;
        const auto *mapping = view.mapping_of(*room);
        ASSERT_NE(mapping, nullptr);
        for (const char *name : {"libresolv", "libnsl", "libanl", "libthread_db", "libBroken"})
            EXPECT_EQ(mapping->path.find(name), std::string::npos) << bytes << mapping->path;
    }
    for (void *handle : handles)
        dlclose(handle);
}

} // namespace
} // namespace collwire::inject
