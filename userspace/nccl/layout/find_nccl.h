// SPDX-License-Identifier: Apache-2.0
// Finds the files that are NCCL, or have it linked in.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "userspace/nccl/library/reader_process.h"

namespace collwire::nccl {

// Even NCCL without GPU kernels is larger.
inline constexpr std::uint64_t LEAST_FILE_BYTES = 1 << 20;

struct FileCheck {
    enum class Verdict {
        NotReached, // no time, or no process: ask again
        Unopened,   // ask again if a process has mapped it
        Silent,     // its file system did not answer in time: ask again, later
        Unreadable, // a reader of its own failed on the file
        Other,
        Nccl, // defines ncclAllReduce, in .symtab or .dynsym
    };
    Verdict verdict = Verdict::NotReached;
    std::string build_id; // of Nccl; may be empty
    std::string problem;  // of Unreadable
};

// Files below LEAST_FILE_BYTES are Other. A child process without privileges opens and reads the
// files (reader_process.h).
std::vector<FileCheck> check_for_nccl(std::span<const std::string> paths,
                                      const ReaderTimes &times = {});

} // namespace collwire::nccl
