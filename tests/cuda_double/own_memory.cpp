// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/own_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <bit>

namespace collwire::cuda_double {

std::optional<std::uint64_t> try_read(std::uintptr_t address) {
    std::uint64_t value = 0;
    iovec to{&value, sizeof value};
    iovec from{std::bit_cast<void *>(address), sizeof value};
    return ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) == sizeof value
               ? std::optional(value)
               : std::nullopt;
}

} // namespace collwire::cuda_double
