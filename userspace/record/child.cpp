// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/child.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace collwire::record {
namespace {

void close_fd(int &fd) {
    if (fd >= 0)
        close(fd);
    fd = -1;
}

// Runs in the forked child: async-signal-safe calls only.
[[noreturn]] void run(char *const *argv, int gate_fd, int error_fd) {
    char byte = 0;
    ssize_t got = 0;
    do {
        got = read(gate_fd, &byte, 1);
    } while (got < 0 && errno == EINTR);
    if (got != 1)
        _exit(0);
    execvp(argv[0], argv);
    const int code = errno;
    const ssize_t ignored = write(error_fd, &code, sizeof code);
    static_cast<void>(ignored);
    _exit(127);
}

} // namespace

Child::~Child() {
    close_fd(gate_fd_);
    close_fd(error_fd_);
    if (pid_ > 0 && !released_)
        wait();
}

Result<void> Child::prepare(const std::vector<std::string> &argv) {
    command_ = argv.front();
    std::vector<char *> pointers;
    pointers.reserve(argv.size() + 1);
    for (const std::string &argument : argv)
        pointers.push_back(const_cast<char *>(argument.c_str()));
    pointers.push_back(nullptr);

    int gate[2];
    int report[2];
    if (pipe2(gate, O_CLOEXEC) != 0)
        return error(ErrorKind::Failed, fmt::format("cannot create a pipe: {}", strerror(errno)));
    if (pipe2(report, O_CLOEXEC) != 0) {
        const int code = errno;
        close(gate[0]);
        close(gate[1]);
        return error(ErrorKind::Failed, fmt::format("cannot create a pipe: {}", strerror(code)));
    }
    pid_ = fork();
    if (pid_ == 0) {
        close(gate[1]);
        close(report[0]);
        run(pointers.data(), gate[0], report[1]);
    }
    const int code = errno;
    close(gate[0]);
    close(report[1]);
    gate_fd_ = gate[1];
    error_fd_ = report[0];
    if (pid_ < 0)
        return error(ErrorKind::Failed, fmt::format("cannot fork: {}", strerror(code)));
    return {};
}

Result<void> Child::release() {
    released_ = true;
    const char byte = 1;
    if (write(gate_fd_, &byte, 1) != 1)
        return error(ErrorKind::Failed,
                     fmt::format("{}: exited before the recorder released it", command_));
    close_fd(gate_fd_);
    int code = 0;
    ssize_t got = 0;
    do {
        got = read(error_fd_, &code, sizeof code);
    } while (got < 0 && errno == EINTR);
    close_fd(error_fd_);
    if (got == sizeof code) {
        wait();
        return error(ErrorKind::Usage,
                     fmt::format("cannot execute {}: {}. Fix: give an executable command after --",
                                 command_, strerror(code)));
    }
    return {};
}

void Child::note(int wait_status) {
    over_ = true;
    if (WIFEXITED(wait_status))
        exit_status_ = WEXITSTATUS(wait_status);
    else if (WIFSIGNALED(wait_status))
        exit_status_ = 128 + WTERMSIG(wait_status);
}

bool Child::reap() {
    if (over_ || pid_ <= 0)
        return over_;
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_)
        note(status);
    return over_;
}

void Child::wait() {
    int status = 0;
    pid_t got = 0;
    do {
        got = waitpid(pid_, &status, 0);
    } while (got < 0 && errno == EINTR);
    if (got == pid_)
        note(status);
}

void Child::forward(int signal) const {
    if (pid_ > 0 && !over_)
        kill(pid_, signal);
}

} // namespace collwire::record
