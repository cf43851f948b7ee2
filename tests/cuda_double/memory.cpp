// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kLeastCleared = 64 << 10; // bytes; fewer are written as zeros
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

bool remove_mapped(void *begin, bool is_imported) {
    std::unique_lock lock(allocations().mutex);
    const auto found = allocations().by_begin.find(static_cast<char *>(begin));
    if (found == allocations().by_begin.end() || found->second.is_imported != is_imported ||
        found->second.is_virtual)
        return false;
    const Allocation removed = found->second;
    allocations().by_begin.erase(found);
    lock.unlock();
    ::munmap(begin, removed.bytes);
    if (removed.file >= 0)
        ::close(removed.file);
    return true;
}

// The file's pages are given up. This process's page table does not show what a peer has written.
void clear_shareable(const Allocation &allocation, std::size_t offset, std::size_t bytes) {
    const std::size_t first = (offset + kPageBytes - 1) / kPageBytes * kPageBytes;
    const std::size_t end = (offset + bytes) / kPageBytes * kPageBytes;
    if (end < first + kLeastCleared ||
        ::fallocate(allocation.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(first), static_cast<off_t>(end - first)) != 0) {
        std::memset(allocation.begin + offset, 0, bytes);
        return;
    }
    std::memset(allocation.begin + offset, 0, first - offset);
    std::memset(allocation.begin + end, 0, offset + bytes - end);
}

} // namespace

int make_shareable_file(std::size_t bytes) {
    const int file = ::memfd_create("cuda_double", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0)
        fatal(fmt::format("no file for shareable device memory: {}. Fix: raise ulimit -n",
                          std::strerror(errno)));
    return file;
}

void *allocate(std::size_t bytes, MemoryKind kind, int device) {
    const std::size_t mapped_bytes =
        (std::max<std::size_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
    const bool is_shareable =
        kind == MemoryKind::Device && settings().peer_access != PeerAccess::None;
    const int file = is_shareable ? make_shareable_file(mapped_bytes) : -1;
    void *memory = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE,
                          is_shareable ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file, 0);
    if (memory == MAP_FAILED) {
        if (file >= 0)
            ::close(file);
        return nullptr;
    }
    auto *begin = static_cast<char *>(memory);
    const std::lock_guard lock(allocations().mutex);
    allocations().by_begin[begin] = {begin, mapped_bytes, kind, device, true, false, false, file};
    return begin;
}

bool release(void *begin) {
    return remove_mapped(begin, false);
}

std::optional<SharedMemory> shared_memory_of(const void *address) {
    const auto allocation = allocation_of(address);
    struct stat status {};
    if (!allocation || allocation->file < 0 || allocation->is_virtual ||
        ::fstat(allocation->file, &status) != 0)
        return std::nullopt;
    return SharedMemory{::getpid(), allocation->file, status.st_ino, allocation->bytes};
}

void *import_shared(const SharedMemory &shared, int device) {
    const std::string path = fmt::format("/proc/{}/fd/{}", shared.process, shared.file);
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0)
        return nullptr;
    struct stat status {};
    void *memory = MAP_FAILED;
    if (::fstat(file, &status) == 0 && status.st_ino == shared.inode &&
        static_cast<std::uint64_t>(status.st_size) == shared.bytes)
        memory = ::mmap(nullptr, shared.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (memory == MAP_FAILED)
        return nullptr;
    auto *begin = static_cast<char *>(memory);
    const std::lock_guard lock(allocations().mutex);
    allocations().by_begin[begin] = {
        begin, shared.bytes, MemoryKind::Device, device, true, true, false, -1};
    return begin;
}

bool release_imported(void *begin) {
    return remove_mapped(begin, true);
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

void add_virtual(void *begin, std::size_t bytes, int device, int file) {
    const std::lock_guard lock(allocations().mutex);
    auto *key = static_cast<char *>(begin);
    allocations().by_begin[key] = {key, bytes, MemoryKind::Device, device, true, false, true, file};
}

void remove_virtual(void *begin) {
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
    const bool is_whole = allocation && end <= allocation->begin + allocation->bytes;
    if (is_whole && allocation->file >= 0) {
        clear_shareable(*allocation, static_cast<std::size_t>(at - allocation->begin), bytes);
        return;
    }
    const bool is_own =
        is_whole && allocation->is_mapped && !allocation->is_imported && !allocation->is_virtual;
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
