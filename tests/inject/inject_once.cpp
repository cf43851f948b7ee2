// SPDX-License-Identifier: Apache-2.0
// Loads a library into processes as `record --gpu --inject` does, without a recording:
// inject_once [--die-before CALL] LIBRARY PID... Prints a line for each; exit status 1 if one
// failed. CALL is a request of ptrace, by its number, or "writev": the kernel kills this program
// with SIGKILL's effect when it makes that call, before the call does anything.
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "userspace/inject/inject.h"

namespace {

void die_before(const char *name) {
    const bool is_writev = std::strcmp(name, "writev") == 0;
    std::uint32_t request = 0;
    std::from_chars(name, name + std::strlen(name), request, 16);
    const auto number = static_cast<std::uint32_t>(is_writev ? SYS_process_vm_writev : SYS_ptrace);
    sock_filter filter[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, static_cast<__u8>(is_writev ? 1 : 3), number},
        {static_cast<__u16>(is_writev ? BPF_RET | BPF_K : BPF_LD | BPF_W | BPF_ABS), 0, 0,
         is_writev ? SECCOMP_RET_KILL_PROCESS
                   : static_cast<__u32>(offsetof(seccomp_data, args[0]))},
        {static_cast<__u16>(is_writev ? BPF_RET | BPF_K : BPF_JMP | BPF_JEQ | BPF_K), 0,
         static_cast<__u8>(is_writev ? 0 : 1), is_writev ? SECCOMP_RET_ALLOW : request},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    sock_fprog program{sizeof filter / sizeof *filter, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

} // namespace

int main(int count, char **words) {
    if (count > 2 && std::strcmp(words[1], "--die-before") == 0) {
        die_before(words[2]);
        words += 2;
        count -= 2;
    }
    if (count < 3) {
        std::fputs("usage: inject_once LIBRARY PID...\n", stderr);
        return 2;
    }
    const auto library = collwire::inject::read_guest_library(words[1]);
    if (!library) {
        fmt::print(stderr, "{}\n", library.failure().message);
        return 2;
    }
    int status = 0;
    for (int i = 2; i < count; ++i) {
        pid_t pid = 0;
        std::from_chars(words[i], words[i] + std::strlen(words[i]), pid);
        const auto done = collwire::inject::inject(pid, *library);
        if (done) {
            fmt::print("injected {} tid {} call {} paused_ns {}\n", pid, done->tid, done->call,
                       done->paused_ns);
        } else {
            fmt::print("failed {} {}\n", pid, done.failure().message);
            status = 1;
        }
        std::fflush(stdout);
    }
    return status;
}
