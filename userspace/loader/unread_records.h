// SPDX-License-Identifier: Apache-2.0
// What a ring buffer holds that no one has read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace collwire::loader {

// Records that are not consumed, finished or not; those that their program threw away are none.
// Nothing: the kernel does not show the buffer. Layout: Linux, kernel/bpf/ringbuf.c, since 5.8.
[[nodiscard]] std::optional<std::uint64_t> unread_records(int ring_map_fd);

// The same of a ring buffer's memory, from one position to the other.
[[nodiscard]] std::uint64_t records_between(std::uint64_t consumer, std::uint64_t producer,
                                            std::span<const std::byte> ring);

} // namespace collwire::loader
