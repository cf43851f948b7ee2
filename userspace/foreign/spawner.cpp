// SPDX-License-Identifier: Apache-2.0
#include "userspace/foreign/spawner.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "userspace/foreign/mailbox.h"
#include "userspace/foreign/reader.h"

namespace collwire::foreign {
namespace {

constexpr std::size_t MAPPED_BYTES = SHARED_BYTES + MAILBOX_BYTES;
constexpr int KILL_WAIT_MS = 30;
constexpr int SPAWN_WAIT_MS = 2'000;
// The terminal, and a service manager, send these to all processes. The caller still needs its
// readers then; they exit with it.
constexpr std::array NOT_FOR_READERS{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE};

// The caller's end of the spawner's socket; of one process, and not of what it forks.
int spawner_socket = -1;
pid_t spawner_of = -1;

bool end_with(pid_t caller) {
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == caller;
}

// Probes and maps live as long as a descriptor of theirs is open.
void close_all_but(int first, int second) {
    std::array<int, 1024> found{};
    std::size_t n = 0;
    do {
        n = 0;
        DIR *folder = opendir("/proc/self/fd");
        if (folder == nullptr)
            return;
        while (const dirent *entry = readdir(folder)) {
            int number = -1;
            const std::string_view name = entry->d_name;
            const auto read = std::from_chars(name.data(), name.data() + name.size(), number);
            if (read.ec == std::errc{} && number != first && number != second &&
                number != dirfd(folder) && n < found.size())
                found[n++] = number;
        }
        closedir(folder);
        for (std::size_t i = 0; i < n; ++i)
            close(found[i]);
    } while (n == found.size());
}

void ignore_signals() {
    for (const int signal_number : NOT_FOR_READERS)
        signal(signal_number, SIG_IGN);
    signal(SIGCHLD, SIG_IGN); // readers are not waited for
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const rlimit no_core{0, 0};
    (void)setrlimit(RLIMIT_CORE, &no_core);
}

std::byte *map_shared(int memory) {
    void *at = mmap(nullptr, MAPPED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    return at == MAP_FAILED ? nullptr : static_cast<std::byte *>(at);
}

struct SpawnReply {
    std::int64_t pid = -1;
};

// A request has the reader's socket and its memory with it; the answer has the reader's pidfd.
void run_spawner(int socket) {
    const pid_t own = getpid();
    char request = 0;
    std::array<int, 2> fds{-1, -1};
    while (receive_message(socket, &request, 1, fds.data(), 0) == 1) {
        const pid_t reader = fork();
        if (reader == 0) {
            std::byte *shared = map_shared(fds[1]);
            if (shared != nullptr && end_with(own)) {
                close_all_but(fds[0], -1);
                serve_requests(fds[0], shared);
            }
            _exit(0);
        }
        for (const int fd : fds)
            if (fd >= 0)
                close(fd);
        const int process = reader < 0 ? -1 : static_cast<int>(syscall(SYS_pidfd_open, reader, 0U));
        const SpawnReply reply{process < 0 ? -1 : reader};
        const bool sent = send_message(socket, &reply, sizeof(reply), process);
        if (process >= 0)
            close(process);
        if (!sent)
            return;
    }
}

// Of /proc/self/fdinfo/N of a pidfd.
long pid_of(int process) {
    std::array<char, 512> text{};
    const std::string path = "/proc/self/fdinfo/" + std::to_string(process);
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t n = file < 0 ? -1 : read(file, text.data(), text.size() - 1);
    if (file >= 0)
        close(file);
    const char *at = n > 0 ? std::strstr(text.data(), "Pid:") : nullptr;
    return at == nullptr ? -1 : std::strtol(at + 4, nullptr, 10);
}

} // namespace

ReaderHandle::~ReaderHandle() {
    close(socket_);
    close(process_);
    munmap(shared_, MAPPED_BYTES);
}

Mailbox &ReaderHandle::mailbox() const {
    return *reinterpret_cast<Mailbox *>(shared_ + SHARED_BYTES);
}

bool ReaderHandle::has_exited() const {
    pollfd ended{process_, POLLIN, 0};
    return poll(&ended, 1, 0) > 0;
}

bool ReaderHandle::kill() const {
    (void)syscall(SYS_pidfd_send_signal, process_, SIGKILL, nullptr, 0U);
    pollfd ended{process_, POLLIN, 0};
    return poll(&ended, 1, KILL_WAIT_MS) > 0;
}

// Of proc(5): the state, page faults and CPU time. The reader is no stranger: its file answers.
bool ReaderHandle::gets_on() {
    if (pid_ == 0)
        pid_ = pid_of(process_);
    const std::string path = "/proc/" + std::to_string(pid_) + "/stat";
    std::array<char, 1024> text{};
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t n = file < 0 ? -1 : read(file, text.data(), text.size() - 1);
    if (file >= 0)
        close(file);
    const char *at = n > 0 ? std::strrchr(text.data(), ')') : nullptr;
    if (at == nullptr || at[1] == '\0')
        return false;
    const char state = at[2];
    constexpr int MINOR_FAULTS = 7; // after the state; then children's, major, children's, times
    constexpr int SYSTEM_TIME = 12;
    unsigned long long sum = 0;
    char *next = const_cast<char *>(at + 3);
    for (int field = 1; field <= SYSTEM_TIME; ++field) {
        const unsigned long long value = std::strtoull(next, &next, 10);
        if (field >= MINOR_FAULTS)
            sum += value;
    }
    const bool moved = sum != progress_;
    progress_ = sum;
    return moved || state == 'R';
}

bool start_spawner() {
    const pid_t own = getpid();
    if (spawner_socket >= 0 && spawner_of == own)
        return true;
    std::array<int, 2> ends{-1, -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
        return false;
    const pid_t spawner = fork();
    if (spawner == 0) {
        ignore_signals();
        if (end_with(own)) {
            close_all_but(ends[1], -1);
            run_spawner(ends[1]);
        }
        _exit(0);
    }
    close(ends[1]);
    if (spawner < 0) {
        close(ends[0]);
        return false;
    }
    spawner_socket = ends[0];
    spawner_of = own;
    return true;
}

std::unique_ptr<ReaderHandle> spawn_reader() {
    for (int tries = 0; tries < 2 && start_spawner(); ++tries) {
        std::array<int, 2> ends{-1, -1};
        const int memory = memfd_create("collwire-reader", MFD_CLOEXEC);
        if (memory < 0 || ftruncate(memory, MAPPED_BYTES) != 0 ||
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
            if (memory >= 0)
                close(memory);
            return nullptr;
        }
        const char request = 1;
        SpawnReply reply;
        std::array<int, 2> fds{-1, -1};
        pollfd answered{spawner_socket, POLLIN, 0};
        const bool asked = send_message(spawner_socket, &request, 1, ends[1], memory) &&
                           poll(&answered, 1, SPAWN_WAIT_MS) > 0 &&
                           receive_message(spawner_socket, &reply, sizeof(reply), fds.data(), 0) ==
                               static_cast<std::int64_t>(sizeof(reply));
        close(ends[1]);
        std::byte *shared = fds[0] >= 0 ? map_shared(memory) : nullptr;
        close(memory);
        if (shared != nullptr)
            return std::make_unique<ReaderHandle>(ends[0], fds[0], shared);
        close(ends[0]);
        if (fds[0] >= 0)
            close(fds[0]);
        if (asked)
            return nullptr; // no process, or no memory
        close(spawner_socket);
        spawner_socket = -1;
    }
    return nullptr;
}

} // namespace collwire::foreign
