// SPDX-License-Identifier: Apache-2.0
// Borrows a thread of another process: makes it run the carried code once and go back into its
// system call. The only part of collwire that stops a thread.
#pragma once

#include <cstdint>
#include <string>

#include <sys/types.h>

#include "base/result.h"
#include "userspace/inject/carrier.h"

namespace collwire::inject {

struct Loan {
    bool is_given = false;      // false: the thread was not in a call to borrow it from
    std::uint64_t begin_ns = 0; // when it was interrupted, CLOCK_REALTIME as in the carried code
    std::string reason;         // of a loan that was not given
};

// Interrupts the thread, and if it sleeps in a call that may be borrowed, lets it run the carried
// code, which is written to `code`, with the thread's registers in its block. At each moment at
// which this program can be killed, the thread goes on by itself: either in its call, or through
// the carried code and back. NotPermitted: ptrace, or writing the code, is not allowed; the thread
// goes on.
Result<Loan> borrow(pid_t pid, pid_t tid, std::uint64_t code, const CarrierBlock &block);

} // namespace collwire::inject
