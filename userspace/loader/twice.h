// SPDX-License-Identifier: Apache-2.0
// The recorder's side of bpf/twice.h: the calls that both siblings of a function missed.
#pragma once

#include <cstdint>

#include "userspace/loader/hooks.h"

namespace collwire::loader {

// Calls so far that both siblings of a pair of this object missed. `twice_map_fd` is the object's
// map. Calls in flight are left out, after a few reads.
[[nodiscard]] std::uint64_t calls_unseen_by_both(const HookSet &hooks, int twice_map_fd,
                                                 bool with_loopback);

// Deletes entries whose value starts with a monotonic time long past: no call takes that long, so
// its sibling, or its return, was missed. Returns their number.
std::uint64_t forget_old_calls(int map_fd, std::size_t key_bytes, std::size_t value_bytes);

} // namespace collwire::loader
