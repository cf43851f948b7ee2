// SPDX-License-Identifier: Apache-2.0
// The driver's functions for virtual memory and multicast, with COLLWIRE_CUDA_NVLS=1. Handles go to
// other processes as file descriptors.
#include <fmt/format.h>

#include <cstdint>

#include "tests/cuda_double/runtime.h"
#include "tests/cuda_double/settings.h"
#include "tests/cuda_double/virtual_memory.h"

namespace collwire::cuda_double {
namespace {

constexpr std::size_t kGranularityBytes = 2 << 20; // as an H100's, of memory and of multicast
constexpr int kPosixFile = 1;                      // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
constexpr int kPinned = 1;                         // CU_MEM_ALLOCATION_TYPE_PINNED
constexpr int kOnDevice = 1;                       // CU_MEM_LOCATION_TYPE_DEVICE

bool is_whole(std::size_t bytes) {
    return bytes != 0 && bytes % kGranularityBytes == 0;
}

char *pointer_of(std::uintptr_t address) {
    // CUdeviceptr is a number. NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<char *>(address);
}

// NCCL goes on without NVLS where some of these fail: the reason is to be seen.
int refused(const char *function) {
    if (settings().verbose)
        note(fmt::format("{} refused", function));
    return cudaErrorInvalidValue;
}

std::shared_ptr<Multicast> multicast_of(MemoryHandle handle) {
    const auto object = object_of(handle);
    return object ? object->multicast : nullptr;
}

int bind(MemoryHandle multicast_handle, std::size_t offset,
         const std::shared_ptr<PhysicalMemory> &memory, std::size_t memory_offset,
         std::size_t bytes) {
    const auto multicast = multicast_of(multicast_handle);
    return multicast && memory &&
                   multicast->bind(memory->device(), offset, memory->shared(), memory_offset, bytes)
               ? cudaSuccess
               : refused("cuMulticastBind");
}

} // namespace
} // namespace collwire::cuda_double

using namespace collwire::cuda_double;

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
struct CUmemLocation {
    int type;
    int id;
};

struct CUmemAllocationProp {
    int type;
    int requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    unsigned char allocFlags[8];
};

struct CUmulticastObjectProp {
    unsigned numDevices;
    std::size_t size;
    unsigned long long handleTypes;
    unsigned long long flags;
};

#pragma GCC visibility push(default)
extern "C" {

int cuMemGetAllocationGranularity(std::size_t *bytes, const CUmemAllocationProp *, int) {
    *bytes = kGranularityBytes;
    return cudaSuccess;
}

int cuMemCreate(std::uint64_t *handle, std::size_t bytes, const CUmemAllocationProp *properties,
                unsigned long long) {
    if (properties->type != kPinned || properties->location.type != kOnDevice ||
        (properties->requestedHandleTypes & ~kPosixFile) != 0 || !is_whole(bytes) ||
        !is_device(properties->location.id))
        return refused("cuMemCreate");
    *handle = add_handle({create_memory(bytes, properties->location.id), nullptr});
    return cudaSuccess;
}

int cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties, std::uint64_t handle) {
    const auto object = object_of(handle);
    if (!object || !object->memory)
        return refused("cuMemGetAllocationPropertiesFromHandle");
    *properties = {kPinned, kPosixFile, {kOnDevice, object->memory->device()}, nullptr, {}};
    return cudaSuccess;
}

int cuMemRelease(std::uint64_t handle) {
    return release_handle(handle) ? cudaSuccess : refused("cuMemRelease");
}

int cuMemRetainAllocationHandle(std::uint64_t *handle, void *address) {
    const auto mapped = mapped_at(address);
    if (!mapped)
        return cudaErrorInvalidValue;
    *handle = add_handle(mapped->object);
    return cudaSuccess;
}

int cuMemExportToShareableHandle(void *exported, std::uint64_t handle, int type,
                                 unsigned long long) {
    const auto object = object_of(handle);
    const int file = object && type == kPosixFile ? export_object(*object) : -1;
    if (file < 0)
        return refused("cuMemExportToShareableHandle");
    *static_cast<int *>(exported) = file;
    return cudaSuccess;
}

int cuMemImportFromShareableHandle(std::uint64_t *handle, void *exported, int type) {
    const auto file = static_cast<int>(reinterpret_cast<std::uintptr_t>(exported));
    const auto object = type == kPosixFile ? import_object(file, current_device()) : std::nullopt;
    if (!object)
        return refused("cuMemImportFromShareableHandle");
    *handle = add_handle(*object);
    return cudaSuccess;
}

int cuMemAddressReserve(std::uintptr_t *begin, std::size_t bytes, std::size_t alignment,
                        std::uintptr_t, unsigned long long) {
    char *reserved = is_whole(bytes) ? reserve_addresses(bytes, alignment) : nullptr;
    *begin = reinterpret_cast<std::uintptr_t>(reserved);
    return reserved != nullptr ? cudaSuccess : refused("cuMemAddressReserve");
}

int cuMemAddressFree(std::uintptr_t begin, std::size_t bytes) {
    return free_addresses(pointer_of(begin), bytes) ? cudaSuccess : refused("cuMemAddressFree");
}

int cuMemMap(std::uintptr_t begin, std::size_t bytes, std::size_t offset, std::uint64_t handle,
             unsigned long long) {
    const auto object = object_of(handle);
    return object && is_whole(bytes) && map_object(pointer_of(begin), bytes, offset, *object)
               ? cudaSuccess
               : refused("cuMemMap");
}

int cuMemUnmap(std::uintptr_t begin, std::size_t bytes) {
    return unmap_object(pointer_of(begin), bytes) ? cudaSuccess : refused("cuMemUnmap");
}

int cuMemSetAccess(std::uintptr_t begin, std::size_t bytes, const void *, std::size_t) {
    return allow_access(pointer_of(begin), bytes) ? cudaSuccess : refused("cuMemSetAccess");
}

int cuMulticastGetGranularity(std::size_t *bytes, const CUmulticastObjectProp *, int) {
    *bytes = kGranularityBytes;
    return cudaSuccess;
}

int cuMulticastCreate(std::uint64_t *handle, const CUmulticastObjectProp *properties) {
    if (properties->numDevices == 0 || !is_whole(properties->size) ||
        (properties->handleTypes & ~static_cast<unsigned long long>(kPosixFile)) != 0)
        return refused("cuMulticastCreate");
    *handle = add_handle({nullptr, Multicast::create(properties->size, properties->numDevices)});
    return cudaSuccess;
}

int cuMulticastAddDevice(std::uint64_t handle, int device) {
    const auto multicast = multicast_of(handle);
    return multicast && is_device(device) && multicast->add_device(device)
               ? cudaSuccess
               : refused("cuMulticastAddDevice");
}

// CUDA waits until all devices have been added. NCCL has a barrier before the first kernel.
int cuMulticastBindMem(std::uint64_t multicast, std::size_t offset, std::uint64_t memory,
                       std::size_t memory_offset, std::size_t bytes, unsigned long long) {
    const auto object = object_of(memory);
    return bind(multicast, offset, object ? object->memory : nullptr, memory_offset, bytes);
}

int cuMulticastBindAddr(std::uint64_t multicast, std::size_t offset, std::uintptr_t address,
                        std::size_t bytes, unsigned long long) {
    const auto mapped = mapped_at(pointer_of(address));
    return mapped ? bind(multicast, offset, mapped->object.memory, mapped->offset, bytes)
                  : refused("cuMulticastBindAddr");
}

int cuMulticastUnbind(std::uint64_t handle, int device, std::size_t offset, std::size_t bytes) {
    const auto multicast = multicast_of(handle);
    return multicast && multicast->unbind(device, offset, bytes) ? cudaSuccess
                                                                 : refused("cuMulticastUnbind");
}

} // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
