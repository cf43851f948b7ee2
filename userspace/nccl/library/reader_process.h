// SPDX-License-Identifier: Apache-2.0
// Reads untrusted files in a child process. The child has no privileges, none of the caller's
// files, and little time and memory, and it exits with the caller.
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

// The caller waits no longer than this, even if a file system hangs.
struct ReaderTimes {
    // Without output or other progress of the reader: it waits for a file system.
    std::chrono::milliseconds silence{1'500};
    std::chrono::milliseconds all{60'000};
    std::chrono::seconds cpu{10}; // of the reader
};

struct ReaderAnswer {
    std::string text;
    std::size_t n_opened = 0; // files that it has tried to open
    std::string problem;      // how the reader ended; empty: normally
    bool ran = false;         // a reader was started
    bool in_time = true;
    bool is_silent = false; // it waited for a file, and may still do so
    bool is_cut = false;    // it was ended from outside, or had used up its CPU time
};

// Runs in the reader, and writes to the descriptor.
using ReaderWork = std::function<void(int fd, std::span<const Result<elf::FileBytes>> files)>;

// The child opens the files with the caller's rights, since opening one may hang.
ReaderAnswer ask_reader(std::span<const std::string> paths, const ReaderTimes &times,
                        const ReaderWork &work);

// Writes all of it, for use in `work`.
void write_all(int fd, std::string_view text);

} // namespace collwire::nccl
