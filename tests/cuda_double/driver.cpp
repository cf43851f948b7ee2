// SPDX-License-Identifier: Apache-2.0
// The driver's functions that NCCL asks the runtime for. Those that are missing here are answered
// "not found", and NCCL then does without. Virtual memory and multicast: driver_memory.cpp.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <string>

#include "tests/cuda_double/memory.h"
#include "tests/cuda_double/runtime.h"
#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

constexpr std::size_t kUuidBytes = 16;
constexpr int kPointerMemoryType = 2;
constexpr int kPointerDeviceOrdinal = 9;
constexpr int kPointerIsIpcCapable = 10;

// Virtual memory and multicast.
bool is_of_nvls(const std::string &name) {
    return name.rfind("cuMulticast", 0) == 0 ||
           (name.rfind("cuMem", 0) == 0 && name != "cuMemGetAddressRange");
}

void *driver_function(const char *name) {
    if (!settings().has_multicast && is_of_nvls(name))
        return nullptr;
    void *driver = open_driver();
    return driver != nullptr ? ::dlsym(driver, name) : nullptr;
}

} // namespace

void *open_driver() {
    static void *self = [] {
        Dl_info info;
        return ::dladdr(reinterpret_cast<void *>(&driver_function), &info) != 0
                   ? ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD)
                   : nullptr;
    }();
    return self;
}

void *context_of(int device) {
    static char contexts[64];
    return &contexts[device];
}

} // namespace collwire::cuda_double

using namespace collwire::cuda_double;

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
#pragma GCC visibility push(default)
extern "C" {

int cuGetErrorString(int error, const char **text) {
    *text = cudaGetErrorString(error);
    return cudaSuccess;
}

int cuGetErrorName(int error, const char **text) {
    return cuGetErrorString(error, text);
}

int cuInit(unsigned) {
    return cudaSuccess;
}

int cuDriverGetVersion(int *version) {
    return cudaDriverGetVersion(version);
}

int cuGetProcAddress(const char *name, void **function, int, std::uint64_t) {
    *function = driver_function(name);
    return *function != nullptr ? cudaSuccess : cudaErrorSymbolNotFound;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return cudaSuccess;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = device_attribute(attribute, device);
    return cudaSuccess;
}

int cuDeviceGetUuid(char *uuid, int device) {
    std::memset(uuid, 0, kUuidBytes);
    uuid[0] = static_cast<char>(device + 1);
    return cudaSuccess;
}

int cuCtxGetCurrent(void **context) {
    *context = context_of(current_device());
    return cudaSuccess;
}

int cuCtxSetCurrent(void *) {
    return cudaSuccess;
}

int cuCtxCreate(void **context, unsigned, int device) {
    *context = context_of(device);
    return cudaSuccess;
}

int cuCtxDestroy(void *) {
    return cudaSuccess;
}

int cuCtxGetDevice(int *device) {
    *device = current_device();
    return cudaSuccess;
}

int cuMemGetAddressRange(void **begin, std::size_t *bytes, void *address) {
    const auto allocation = allocation_of(address);
    if (!allocation)
        return cudaErrorInvalidValue;
    if (begin != nullptr)
        *begin = allocation->begin;
    if (bytes != nullptr)
        *bytes = allocation->bytes;
    return cudaSuccess;
}

int cuPointerGetAttribute(void *value, int attribute, void *address) {
    const auto allocation = allocation_of(address);
    if (!allocation)
        return cudaErrorInvalidValue;
    switch (attribute) {
    case kPointerMemoryType:
        *static_cast<unsigned *>(value) = static_cast<unsigned>(allocation->kind);
        return cudaSuccess;
    case kPointerDeviceOrdinal:
        *static_cast<int *>(value) = allocation->device;
        return cudaSuccess;
    // One byte: NCCL 2.24 asks with the address of a bool, later versions of a cleared int.
    case kPointerIsIpcCapable:
        *static_cast<bool *>(value) = shared_memory_of(address).has_value();
        return cudaSuccess;
    default:
        return cudaErrorNotSupported;
    }
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long,
                                    int *found) {
    *function = driver_function(name);
    if (*function == nullptr && settings().verbose)
        note(fmt::format("NCCL asked for {}: not found", name));
    if (found != nullptr)
        *found = *function != nullptr ? 0 : 1;
    return *function != nullptr || found != nullptr ? cudaSuccess : failed(cudaErrorNotSupported);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned,
                                             unsigned long long flags, int *found) {
    return cudaGetDriverEntryPoint(name, function, flags, found);
}

} // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
