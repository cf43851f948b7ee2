// SPDX-License-Identifier: Apache-2.0
// Preloaded: counts what the process gives to send(), and appends "<bytes> <calls>" to the file
// that SEND_COUNTER names when the process ends.
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace {

std::atomic<unsigned long> sent_bytes{0};
std::atomic<unsigned long> calls{0};

__attribute__((destructor)) void write_counts() {
    const char *path = std::getenv("SEND_COUNTER");
    std::FILE *file = path != nullptr ? std::fopen(path, "a") : nullptr;
    if (file == nullptr)
        return;
    std::fprintf(file, "%lu %lu\n", sent_bytes.load(), calls.load());
    std::fclose(file);
}

} // namespace

extern "C" __attribute__((visibility("default"))) ssize_t send(int fd, const void *data,
                                                               std::size_t bytes, int flags) {
    using Send = ssize_t (*)(int, const void *, std::size_t, int);
    static const auto real = reinterpret_cast<Send>(::dlsym(RTLD_NEXT, "send"));
    const ssize_t sent = real(fd, data, bytes, flags);
    if (sent > 0) {
        sent_bytes += static_cast<unsigned long>(sent);
        calls++;
    }
    return sent;
}
