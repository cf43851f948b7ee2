// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "base/result.h"

namespace collwire::record {

// The command after `--`. Forked at once, it executes only when released, so that every probe is
// attached before its first instruction. It survives the recorder.
class Child {
public:
    Child() = default;
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;
    // Ends a command that was never released; a running one is left alone.
    ~Child();

    // argv must not be empty. Call it before signals are blocked or ignored: the command inherits
    // their current state.
    Result<void> prepare(const std::vector<std::string> &argv);
    // Lets the command execute. An Error names the reason if it could not; then it has exited.
    Result<void> release();

    // Reaps it if it has exited. True once it has.
    bool reap();
    // Blocks until it has exited.
    void wait();
    void forward(int signal) const;

    [[nodiscard]] bool started() const { return pid_ > 0; }
    [[nodiscard]] bool over() const { return over_; }
    [[nodiscard]] pid_t pid() const { return pid_; }
    // As a shell reports it: the exit status, or 128 + signal.
    [[nodiscard]] int exit_status() const { return exit_status_; }

private:
    void note(int wait_status);

    pid_t pid_ = -1;
    int gate_fd_ = -1;  // closing it without a byte ends the child
    int error_fd_ = -1; // closed by a successful exec, else carries errno
    bool released_ = false;
    bool over_ = false;
    int exit_status_ = 0;
    std::string command_;
};

} // namespace collwire::record
