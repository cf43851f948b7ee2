// SPDX-License-Identifier: Apache-2.0
// CUDA's virtual memory management: memory and multicast objects have handles, and are mapped at
// addresses that were reserved before. A multicast address has no memory of its own: to touch it as
// if it had ends the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tests/cuda_double/multicast.h"

namespace collwire::cuda_double {

using MemoryHandle = std::uint64_t; // CUmemGenericAllocationHandle

// cuMemCreate's.
class PhysicalMemory {
public:
    PhysicalMemory(int file, std::size_t bytes, int device)
        : file_(file), bytes_(bytes), device_(device) {}
    ~PhysicalMemory();
    PhysicalMemory(const PhysicalMemory &) = delete;
    PhysicalMemory &operator=(const PhysicalMemory &) = delete;

    [[nodiscard]] int file() const { return file_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] int device() const { return device_; }
    [[nodiscard]] SharedMemory shared() const;

private:
    int file_;
    std::size_t bytes_;
    int device_;
};

// One of both.
struct MemoryObject {
    std::shared_ptr<PhysicalMemory> memory;
    std::shared_ptr<Multicast> multicast;

    bool operator==(const MemoryObject &) const = default;
};

// An object that has a handle keeps it: it has to be released once more then.
MemoryHandle add_handle(const MemoryObject &object);
std::optional<MemoryObject> object_of(MemoryHandle handle); // nothing: no handle
bool release_handle(MemoryHandle handle);                   // the object stays while it is mapped

std::shared_ptr<PhysicalMemory> create_memory(std::size_t bytes, int device);
// From an exported file, which stays the caller's. Nothing: it is of something else.
std::optional<MemoryObject> import_object(int file, int device);
int export_object(const MemoryObject &object); // a file, of the caller

char *reserve_addresses(std::size_t bytes, std::size_t alignment); // null: none left
bool free_addresses(char *begin, std::size_t bytes);
bool map_object(char *begin, std::size_t bytes, std::size_t offset, const MemoryObject &object);
bool unmap_object(char *begin, std::size_t bytes);
bool allow_access(char *begin, std::size_t bytes);
struct MappedObject {
    MemoryObject object;
    std::size_t offset = 0; // of the address
};
std::optional<MappedObject> mapped_at(const void *address);

// The memory of each device behind a multicast address. Empty: not a multicast address.
std::vector<char *> multicast_addresses(const void *address);

} // namespace collwire::cuda_double
