// SPDX-License-Identifier: Apache-2.0
// Memory, copies and fills.
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda_double/host_communicator.h"
#include "tests/cuda_double/kernel_feed.h"
#include "tests/cuda_double/memory.h"
#include "tests/cuda_double/runtime.h"

namespace collwire::cuda_double {
namespace {

using Bytes = std::vector<char>;

class Copy : public WorkItem {
public:
    Copy(void *to, const void *from, std::size_t bytes, std::shared_ptr<const Bytes> staged)
        : to_(to), from_(from), bytes_(bytes), staged_(std::move(staged)) {}

    bool advance(bool &) override {
        std::memmove(to_, staged_ ? staged_->data() : from_, bytes_);
        return true;
    }
    [[nodiscard]] std::string state() const override { return "a copy"; }

private:
    void *to_;
    const void *from_;
    std::size_t bytes_;
    std::shared_ptr<const Bytes> staged_;
};

class Fill : public WorkItem {
public:
    Fill(void *to, int value, std::size_t bytes) : to_(to), value_(value), bytes_(bytes) {}

    bool advance(bool &) override {
        if (value_ == 0)
            fill_with_zeros(to_, bytes_);
        else
            std::memset(to_, value_, bytes_);
        return true;
    }
    [[nodiscard]] std::string state() const override { return "a fill"; }

private:
    void *to_;
    int value_;
    std::size_t bytes_;
};

// cudaPointerAttributes
struct PointerAttributes {
    int kind;
    int device;
    void *device_pointer;
    void *host_pointer;
};

void release_later(void *address) {
    release(address);
}

} // namespace
} // namespace collwire::cuda_double

using namespace collwire::cuda_double;

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaMalloc(void **address, std::size_t bytes) {
    *address = allocate(bytes, MemoryKind::Device, current_device());
    return *address != nullptr ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *address) {
    return address == nullptr || release(address) ? cudaSuccess : failed(cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void **address, std::size_t bytes, unsigned) {
    *address = allocate(bytes, MemoryKind::Pinned, current_device());
    handle_written(address, *address);
    return *address != nullptr ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void **address, std::size_t bytes) {
    return cudaHostAlloc(address, bytes, 0);
}

cudaError_t cudaFreeHost(void *address) {
    handle_released(address);
    return cudaFree(address);
}

cudaError_t cudaHostRegister(void *address, std::size_t bytes, unsigned) {
    return add_pinned(address, bytes, current_device())
               ? cudaSuccess
               : failed(cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void *address) {
    remove_pinned(address);
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned) {
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(void *attributes, const void *pointer) {
    void *address = const_cast<void *>(pointer);
    PointerAttributes found{0, -1, nullptr, address};
    if (const auto allocation = allocation_of(pointer)) {
        const bool pinned = allocation->kind == MemoryKind::Pinned;
        found = {static_cast<int>(allocation->kind), allocation->device, address,
                 pinned ? address : nullptr};
    }
    std::memcpy(attributes, &found, sizeof found);
    return cudaSuccess;
}

// Pools have no state here: memory comes from the process and goes back to it.
cudaError_t cudaMemPoolCreate(void **pool, const void *) {
    *pool = std::calloc(1, 1);
    handle_written(pool, *pool);
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(void *pool) {
    handle_released(pool);
    std::free(pool);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(void *, int, void *) {
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(void *, std::size_t) {
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **address, std::size_t bytes, cudaStream_t) {
    return cudaMalloc(address, bytes);
}

cudaError_t cudaMallocFromPoolAsync(void **address, std::size_t bytes, void *, cudaStream_t) {
    return cudaMalloc(address, bytes);
}

cudaError_t cudaFreeAsync(void *address, cudaStream_t stream) {
    return cudaLaunchHostFunc(stream, release_later, address);
}

// As on a GPU: pageable source memory is staged before the call returns, and a copy to pageable
// memory is done when it returns. NCCL passes addresses of local variables both ways.
cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t bytes, int,
                            cudaStream_t handle) {
    next_correlation();
    std::shared_ptr<const Bytes> staged;
    if (!allocation_of(from)) {
        const auto *begin = static_cast<const char *>(from);
        staged = std::make_shared<const Bytes>(begin, begin + bytes);
    }
    Stream &stream = stream_of(handle);
    engine().submit(stream, [=] { return std::make_unique<Copy>(to, from, bytes, staged); });
    if (stream.capture == nullptr && !allocation_of(to))
        engine().wait_until_idle(stream);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, std::size_t bytes, cudaStream_t handle) {
    engine().submit(stream_of(handle), [=] { return std::make_unique<Fill>(to, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, std::size_t bytes, int kind) {
    cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemset(void *to, int value, std::size_t bytes) {
    cudaMemsetAsync(to, value, bytes, nullptr);
    return cudaStreamSynchronize(nullptr);
}

} // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
