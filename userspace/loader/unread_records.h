// SPDX-License-Identifier: Apache-2.0
// Counts the unread records of a ring buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace collwire::loader {

// Records that are not consumed, finished or not, without those that their program discarded.
// Nothing: the kernel does not show the buffer. Layout: Linux, kernel/bpf/ringbuf.c, since 5.8.
[[nodiscard]] std::optional<std::uint64_t> unread_records(int ring_map_fd);

// The same for a ring buffer's memory, from one position to the other.
[[nodiscard]] std::uint64_t records_between(std::uint64_t consumer, std::uint64_t producer,
                                            std::span<const std::byte> ring);

} // namespace collwire::loader
