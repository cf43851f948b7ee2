// SPDX-License-Identifier: Apache-2.0
// The recorder's side of bpf/twice.h: which calls neither of a function's two programs saw.
#pragma once

#include <cstdint>

#include "userspace/loader/hooks.h"

namespace collwire::loader {

// Calls that neither program of any of this object's pairs saw, so far. `twice_map_fd` is the
// object's map. What is on its way while this looks is not counted, after a few looks.
[[nodiscard]] std::uint64_t calls_unseen_by_both(const HookSet &hooks, int twice_map_fd,
                                                 bool with_loopback);

// Deletes entries whose value begins with a monotonic time long past: no call takes so long, so its
// other program, or its return, passed unseen. Returns how many there were.
std::uint64_t forget_old_calls(int map_fd, std::size_t key_bytes, std::size_t value_bytes);

} // namespace collwire::loader
