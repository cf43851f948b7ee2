// SPDX-License-Identifier: Apache-2.0
#include "outputs/sqlite/held_signals.h"

#include <array>

namespace collwire::sqlite {

namespace {
constexpr std::array ENDING{SIGINT, SIGTERM, SIGHUP};
} // namespace

HeldSignals::HeldSignals() {
    sigemptyset(&held_);
    for (const int number : ENDING) {
        // While it is blocked, the kernel keeps even a signal that is ignored.
        struct sigaction action {};
        if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&held_, number);
    }
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
}

HeldSignals::~HeldSignals() {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool HeldSignals::has_come() const {
    sigset_t pending{};
    if (sigpending(&pending) != 0)
        return false;
    for (const int number : ENDING)
        if (sigismember(&pending, number) == 1 && sigismember(&held_, number) == 1 &&
            sigismember(&before_, number) != 1)
            return true;
    return false;
}

} // namespace collwire::sqlite
