// SPDX-License-Identifier: Apache-2.0
// Which files are NCCL, or have it linked in.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "userspace/nccl/library/reader_process.h"

namespace collwire::nccl {

// NCCL without a kernel for any GPU is larger.
inline constexpr std::uint64_t LEAST_FILE_BYTES = 1 << 20;

struct FileLook {
    enum class Verdict {
        NotReached, // there was no time, or no process: ask again
        Unopened,   // ask again if somebody has it
        Unreadable, // it, or its file system, was too much for a reader of its own
        Other,
        Nccl, // it defines ncclAllReduce, in .symtab or .dynsym
    };
    Verdict verdict = Verdict::NotReached;
    std::string build_id; // of Nccl; may be empty
    std::string problem;  // of Unreadable
};

// Smaller files than LEAST_FILE_BYTES are Other. The files are opened and read in a process without
// privileges, as by layout_of_file().
std::vector<FileLook> look_for_nccl(std::span<const std::string> paths,
                                    const ReaderTimes &times = {});

} // namespace collwire::nccl
