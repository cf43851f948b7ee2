// SPDX-License-Identifier: Apache-2.0
// The function in the name of an NCCL kernel. Names as NCCL 2.18 to 2.32 build them
// (src/device/generate.py): a kernel of a function serves all its algorithms, protocols and
// reductions, so the name is evidence for the function alone.
#pragma once

#include <cstdint>
#include <string_view>

namespace collwire::gpu {

struct KernelName {
    std::uint8_t func = 0xff; // enum cw_nccl_func; CW_NCCL_FUNC_UNKNOWN for one that serves several
    bool is_known = false;    // a form of name that this version of collwire knows
};

// Of a name with or without C++ mangling.
[[nodiscard]] KernelName kernel_name_of(std::string_view name);

} // namespace collwire::gpu
