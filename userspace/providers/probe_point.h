// SPDX-License-Identifier: Apache-2.0
// Chooses the instruction of a function to place a uprobe on.
#pragma once

#include <cstdint>
#include <string>

#include "correlate/base/result.h"
#include "userspace/providers/elf_image.h"

namespace collwire {

// Arguments of a function that the probe's program reads, as bits.
enum ProbeArguments : unsigned {
    ARGUMENT_1 = 1u << 0, // rdi
    ARGUMENT_2 = 1u << 1, // rsi
    ARGUMENT_3 = 1u << 2, // rdx
    ARGUMENT_4 = 1u << 3, // rcx
};

struct ProbePoint {
    std::uint64_t address = 0;     // in the file
    std::uint64_t file_offset = 0; // where the uprobe goes
    std::string instruction;       // under it, AT&T syntax
    // The kernel emulates the instruction (0.5 us a hit). If not it is single-stepped: 1 us
    // on bare metal, 15 to 20 us in a virtual machine.
    bool emulated = false;
};

// The first instruction from `entry` on that the kernel emulates, that every call passes exactly
// once, and at which the wanted arguments are still in their registers. If there is none, the first
// instruction that can be probed, with emulated == false. BadInput if there is no code at `entry`.
//
// What is emulated: arch/x86/kernel/uprobes.c, branch_setup_xol_ops and push_setup_xol_ops, as in
// Linux 5.10: later kernels emulate more, none less.
Result<ProbePoint> choose_probe_point(const ElfImage &image, std::uint64_t entry,
                                      unsigned arguments);

} // namespace collwire
