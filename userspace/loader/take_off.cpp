// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/take_off.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace collwire::loader {
namespace {

// Children that still close their descriptors. They hold copies of all links of that moment.
std::vector<pid_t> &closing() {
    static std::vector<pid_t> children;
    return children;
}

void wait_for(pid_t child) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
}

// Returns when each of them has answered, or has exited: reading the command line takes the lock
// that removing a probe waits for.
void wait_for_answers(std::span<const pid_t> pids) {
    for (const int signal_number : {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE})
        signal(signal_number, SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        close(standard);
    for (const pid_t pid : pids) {
        const std::string path = "/proc/" + std::to_string(pid) + "/cmdline";
        const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        char first = 0;
        static_cast<void>(!read(file, &first, 1));
        close(file);
    }
}

bool are_null(std::span<bpf_link *const> links) {
    return std::ranges::all_of(links, [](const bpf_link *link) { return link == nullptr; });
}

// Returns the child that closes the links last; -1: they are closed.
pid_t close_in_child(std::span<bpf_link *const> links, std::span<const pid_t> held_by) {
    std::array<int, 2> ends{-1, -1};
    const pid_t child = pipe2(ends.data(), O_CLOEXEC) == 0 ? fork() : -1;
    if (child == 0) {
        close(ends[1]);
        char nothing = 0;
        // Waits until the other end is closed, or its process has exited.
        while (read(ends[0], &nothing, 1) < 0 && errno == EINTR) {
        }
        if (!held_by.empty())
            wait_for_answers(held_by);
        _exit(0);
    }
    for (bpf_link *link : links)
        bpf_link__destroy(link); // null is none
    for (const int end : ends)
        if (end >= 0)
            close(end);
    return child;
}

} // namespace

void take_off(std::span<bpf_link *const> links, std::span<const pid_t> held_by) {
    if (held_by.empty()) {
        for (const pid_t child : closing())
            wait_for(child);
        closing().clear();
    }
    if (are_null(links))
        return;
    if (const pid_t child = close_in_child(links, held_by); child > 0 && held_by.empty())
        wait_for(child);
}

void start_taking_off(std::span<bpf_link *const> links, std::span<const pid_t> held_by) {
    if (are_null(links))
        return;
    if (const pid_t child = close_in_child(links, held_by); child > 0 && held_by.empty())
        closing().push_back(child);
}

bool is_taking_off() {
    std::erase_if(closing(), [](pid_t child) { return waitpid(child, nullptr, WNOHANG) != 0; });
    return !closing().empty();
}

} // namespace collwire::loader
