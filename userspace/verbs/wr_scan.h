// SPDX-License-Identifier: Apache-2.0
// Finds the functions of the ibv_wr_* calls in a provider library, before any queue pair has them.
#pragma once

#include <cstdint>
#include <vector>

#include "collwire/verbs.h"
#include "userspace/elf/elf_image.h"

namespace collwire::verbs {

struct WrFunction {
    cw_verbs_call call = CW_CALL_NONE;
    std::uint64_t address = 0; // in the file

    friend bool operator==(const WrFunction &, const WrFunction &) = default;
};

// A driver writes them into struct ibv_qp_ex one by one, at offsets that the public header fixes.
// The result has every code address that a function stores there through one register, if it stores
// wr_start, wr_complete and wr_abort through the same one. Sorted, each once; empty if there are
// none. Some may be missing (an address computed on another path through the function): a queue
// pair in a process has those.
std::vector<WrFunction> find_wr_functions(const elf::ElfImage &image);

} // namespace collwire::verbs
