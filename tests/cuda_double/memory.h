// SPDX-License-Identifier: Apache-2.0
// Device memory and pinned memory are this process' own memory. With COLLWIRE_CUDA_P2P device
// memory is shareable: a file without a name for each allocation, which ends with the last process
// that has it open or mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace collwire::cuda_double {

enum class MemoryKind { Pinned = 1, Device = 2 }; // cudaMemoryType

struct Allocation {
    char *begin = nullptr;
    std::size_t bytes = 0;
    MemoryKind kind = MemoryKind::Device;
    int device = 0;
    bool is_mapped = false;   // by allocate() or import_shared()
    bool is_imported = false; // another process's
    bool is_virtual = false;  // by cuMemMap
    int file = -1;            // of shareable memory, in its owner
};

// A whole allocation, for another process.
struct SharedMemory {
    int process = 0;
    int file = -1;           // of that process
    std::uint64_t inode = 0; // of the file: distinguishes it from one that got the number later
    std::uint64_t bytes = 0;
};

void *allocate(std::size_t bytes, MemoryKind kind, int device); // null: none left
bool release(void *begin);                                      // of allocate()
bool add_pinned(void *begin, std::size_t bytes, int device);    // false: it is one already
void remove_pinned(void *begin);
// `file`: of the memory, if its first byte is at `begin`, or -1. It stays the caller's.
void add_virtual(void *begin, std::size_t bytes, int device, int file);
void remove_virtual(void *begin);
std::optional<Allocation> allocation_of(const void *address); // nothing: pageable
// Nothing: no allocation of this process that is shareable.
std::optional<SharedMemory> shared_memory_of(const void *address);
// Null where its owner has ended or freed it, or another user owns it.
void *import_shared(const SharedMemory &shared, int device);
bool release_imported(void *begin);
int make_shareable_file(std::size_t bytes); // ends the process if the file cannot be made
// As memset(begin, 0, bytes). NCCL clears buffers of many MB right after it allocates them: pages
// that were never written stay without memory.
void fill_with_zeros(void *begin, std::size_t bytes);

} // namespace collwire::cuda_double
