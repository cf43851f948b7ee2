// SPDX-License-Identifier: Apache-2.0
// Places in another process's address space: functions of its C library, room for carried code, a
// free range of addresses. Everything is read; nothing is changed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "userspace/process/process_view.h"

namespace collwire::inject {

// What the carried code calls, by address in the process.
struct LibraryFunctions {
    std::uint64_t pthread_create = 0, pthread_self = 0, pthread_detach = 0, dlopen = 0, dlsym = 0,
                  dlerror = 0, errno_location = 0;
};

// Whether the last part of a path is that of glibc's libc: libc.so.6, or libc-2.31.so.
bool is_c_library(std::string_view path);

// From the symbols of the mapped libc, libpthread and libdl (one file since glibc 2.34).
// Unsupported: no glibc, or one without these.
Result<LibraryFunctions> find_functions(const process::ProcessView &view);

// An unused range of `bytes` zeros at the end of a file's code, where its last page goes on beyond
// the segment; aligned to 64. Only of files that stay mapped until the process ends. Empty: none
// has one.
std::optional<std::uint64_t> find_code_room(const process::ProcessView &view, std::uint64_t bytes);

// The middle of the largest range without a mapping: the kernel places new mappings elsewhere.
std::optional<std::uint64_t> find_free_range(const std::vector<process::Mapping> &mappings,
                                             std::uint64_t bytes);

} // namespace collwire::inject
