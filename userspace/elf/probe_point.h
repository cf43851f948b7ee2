// SPDX-License-Identifier: Apache-2.0
// Chooses the instruction of a function for a uprobe.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "userspace/elf/code_view.h"
#include "userspace/elf/disassembler.h"

namespace collwire::elf {

struct ProbePoint {
    std::uint64_t address = 0;     // in the file
    std::uint64_t file_offset = 0; // where the uprobe goes
    std::string instruction;       // under it, AT&T syntax
    // The kernel emulates the instruction (0.5 us a hit). If not it is single-stepped: 1 us
    // on bare metal, 15 to 20 us in a virtual machine.
    bool emulated = false;
};

struct CodeRange {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
};

// The first instruction from `entry` on that the kernel emulates, that every call passes exactly
// once, and at which the wanted registers (bits of Registers) still have their values of the entry.
// Without one, the first instruction that can be probed, with emulated == false. BadInput if there
// is no code at `entry`. `jump_sources` is all code that may jump into the function: its symbol's
// range and those of its split-off parts; empty: anywhere. The emulated instructions:
// arch/x86/kernel/uprobes.c, branch_setup_xol_ops and push_setup_xol_ops, as in Linux 5.10: later
// kernels emulate more, none less.
Result<ProbePoint> choose_probe_point(const CodeView &code, std::uint64_t entry, unsigned registers,
                                      std::span<const CodeRange> jump_sources = {});

} // namespace collwire::elf
