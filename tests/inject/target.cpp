// SPDX-License-Identifier: Apache-2.0
// A process that sleeps, and checks afterwards that nothing of it has changed:
// inject_target MODE [--sleep-ms N] [--signals] [--load]
// It prints "ready PID", sleeps in one system call with known registers, and prints one line of
// JSON. A line on its standard input wakes it where the mode has no time.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/inject/guarded_call.h"

namespace collwire::inject_test {
namespace {

std::atomic<int> handled = 0;
std::atomic<bool> is_over = false;
std::atomic<std::uint64_t> rounds = 0;

void on_signal(int) {
    ++handled;
}

std::int64_t now_ms() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

timespec after_ms(std::int64_t ms) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const std::int64_t ns = now.tv_nsec + ms % 1000 * 1'000'000;
    return {now.tv_sec + ms / 1000 + ns / 1'000'000'000, ns % 1'000'000'000};
}

template <class T> std::uint64_t word(T value) {
    return static_cast<std::uint64_t>(value);
}

template <class T> std::uint64_t word(T *value) {
    return reinterpret_cast<std::uint64_t>(value);
}

void block_all() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

// Threads that keep the locks of the allocator and of the loader busy, and check what they get.
void allocate() {
    block_all();
    std::mt19937 random{1};
    while (!is_over) {
        std::vector<std::vector<unsigned char>> blocks;
        for (int i = 0; i < 200; ++i)
            blocks.emplace_back(random() % 100'000 + 1, static_cast<unsigned char>(i));
        for (int i = 0; i < 200; ++i) {
            const auto &block = blocks[static_cast<std::size_t>(i)];
            if (block.front() != i || block.back() != i)
                std::abort();
        }
        ++rounds;
    }
}

void open_and_close() {
    block_all();
    while (!is_over) {
        void *handle = dlopen("libnss_files.so.2", RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr)
            handle = dlopen("libresolv.so.2", RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr)
            std::abort();
        dlclose(handle);
        ++rounds;
    }
}

void spin() {
    block_all();
    while (!is_over)
        ++rounds;
}

struct Call {
    long number = 0;
    std::uint64_t arguments[6] = {};
    long wanted = 0;
    bool is_timed = false; // ends by itself after the time to sleep
};

// What the modes point at.
struct Objects {
    pollfd poll{0, POLLIN, 0};
    epoll_event event{};
    timespec relative{};
    timespec absolute{};
    std::uint32_t futex = 0;
    char byte = 0;
    fd_set set;
};

bool find_call(std::string_view mode, std::int64_t sleep_ms, Objects &objects, Call &call) {
    objects.relative = {sleep_ms / 1000, sleep_ms % 1000 * 1'000'000};
    objects.absolute = after_ms(sleep_ms);
    if (mode == "poll") {
        call = {SYS_poll, {word(&objects.poll), 1, word(-1)}, 1, false};
    } else if (mode == "poll-timed") {
        call = {SYS_poll, {word(&objects.poll), 1, word(sleep_ms)}, 0, true};
    } else if (mode == "read") {
        call = {SYS_read, {0, word(&objects.byte), 1}, 1, false};
    } else if (mode == "select") {
        FD_ZERO(&objects.set);
        FD_SET(0, &objects.set);
        call = {SYS_select, {1, word(&objects.set), 0, 0, 0}, 1, false};
    } else if (mode == "epoll" || mode == "epoll-timed") {
        const int fd = epoll_create1(0);
        objects.event.events = EPOLLIN;
        epoll_ctl(fd, EPOLL_CTL_ADD, 0, &objects.event);
        const bool is_timed = mode == "epoll-timed";
        call = {SYS_epoll_wait,
                {word(fd), word(&objects.event), 1, is_timed ? word(sleep_ms) : word(-1)},
                is_timed ? 0 : 1,
                is_timed};
    } else if (mode == "nanosleep") {
        call = {SYS_nanosleep, {word(&objects.relative), 0}, 0, true};
    } else if (mode == "nanosleep-until") {
        call = {SYS_clock_nanosleep,
                {CLOCK_MONOTONIC, TIMER_ABSTIME, word(&objects.absolute), 0},
                0,
                true};
    } else if (mode == "futex-timed") {
        call = {SYS_futex,
                {word(&objects.futex), FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0,
                 word(&objects.absolute), 0, FUTEX_BITSET_MATCH_ANY},
                -ETIMEDOUT,
                true};
    } else if (mode == "futex-lock") { // as a thread that waits for a lock
        call = {SYS_futex,
                {word(&objects.futex), FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, word(&objects.relative),
                 0, 0},
                -ETIMEDOUT,
                true};
    } else {
        return false;
    }
    return true;
}

std::string differences(const Registers &before, const Registers &after) {
    std::string text;
    if (std::memcmp(before.general, after.general, sizeof before.general) != 0)
        text += " general registers";
    if (std::memcmp(before.red_zone, after.red_zone, sizeof before.red_zone) != 0)
        text += " red zone";
    if (before.has_avx && std::memcmp(before.vectors, after.vectors, sizeof before.vectors) != 0)
        text += " vector registers";
    // The low six bits are sticky flags of exceptions.
    if ((before.mxcsr & ~0x3fu) != (after.mxcsr & ~0x3fu))
        text += " MXCSR";
    return text;
}

// What makes a process one that must be refused.
void become(std::string_view mode) {
    if (mode == "seccomp") {
        sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
        sock_fprog program{1, &allow};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    } else if (mode == "traced") {
        const pid_t self = getpid();
        int ready[2];
        if (pipe(ready) != 0)
            std::abort();
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            ptrace(PTRACE_SEIZE, self, nullptr, nullptr);
            close(ready[1]);
            close(ready[0]);
            for (;;)
                pause();
        }
        close(ready[1]);
        char byte = 0;
        if (read(ready[0], &byte, 1) != 0)
            std::abort();
    }
}

[[noreturn]] void wait_in_vfork() {
    char line[8];
    const pid_t child = vfork();
    if (child == 0) {
        while (read(0, line, sizeof line) > 0)
            ;
        _exit(0);
    }
    std::exit(0);
}

int run(int count, char **words) {
    const std::string_view mode = count > 1 ? words[1] : "";
    std::int64_t sleep_ms = 1000;
    bool has_signals = false, has_load = false;
    for (int i = 2; i < count; ++i) {
        const std::string_view word = words[i];
        has_signals |= word == "--signals" || word == "--signals-eintr";
        has_load |= word == "--load";
        if (word == "--sleep-ms" && i + 1 < count)
            sleep_ms = std::atol(words[i + 1]);
    }
    const bool restarts = count < 3 || std::string_view{words[2]} != "--signals-eintr";
    if (has_signals) {
        struct sigaction action {};
        action.sa_handler = on_signal;
        action.sa_flags = restarts ? SA_RESTART : 0;
        sigaction(SIGRTMIN, &action, nullptr);
    }
    become(mode);
    std::vector<std::thread> threads;
    if (has_load) {
        threads.emplace_back(allocate);
        threads.emplace_back(open_and_close);
    }
    if (mode == "futex-lock" || mode == "epoll-timed")
        threads.emplace_back(spin);
    Objects objects;
    Call call;
    const std::string_view how =
        mode == "seccomp" || mode == "traced" || mode == "vfork" ? "poll" : mode;
    const std::int64_t begin_ms = now_ms(); // before that of an absolute time
    if (!find_call(how, sleep_ms, objects, call)) {
        std::fputs("inject_target: unknown mode\n", stderr);
        return 2;
    }
    static Registers before, after;
    std::mt19937_64 random{std::random_device{}()};
    for (std::size_t i = 0; i < 6; ++i) {
        before.general[i] = random();
        before.general[6 + i] = call.arguments[i];
    }
    for (auto &word : before.red_zone)
        word = random();
    for (auto &vector : before.vectors)
        for (auto &byte : vector)
            byte = static_cast<std::uint8_t>(random());
    before.mxcsr = 0x5f80; // rounds up, all exceptions masked
    before.has_avx = __builtin_cpu_supports("avx") != 0;
    errno = 12345;
    std::printf("ready %d\n", getpid());
    std::fflush(stdout);
    errno = 12345;
    if (mode == "vfork")
        wait_in_vfork();
    const long result = guarded_call(call.number, &before, &after);
    const std::int64_t took_ms = now_ms() - begin_ms;
    const int error_number = errno;
    is_over = true;
    for (std::thread &thread : threads)
        thread.join();
    std::string bad = differences(before, after);
    if (result != call.wanted)
        bad += " result " + std::to_string(result);
    if (error_number != 12345)
        bad += " errno " + std::to_string(error_number);
    if (call.is_timed && took_ms < sleep_ms)
        bad += " early";
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    for (int signal = 1; signal < 32; ++signal)
        if (sigismember(&mask, signal) == 1)
            bad += " signal mask";
    std::printf("{\"bad\": \"%s\", \"result\": %ld, \"took_ms\": %ld, \"handled\": %d, "
                "\"rounds\": %lu}\n",
                bad.c_str(), result, static_cast<long>(took_ms), handled.load(),
                static_cast<unsigned long>(rounds.load()));
    return bad.empty() ? 0 : 1;
}

} // namespace
} // namespace collwire::inject_test

int main(int count, char **words) {
    return collwire::inject_test::run(count, words);
}
