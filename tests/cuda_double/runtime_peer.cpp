// SPDX-License-Identifier: Apache-2.0
// Another device's memory, and another process's.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "tests/cuda_double/memory.h"
#include "tests/cuda_double/runtime.h"
#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

// What the double writes into a cudaIpcMemHandle_t.
struct HandleContent {
    std::uint64_t magic = MAGIC;
    SharedMemory memory;

    static constexpr std::uint64_t MAGIC = 0x656c62756f644c57;
};

bool can_access(int device, int peer) {
    return device != peer && settings().peer_access != PeerAccess::None;
}

} // namespace
} // namespace collwire::cuda_double

using namespace collwire::cuda_double;

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
struct cudaIpcMemHandle_t {
    char reserved[64];
};
static_assert(sizeof(HandleContent) <= sizeof(cudaIpcMemHandle_t));

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    if (!is_device(device) || !is_device(peer))
        return failed(cudaErrorInvalidDevice);
    *can = can_access(device, peer) ? 1 : 0;
    return cudaSuccess;
}

// Memory of all devices of a process is accessible all the time: this only keeps CUDA's rules.
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    static std::mutex mutex;
    static std::set<std::pair<int, int>> enabled;
    const int device = current_device();
    if (!is_device(peer) || peer == device)
        return failed(cudaErrorInvalidDevice);
    if (!can_access(device, peer))
        return failed(cudaErrorPeerAccessUnsupported);
    const std::lock_guard lock(mutex);
    return enabled.emplace(device, peer).second ? cudaSuccess
                                                : failed(cudaErrorPeerAccessAlreadyEnabled);
}

// Of the whole allocation, wherever in it the address is.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *address) {
    const auto shared = shared_memory_of(address);
    if (!shared)
        return failed(settings().peer_access == PeerAccess::None ? cudaErrorNotSupported
                                                                 : cudaErrorInvalidValue);
    HandleContent content;
    content.memory = *shared;
    *handle = {};
    std::memcpy(handle, &content, sizeof content);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **address, cudaIpcMemHandle_t handle, unsigned) {
    HandleContent content;
    std::memcpy(static_cast<void *>(&content), &handle, sizeof content);
    if (content.magic != HandleContent::MAGIC)
        return failed(cudaErrorInvalidResourceHandle);
    if (content.memory.process == ::getpid())
        return failed(cudaErrorDeviceUninitialized);
    *address = import_shared(content.memory, current_device());
    if (*address == nullptr) {
        note(fmt::format("device memory of process {} cannot be mapped: it was freed, or the "
                         "process has ended or is another user's",
                         content.memory.process));
        return failed(cudaErrorMapBufferObjectFailed);
    }
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *address) {
    return release_imported(address) ? cudaSuccess : failed(cudaErrorInvalidValue);
}

} // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
