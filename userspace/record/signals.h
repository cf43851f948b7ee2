// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <optional>

#include <sys/signalfd.h>

#include "base/result.h"

namespace collwire::record {

// Blocks the signals that the recorder handles and reads them from a file descriptor instead;
// restores the mask at its end. SIGHUP stays ignored where it was.
class Signals {
public:
    Signals() = default;
    Signals(const Signals &) = delete;
    Signals &operator=(const Signals &) = delete;
    ~Signals();

    Result<void> open();
    [[nodiscard]] int fd() const { return fd_; }
    std::optional<signalfd_siginfo> next();

private:
    int fd_ = -1;
    bool blocked_ = false;
    sigset_t before_{};
};

} // namespace collwire::record
