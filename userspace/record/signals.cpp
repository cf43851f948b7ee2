// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/signals.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

namespace collwire::record {
namespace {

bool is_ignored(int signal) {
    struct sigaction now {};
    return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

} // namespace

Signals::~Signals() {
    if (fd_ >= 0)
        close(fd_);
    if (blocked_)
        sigprocmask(SIG_SETMASK, &before_, nullptr);
}

Result<void> Signals::open() {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
        // A hang-up that is already ignored (nohup) means that the recording shall outlive its
        // terminal. The other signals end it even if ignored: a shell's `&` in a script ignores
        // SIGINT.
        if (signal != SIGHUP || !is_ignored(signal))
            sigaddset(&wanted, signal);
    }
    // If it is ignored, an exited command leaves nothing to wait for.
    if (is_ignored(SIGCHLD))
        ::signal(SIGCHLD, SIG_DFL);
    if (sigprocmask(SIG_BLOCK, &wanted, &before_) != 0)
        return error(ErrorKind::Failed, fmt::format("cannot block signals: {}", strerror(errno)));
    blocked_ = true;
    fd_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd_ < 0)
        return error(ErrorKind::Failed,
                     fmt::format("cannot create a signalfd: {}", strerror(errno)));
    // A closed stderr or stdout must not end a recording.
    signal(SIGPIPE, SIG_IGN);
    // Neither must a limit on file sizes: the write fails instead, and is counted.
    signal(SIGXFSZ, SIG_IGN);
    return {};
}

std::optional<signalfd_siginfo> Signals::next() {
    signalfd_siginfo info{};
    if (read(fd_, &info, sizeof info) != static_cast<ssize_t>(sizeof info))
        return std::nullopt;
    return info;
}

} // namespace collwire::record
