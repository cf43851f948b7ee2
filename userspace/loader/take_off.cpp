// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/take_off.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace collwire::loader {

void take_off(std::span<bpf_link *const> links) {
    if (std::ranges::all_of(links, [](const bpf_link *link) { return link == nullptr; }))
        return;
    std::array<int, 2> ends{-1, -1};
    const pid_t child = pipe2(ends.data(), O_CLOEXEC) == 0 ? fork() : -1;
    if (child == 0) {
        close(ends[1]);
        char nothing = 0;
        // Waits until the other end is closed, or its process has exited.
        while (read(ends[0], &nothing, 1) < 0 && errno == EINTR) {
        }
        _exit(0);
    }
    for (bpf_link *link : links)
        bpf_link__destroy(link); // null is none
    for (const int end : ends)
        if (end >= 0)
            close(end);
    if (child > 0)
        while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
        }
}

} // namespace collwire::loader
