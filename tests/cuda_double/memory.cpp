// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace collwire::cuda_double {
namespace {

constexpr std::size_t kPageBytes = 4096;

struct Allocations {
    std::mutex mutex;
    std::map<char *, Allocation> by_begin;
};

// Never destroyed: detached threads use it until the process ends.
Allocations &allocations() {
    static Allocations &kept = *new Allocations;
    return kept;
}

} // namespace

void *allocate(std::size_t bytes, MemoryKind kind, int device) {
    const std::size_t mapped_bytes =
        (std::max<std::size_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
    void *memory =
        ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return nullptr;
    auto *begin = static_cast<char *>(memory);
    const std::lock_guard lock(allocations().mutex);
    allocations().by_begin[begin] = {begin, mapped_bytes, kind, device};
    return begin;
}

bool release(void *begin) {
    std::unique_lock lock(allocations().mutex);
    const auto found = allocations().by_begin.find(static_cast<char *>(begin));
    if (found == allocations().by_begin.end())
        return false;
    const std::size_t bytes = found->second.bytes;
    allocations().by_begin.erase(found);
    lock.unlock();
    ::munmap(begin, bytes);
    return true;
}

bool add_pinned(void *begin, std::size_t bytes, int device) {
    const std::lock_guard lock(allocations().mutex);
    auto *key = static_cast<char *>(begin);
    return allocations()
        .by_begin.emplace(key, Allocation{key, bytes, MemoryKind::Pinned, device})
        .second;
}

void remove_pinned(void *begin) {
    const std::lock_guard lock(allocations().mutex);
    allocations().by_begin.erase(static_cast<char *>(begin));
}

std::optional<Allocation> allocation_of(const void *address) {
    const std::lock_guard lock(allocations().mutex);
    auto *wanted = const_cast<char *>(static_cast<const char *>(address));
    auto next = allocations().by_begin.upper_bound(wanted);
    if (next == allocations().by_begin.begin())
        return std::nullopt;
    const Allocation &allocation = (--next)->second;
    if (wanted >= allocation.begin + allocation.bytes)
        return std::nullopt;
    return allocation;
}

} // namespace collwire::cuda_double
