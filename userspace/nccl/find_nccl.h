// SPDX-License-Identifier: Apache-2.0
// Which files are NCCL, or have it linked in.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "correlate/base/result.h"

namespace collwire::nccl {

// NCCL without a kernel for any GPU is larger.
inline constexpr std::uint64_t LEAST_FILE_BYTES = 1 << 20;

// For each path whether the file defines ncclAllReduce, in .symtab or .dynsym. What cannot be
// opened, is smaller than LEAST_FILE_BYTES, or breaks its reader is not NCCL. The files are read in
// a process without privileges, as by plan_of_file().
std::vector<bool> define_nccl(std::span<const std::string> paths);

} // namespace collwire::nccl
