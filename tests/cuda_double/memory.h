// SPDX-License-Identifier: Apache-2.0
// Device memory and pinned memory are this process' own memory.
#pragma once

#include <cstddef>
#include <optional>

namespace collwire::cuda_double {

enum class MemoryKind { Pinned = 1, Device = 2 }; // cudaMemoryType

struct Allocation {
    char *begin = nullptr;
    std::size_t bytes = 0;
    MemoryKind kind = MemoryKind::Device;
    int device = 0;
    bool is_mapped = false; // by allocate()
};

void *allocate(std::size_t bytes, MemoryKind kind, int device); // null: none left
bool release(void *begin);
bool add_pinned(void *begin, std::size_t bytes, int device); // false: it is one already
void remove_pinned(void *begin);
std::optional<Allocation> allocation_of(const void *address); // nothing: pageable
// As memset(begin, 0, bytes). NCCL clears buffers of many MB right after it allocates them: pages
// that were never written stay without memory.
void fill_with_zeros(void *begin, std::size_t bytes);

} // namespace collwire::cuda_double
