// SPDX-License-Identifier: Apache-2.0
// What a hit of a uprobe costs on this machine.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace collwire::calibrate {

// CPU time in ns that one hit adds, each the least of all rounds.
struct TrapCosts {
    double emulated_ns = 0;       // an empty program, on an instruction that the kernel emulates
    double single_stepped_ns = 0; // the same, on one that it single-steps
    double return_ns = 0;         // an empty return probe: its trap at the entry, too
    double post_ns = 0;           // the program that counts posts, for a post of one work request
    int rounds = 0;
};

// Calls functions of this program with probes on them, in this thread alone, for about `time_ns`.
// NotPermitted, Unsupported: no uprobe can be placed here.
[[nodiscard]] Result<TrapCosts> measure_traps(std::uint64_t time_ns);

} // namespace collwire::calibrate
