// SPDX-License-Identifier: Apache-2.0
// Who keeps the kernel from placing or removing uprobes in a file.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

namespace collwire::process {

// A file by its inodes, as this machine and as containers show them, and its paths.
struct ProbedFile {
    std::set<std::uint64_t> inodes;
    std::set<std::string> paths;
};

// The processes that do not answer and may have mapped the file. For a uprobe the kernel takes the
// mmap lock of each process that has mapped its file, one after the other, and waits without limit;
// until then no process of the machine can fork (kernel/events/uprobes.c: register_for_each_vma,
// which holds dup_mmap_sem). A process whose mappings cannot be read either counts as one.
std::vector<pid_t> silent_users(const ProbedFile &file);

// For a message: "process 12, which does not answer".
std::string text_of_silent(const std::vector<pid_t> &pids);

} // namespace collwire::process
