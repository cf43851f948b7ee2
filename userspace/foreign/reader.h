// SPDX-License-Identifier: Apache-2.0
// What a reader process does, and how it is asked.
#pragma once

#include <cstddef>
#include <cstdint>

namespace collwire::foreign {

// The memory that a reader shares with its caller.
inline constexpr std::size_t SHARED_BYTES = std::size_t{1} << 20;
// Behind it, for a Mailbox.
inline constexpr std::size_t MAILBOX_BYTES = 4096;
// Of one request: IOV_MAX.
inline constexpr std::size_t MAX_WORDS = 1024;

enum class ReaderTask : std::uint32_t {
    Memory,   // address, length -> the bytes
    Words,    // count addresses in front -> count words in front
    OpenFile, // path; opens and reads up to length from address -> the number of bytes
    FilePart, // address, length: bytes of the file that OpenFile has read
    Link,     // path -> its target
    OpenPath, // path -> a descriptor
    Status,   // count paths, each with a final zero -> count of StatusAnswer
};

struct ReaderRequest {
    ReaderTask task{};
    std::int32_t pid = 0;
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint64_t count = 0;
};

struct ReaderReply {
    std::int64_t result = 0; // -1: failed
    std::int64_t error_number = 0;
};

// Answers requests from the mailbox and `socket` until its other end is closed. `shared`:
// SHARED_BYTES, and the mailbox.
void serve_requests(int socket, std::byte *shared);

// One message, with a descriptor or without (-1). False: errno says why.
bool send_message(int socket, const void *message, std::size_t bytes, int fd = -1, int fd2 = -1);
// The number of bytes, 0 at the end, -1. `fds`: two, -1 where there is none.
std::int64_t receive_message(int socket, void *message, std::size_t bytes, int *fds, int flags);

} // namespace collwire::foreign
