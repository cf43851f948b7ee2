// SPDX-License-Identifier: Apache-2.0
// A process that reads files which nobody vouches for. Whatever they do to it, they do there: it
// has no privileges, no file of the caller's and little time and memory, and does not outlive the
// caller.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "userspace/elf/file_bytes.h"

namespace collwire::nccl {

// The caller waits no longer than this, whatever the file system that a file is on does.
struct ReaderTimes {
    // Without a word of the reader, or a sign that it gets on. A hundred times what the largest
    // official build takes, and more.
    std::chrono::milliseconds silence{5'000};
    std::chrono::milliseconds all{60'000};
    std::chrono::seconds cpu{10}; // of the reader
};

struct ReaderAnswer {
    std::string text;
    std::size_t n_opened = 0; // of the files, whether there was anything to open or not
    std::string problem;      // how the reader ended; empty: in order
    bool ran = false;         // there was one
    bool in_time = true;
};

// Runs in the reader, and writes to the descriptor.
using ReaderWork = std::function<void(int fd, std::span<const Result<FileBytes>> files)>;

// The files are opened in that process, with the caller's rights: opening one may hang, too.
ReaderAnswer ask_reader(std::span<const std::string> paths, const ReaderTimes &times,
                        const ReaderWork &work);

// For work.
void write_all(int fd, std::string_view text);

} // namespace collwire::nccl
