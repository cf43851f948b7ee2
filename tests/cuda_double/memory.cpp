// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

namespace collwire::cuda_double {
namespace {

constexpr std::size_t kPageBytes = 4096;
// An entry of /proc/self/pagemap (Linux, Documentation/admin-guide/mm/pagemap.rst).
using PageEntry = std::uint64_t;
constexpr PageEntry kPresent = PageEntry{1} << 63, kSwapped = PageEntry{1} << 62;

struct Allocations {
    std::mutex mutex;
    std::map<char *, Allocation> by_begin;
};

// Never destroyed: detached threads use it until the process ends.
Allocations &allocations() {
    static Allocations &kept = *new Allocations;
    return kept;
}

bool is_written(PageEntry entry) {
    return (entry & (kPresent | kSwapped)) != 0;
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
    allocations().by_begin[begin] = {begin, mapped_bytes, kind, device, true};
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
        .by_begin.emplace(key, Allocation{key, bytes, MemoryKind::Pinned, device, false})
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

void fill_with_zeros(void *begin, std::size_t bytes) {
    static const int pagemap = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    char *at = static_cast<char *>(begin), *const end = at + bytes;
    const auto allocation = allocation_of(begin);
    const bool is_own =
        allocation && end <= allocation->begin + allocation->bytes && allocation->is_mapped;
    while (at != end) {
        std::array<PageEntry, 512> entries;
        const auto page = reinterpret_cast<std::uintptr_t>(at) / kPageBytes;
        const std::size_t offset = reinterpret_cast<std::uintptr_t>(at) % kPageBytes;
        const std::size_t count =
            std::min(entries.size(),
                     (offset + static_cast<std::size_t>(end - at) + kPageBytes - 1) / kPageBytes);
        const auto size = static_cast<ssize_t>(count * sizeof(PageEntry));
        if (!is_own || ::pread(pagemap, entries.data(), static_cast<std::size_t>(size),
                               static_cast<off_t>(page * sizeof(PageEntry))) != size)
            entries.fill(kPresent);
        for (std::size_t i = 0; i < count; i++) {
            const std::size_t in_page =
                std::min(kPageBytes - (i == 0 ? offset : 0), static_cast<std::size_t>(end - at));
            if (is_written(entries[i]))
                std::memset(at, 0, in_page);
            at += in_page;
        }
    }
}

} // namespace collwire::cuda_double
