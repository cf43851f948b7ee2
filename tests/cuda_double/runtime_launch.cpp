// SPDX-License-Identifier: Apache-2.0
// Kernel launches, by the runtime and by the driver.
#include <cstring>
#include <utility>

#include "tests/cuda_double/kernel.h"
#include "tests/cuda_double/launched_kernel.h"
#include "tests/cuda_double/library.h"
#include "tests/cuda_double/runtime.h"

namespace collwire::cuda_double {
namespace {

struct Dimensions {
    unsigned x;
    unsigned y;
    unsigned z;
};

// cudaLaunchAttribute and CUlaunchAttribute
struct LaunchAttribute {
    int id;
    char padding[4];
    union {
        cudaEvent_t event; // of a launch completion event
        Dimensions cluster;
        char others[64];
    };
};
static_assert(sizeof(LaunchAttribute) == 72);

constexpr int kClusterDimension = 4;
constexpr int kLaunchCompletionEvent = 12;

// cudaLaunchConfig_t
struct RuntimeLaunch {
    Dimensions grid;
    Dimensions block;
    std::size_t shared_bytes;
    cudaStream_t stream;
    const LaunchAttribute *attributes;
    unsigned attribute_count;
};

// CUlaunchConfig
struct DriverLaunch {
    Dimensions grid;
    Dimensions block;
    unsigned shared_bytes;
    cudaStream_t stream;
    const LaunchAttribute *attributes;
    unsigned attribute_count;
};

// cudaFuncAttributes: byte offsets
constexpr std::size_t kFunctionAttributesBytes = 144;
constexpr std::size_t kMaxThreadsOffset = 24;
constexpr std::size_t kRegistersOffset = 28;
constexpr std::size_t kPtxVersionOffset = 32;
constexpr std::size_t kBinaryVersionOffset = 36;

// The `extra` array of the driver's launch functions.
constexpr std::uintptr_t kArgumentBuffer = 1;
constexpr std::uintptr_t kArgumentBufferBytes = 2;

std::string kernel_name_at(const void *function) {
    std::string name = library().function_name_at(function);
    // Parameters are of no use, but for the one whose template argument is in them.
    return name.find("oneRankReduce") != std::string::npos ? name : name.substr(0, name.find('('));
}

std::vector<char> gather_arguments(const std::string &kernel, void **parameters, void **extra) {
    std::vector<char> gathered;
    if (extra != nullptr) {
        const char *begin = nullptr;
        std::size_t bytes = 0;
        for (void **entry = extra; *entry != nullptr; entry += 2) {
            const auto kind = reinterpret_cast<std::uintptr_t>(entry[0]);
            if (kind == kArgumentBuffer)
                begin = static_cast<const char *>(entry[1]);
            else if (kind == kArgumentBufferBytes)
                bytes = *static_cast<const std::size_t *>(entry[1]);
        }
        gathered.assign(begin, begin + bytes);
        return gathered;
    }
    for (const std::size_t bytes : parameter_bytes(kernel)) {
        const auto *begin = static_cast<const char *>(*parameters++);
        gathered.insert(gathered.end(), begin, begin + bytes);
    }
    return gathered;
}

// As CUPTI will show it.
KernelLaunch description_of(const void *function, const Dimensions &grid, const Dimensions &block,
                            const Stream &stream) {
    KernelLaunch shown;
    shown.name = library().symbol_name_at(function);
    shown.is_nccl = true;
    shown.grid = {grid.x, grid.y, grid.z};
    shown.block = {block.x, block.y, block.z};
    if (const Graph *graph = stream.capture) {
        shown.graph = static_cast<std::uint32_t>(graph->id);
        shown.graph_node = graph->id << 32 | (graph->nodes.size() + 1);
    }
    return shown;
}

cudaError_t launch_kernel(const void *function, const Dimensions &grid, const Dimensions &block,
                          void **parameters, void **extra, cudaStream_t handle,
                          const LaunchAttribute *attributes = nullptr,
                          unsigned attribute_count = 0) {
    Stream &stream = stream_of(handle);
    KernelLaunch shown = description_of(function, grid, block, stream);
    Launch launch;
    launch.kernel = kernel_name_at(function);
    launch.arguments = gather_arguments(launch.kernel, parameters, extra);
    EventPointer started;
    for (unsigned i = 0; i < attribute_count; i++) {
        if (attributes[i].id == kLaunchCompletionEvent)
            started = event_of(attributes[i].event).state;
        else if (attributes[i].id == kClusterDimension)
            shown.cluster = {attributes[i].cluster.x, attributes[i].cluster.y,
                             attributes[i].cluster.z};
    }
    {
        const LaunchingCall call(stream);
        engine().submit(stream, [launch, shown, started] {
            return std::make_unique<LaunchedKernel>(make_kernel(launch), shown, started);
        });
    }
    if (stream.capture == nullptr)
        launch_other_kernels();
    return cudaSuccess;
}

} // namespace
} // namespace collwire::cuda_double

using namespace collwire::cuda_double;

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaFuncGetAttributes(void *attributes, const void *) {
    constexpr int kMaxThreads = 1024;
    constexpr int kRegisters = 64;
    constexpr int kVersion = 90;
    auto *bytes = static_cast<char *>(attributes);
    std::memset(bytes, 0, kFunctionAttributesBytes);
    std::memcpy(bytes + kMaxThreadsOffset, &kMaxThreads, sizeof kMaxThreads);
    std::memcpy(bytes + kRegistersOffset, &kRegisters, sizeof kRegisters);
    std::memcpy(bytes + kPtxVersionOffset, &kVersion, sizeof kVersion);
    std::memcpy(bytes + kBinaryVersionOffset, &kVersion, sizeof kVersion);
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *, int, int) {
    return cudaSuccess;
}

// A function's handle is the address of its stub on the host.
cudaError_t cudaGetFuncBySymbol(void **function, const void *symbol) {
    *function = const_cast<void *>(symbol);
    return cudaSuccess;
}

cudaError_t cudaGetKernel(void **kernel, const void *symbol) {
    return cudaGetFuncBySymbol(kernel, symbol);
}

cudaError_t cudaLaunchKernel(const void *function, Dimensions grid, Dimensions block,
                             void **parameters, std::size_t, cudaStream_t stream) {
    return launch_kernel(function, grid, block, parameters, nullptr, stream);
}

cudaError_t cudaLaunchKernelExC(const void *config, const void *function, void **parameters) {
    const auto &launch = *static_cast<const RuntimeLaunch *>(config);
    return launch_kernel(function, launch.grid, launch.block, parameters, nullptr, launch.stream,
                         launch.attributes, launch.attribute_count);
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                   cudaStream_t stream, void **parameters, void **extra) {
    return launch_kernel(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                         parameters, extra, stream);
}

int cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra) {
    const auto &launch = *static_cast<const DriverLaunch *>(config);
    return launch_kernel(function, launch.grid, launch.block, parameters, extra, launch.stream,
                         launch.attributes, launch.attribute_count);
}

} // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
