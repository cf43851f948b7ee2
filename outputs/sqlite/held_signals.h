// SPDX-License-Identifier: Apache-2.0
// Holds back the signals that end a program while it writes a file that must not stay half-written.
#pragma once

#include <csignal>

namespace collwire::sqlite {

// SIGINT, SIGTERM and SIGHUP of this thread, from the construction to the destruction. One that
// came meanwhile then acts as it would have.
class HeldSignals {
public:
    HeldSignals();
    ~HeldSignals();
    HeldSignals(const HeldSignals &) = delete;
    HeldSignals &operator=(const HeldSignals &) = delete;

    // One of them came, and is not ignored.
    [[nodiscard]] bool has_come() const;

private:
    sigset_t held_{};
    sigset_t before_{};
};

} // namespace collwire::sqlite
