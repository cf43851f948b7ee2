// SPDX-License-Identifier: Apache-2.0
// Devices: as many as COLLWIRE_CUDA_DEVICES says, each like an H100.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "tests/cuda_double/injection.h"
#include "tests/cuda_double/runtime.h"
#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

constexpr std::size_t kMemoryBytes = std::size_t{80} << 30;
constexpr int kMultiprocessors = 132;
constexpr int kComputeMajor = 9;

thread_local cudaError_t last_error = cudaSuccess;

// cudaDeviceAttr and CUdevice_attribute have the same numbers.
enum Attribute {
    kMaxThreadsPerBlock = 1,
    kMaxBlockDimX = 2,
    kMaxBlockDimY = 3,
    kMaxBlockDimZ = 4,
    kMaxGridDimX = 5,
    kMaxGridDimY = 6,
    kMaxGridDimZ = 7,
    kMaxSharedMemoryPerBlock = 8,
    kWarpSize = 10,
    kMaxRegistersPerBlock = 12,
    kClockRateKhz = 13,
    kMultiProcessorCount = 16,
    kConcurrentKernels = 31,
    kPciBusId = 33,
    kMemoryClockKhz = 36,
    kMemoryBusBits = 37,
    kL2CacheBytes = 38,
    kMaxThreadsPerMultiProcessor = 39,
    kUnifiedAddressing = 41,
    kComputeCapabilityMajor = 75,
    kMaxSharedMemoryPerMultiprocessor = 81,
    kMaxRegistersPerMultiprocessor = 82,
    kCooperativeLaunch = 95,
    kMaxSharedMemoryPerBlockOptin = 97,
    kMaxBlocksPerMultiprocessor = 106,
    kVirtualMemoryManagement = 102,
    kPosixFileHandles = 103,
    kReservedSharedMemoryPerBlock = 111,
    kGpuDirectRdma = 116,
    kMulticast = 132,
};

// Byte offsets in cudaDeviceProp of CUDA 12.
constexpr std::size_t kPropertiesBytes = 1032;
constexpr std::size_t kUuidOffset = 256;
constexpr std::size_t kTotalMemoryOffset = 288;
constexpr std::size_t kMajorOffset = 360;
constexpr std::size_t kMultiprocessorsOffset = 388;

template <class T> void put(char *structure, std::size_t offset_bytes, T value) {
    std::memcpy(structure + offset_bytes, &value, sizeof value);
}

} // namespace

bool is_device(int device) {
    return device >= 0 && device < settings().devices;
}

int &current_device() {
    initialise_cuda();
    static thread_local int device = 0;
    return device;
}

cudaError_t failed(cudaError_t error) {
    last_error = error;
    return error;
}

// What the list lacks the device does not have.
int device_attribute(int attribute, int device) {
    switch (attribute) {
    case kMaxThreadsPerBlock:
    case kMaxBlockDimX:
    case kMaxBlockDimY:
    case kReservedSharedMemoryPerBlock:
        return 1024;
    case kMaxBlockDimZ:
        return 64;
    case kMaxGridDimX:
        return 0x7fffffff;
    case kMaxGridDimY:
    case kMaxGridDimZ:
        return 65535;
    case kMaxSharedMemoryPerBlock:
        return 48 << 10;
    case kWarpSize:
    case kMaxBlocksPerMultiprocessor:
        return 32;
    case kMaxRegistersPerBlock:
    case kMaxRegistersPerMultiprocessor:
        return 64 << 10;
    case kClockRateKhz:
        return 1'980'000;
    case kMultiProcessorCount:
        return kMultiprocessors;
    case kConcurrentKernels:
    case kUnifiedAddressing:
    case kCooperativeLaunch:
        return 1;
    case kPciBusId:
        return static_cast<int>(settings().first_bus) + device;
    case kMemoryClockKhz:
        return 2'619'000;
    case kMemoryBusBits:
        return 5120;
    case kL2CacheBytes:
        return 50 << 20;
    case kMaxThreadsPerMultiProcessor:
        return 2048;
    case kComputeCapabilityMajor:
        return kComputeMajor;
    case kVirtualMemoryManagement:
    case kPosixFileHandles:
    case kMulticast:
        return settings().has_multicast ? 1 : 0;
    case kGpuDirectRdma:
        return settings().has_gpu_direct ? 1 : 0;
    case kMaxSharedMemoryPerMultiprocessor:
        return 228 << 10;
    case kMaxSharedMemoryPerBlockOptin:
        return 227 << 10;
    default:
        return 0;
    }
}

} // namespace collwire::cuda_double

using namespace collwire::cuda_double;

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaGetDeviceCount(int *count) {
    initialise_cuda();
    *count = settings().devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (!is_device(device))
        return failed(cudaErrorInvalidDevice);
    current_device() = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = current_device();
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = settings().driver_version;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = settings().runtime_version;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device) {
    const unsigned bus = settings().first_bus + static_cast<unsigned>(device);
    std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02x:00.0", bus);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
    initialise_cuda();
    if (!is_device(device))
        return failed(cudaErrorInvalidDevice);
    *value = device_attribute(attribute, device);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties_v2(void *properties, int device) {
    initialise_cuda();
    auto *bytes = static_cast<char *>(properties);
    std::memset(bytes, 0, kPropertiesBytes);
    std::strcpy(bytes, "cuda_double");
    put(bytes, kUuidOffset, static_cast<char>(device + 1));
    put(bytes, kTotalMemoryOffset, kMemoryBytes);
    put(bytes, kMajorOffset, kComputeMajor);
    put(bytes, kMultiprocessorsOffset, kMultiprocessors);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(void *properties, int device) {
    return cudaGetDeviceProperties_v2(properties, device);
}

cudaError_t cudaDeviceSetLimit(int, std::size_t) {
    return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(std::size_t *value, int) {
    *value = 1024;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t *free_bytes, std::size_t *total_bytes) {
    *free_bytes = kMemoryBytes / 8 * 7;
    *total_bytes = kMemoryBytes;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
    engine().wait_until_all_idle();
    return cudaSuccess;
}

cudaError_t cudaGetLastError() {
    return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
    return last_error;
}

const char *cudaGetErrorString(cudaError_t error) {
    static thread_local std::string text;
    text = error == cudaSuccess ? "no error" : fmt::format("cuda_double: error {}", error);
    return text.c_str();
}

const char *cudaGetErrorName(cudaError_t error) {
    return cudaGetErrorString(error);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode) {
    static thread_local int current = cudaStreamCaptureModeGlobal;
    std::swap(current, *mode);
    return cudaSuccess;
}

cudaError_t cudaProfilerStart() {
    return cudaSuccess;
}

cudaError_t cudaProfilerStop() {
    return cudaSuccess;
}

} // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
