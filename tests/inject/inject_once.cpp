// SPDX-License-Identifier: Apache-2.0
// Loads a library into processes as `record --gpu --inject` does, without a recording:
// inject_once [--die-before CALL | --signal-at CALL] LIBRARY PID... Prints a line for each; exit
// status 1 if one failed. CALL is a request of ptrace, by its number, or "writev". --die-before:
// the kernel kills this program when it makes that call, before the call does anything.
// --signal-at: instead of that call, the process gets SIGRTMIN.
#include <charconv>
#include <csignal>
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

pid_t target = 0;

void send_signal(int) {
    kill(target, SIGRTMIN);
}

void act_at(const char *name, std::uint32_t action) {
    const bool is_writev = std::strcmp(name, "writev") == 0;
    std::uint32_t request = 0;
    std::from_chars(name, name + std::strlen(name), request, 16);
    const auto number = static_cast<std::uint32_t>(is_writev ? SYS_process_vm_writev : SYS_ptrace);
    constexpr __u16 LOAD = BPF_LD | BPF_W | BPF_ABS, EQUAL = BPF_JMP | BPF_JEQ | BPF_K,
                    RETURN = BPF_RET | BPF_K;
    sock_filter filter[] = {
        {LOAD, 0, 0, offsetof(seccomp_data, nr)},
        {EQUAL, 0, 4, number},
        {LOAD, 0, 0,
         static_cast<__u32>(is_writev ? offsetof(seccomp_data, nr)
                                      : offsetof(seccomp_data, args[0]))},
        {EQUAL, 0, 1, is_writev ? number : request},
        {RETURN, 0, 0, action},
        {RETURN, 0, 0, SECCOMP_RET_ALLOW},
        {RETURN, 0, 0, SECCOMP_RET_ALLOW},
    };
    sock_fprog program{sizeof filter / sizeof *filter, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

} // namespace

int main(int count, char **words) {
    if (count > 4 && std::strncmp(words[1], "--", 2) == 0) {
        const bool dies = std::strcmp(words[1], "--die-before") == 0;
        std::from_chars(words[4], words[4] + std::strlen(words[4]), target);
        signal(SIGSYS, dies ? SIG_DFL : send_signal);
        act_at(words[2], dies ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_TRAP);
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
