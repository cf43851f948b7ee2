// SPDX-License-Identifier: Apache-2.0
// The functions of a stripped file, from its exception table.
#pragma once

#include <cstdint>
#include <vector>

#include "userspace/elf/code_view.h"
#include "userspace/elf/probe_point.h"

namespace collwire::elf {

// The ranges of all functions and of their split-off parts, sorted, from .eh_frame_hdr at address
// `table` and the frames that it names. Empty: no such table, of another form than GCC and Clang
// write for x86-64, or damaged: frames that disagree with the table, ranges that overlap or are no
// code, more than 16 MiB of code. Format: "Linux Standard Base Core Specification", 10.6.
std::vector<CodeRange> frame_functions(const CodeView &code, std::uint64_t table);

} // namespace collwire::elf
