// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/virtual_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace collwire::cuda_double {
namespace {

struct Mapping {
    std::size_t bytes = 0;
    std::size_t offset = 0; // of the object
    MemoryObject object;
};

struct Handled {
    MemoryObject object;
    int references = 0;
};

struct VirtualMemory {
    std::mutex mutex;
    MemoryHandle last_handle = 0;
    std::map<MemoryHandle, Handled> handles;
    std::map<char *, std::size_t> reserved;
    std::map<char *, Mapping> mapped;
};

// Never destroyed: detached threads use it until the process ends.
VirtualMemory &virtual_memory() {
    static VirtualMemory &kept = *new VirtualMemory;
    return kept;
}

bool is_reserved(const VirtualMemory &all, char *begin, std::size_t bytes) {
    auto next = all.reserved.upper_bound(begin);
    if (next == all.reserved.begin())
        return false;
    --next;
    return begin + bytes <= next->first + next->second;
}

} // namespace

PhysicalMemory::~PhysicalMemory() {
    ::close(file_);
}

SharedMemory PhysicalMemory::shared() const {
    struct stat status {};
    ::fstat(file_, &status);
    return {::getpid(), file_, status.st_ino, bytes_};
}

MemoryHandle add_handle(const MemoryObject &object) {
    VirtualMemory &all = virtual_memory();
    const std::lock_guard lock(all.mutex);
    auto found = std::find_if(all.handles.begin(), all.handles.end(),
                              [&](const auto &known) { return known.second.object == object; });
    if (found == all.handles.end())
        found = all.handles.emplace(++all.last_handle, Handled{object}).first;
    found->second.references++;
    return found->first;
}

std::optional<MemoryObject> object_of(MemoryHandle handle) {
    VirtualMemory &all = virtual_memory();
    const std::lock_guard lock(all.mutex);
    const auto found = all.handles.find(handle);
    return found != all.handles.end() ? std::optional(found->second.object) : std::nullopt;
}

bool release_handle(MemoryHandle handle) {
    VirtualMemory &all = virtual_memory();
    const std::lock_guard lock(all.mutex);
    const auto found = all.handles.find(handle);
    if (found == all.handles.end())
        return false;
    if (--found->second.references == 0)
        all.handles.erase(found);
    return true;
}

std::shared_ptr<PhysicalMemory> create_memory(std::size_t bytes, int device) {
    return std::make_shared<PhysicalMemory>(make_shareable_file(bytes), bytes, device);
}

std::optional<MemoryObject> import_object(int file, int device) {
    if (auto multicast = Multicast::open(file))
        return MemoryObject{nullptr, std::move(multicast)};
    struct stat status {};
    const int own_file = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (own_file < 0)
        return std::nullopt;
    ::fstat(own_file, &status);
    return MemoryObject{std::make_shared<PhysicalMemory>(
                            own_file, static_cast<std::size_t>(status.st_size), device),
                        nullptr};
}

int export_object(const MemoryObject &object) {
    return ::fcntl(object.memory ? object.memory->file() : object.multicast->file(),
                   F_DUPFD_CLOEXEC, 0);
}

char *reserve_addresses(std::size_t bytes, std::size_t alignment) {
    void *memory = ::mmap(nullptr, bytes + alignment, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return nullptr;
    auto *all = static_cast<char *>(memory);
    const std::size_t past = alignment != 0 ? reinterpret_cast<std::uintptr_t>(all) % alignment : 0;
    const std::size_t before = past != 0 ? alignment - past : 0;
    if (before != 0)
        ::munmap(all, before);
    if (alignment != before)
        ::munmap(all + before + bytes, alignment - before);
    VirtualMemory &kept = virtual_memory();
    const std::lock_guard lock(kept.mutex);
    kept.reserved[all + before] = bytes;
    return all + before;
}

bool free_addresses(char *begin, std::size_t bytes) {
    VirtualMemory &all = virtual_memory();
    const std::lock_guard lock(all.mutex);
    const auto found = all.reserved.find(begin);
    if (found == all.reserved.end() || found->second != bytes)
        return false;
    all.reserved.erase(found);
    ::munmap(begin, bytes);
    return true;
}

bool map_object(char *begin, std::size_t bytes, std::size_t offset, const MemoryObject &object) {
    VirtualMemory &all = virtual_memory();
    const std::lock_guard lock(all.mutex);
    const std::size_t most = object.memory ? object.memory->bytes() : object.multicast->bytes();
    if (!is_reserved(all, begin, bytes) || all.mapped.count(begin) != 0 || offset + bytes > most)
        return false;
    if (object.memory) {
        if (::mmap(begin, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, object.memory->file(),
                   static_cast<off_t>(offset)) == MAP_FAILED)
            return false;
        add_virtual(begin, bytes, object.memory->device(),
                    offset == 0 ? object.memory->file() : -1);
    }
    all.mapped[begin] = {bytes, offset, object};
    return true;
}

bool unmap_object(char *begin, std::size_t bytes) {
    VirtualMemory &all = virtual_memory();
    Mapping removed; // destroyed without the lock
    const std::lock_guard lock(all.mutex);
    const auto found = all.mapped.find(begin);
    if (found == all.mapped.end() || found->second.bytes != bytes)
        return false;
    removed = std::move(found->second);
    all.mapped.erase(found);
    if (removed.object.memory)
        remove_virtual(begin);
    return ::mmap(begin, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                  -1, 0) != MAP_FAILED;
}

bool allow_access(char *begin, std::size_t bytes) {
    VirtualMemory &all = virtual_memory();
    const std::lock_guard lock(all.mutex);
    const auto found = all.mapped.find(begin);
    if (found == all.mapped.end() || bytes > found->second.bytes)
        return false;
    return !found->second.object.memory || ::mprotect(begin, bytes, PROT_READ | PROT_WRITE) == 0;
}

std::optional<MappedObject> mapped_at(const void *address) {
    VirtualMemory &all = virtual_memory();
    const std::lock_guard lock(all.mutex);
    auto *wanted = const_cast<char *>(static_cast<const char *>(address));
    auto next = all.mapped.upper_bound(wanted);
    if (next == all.mapped.begin())
        return std::nullopt;
    --next;
    const auto distance = static_cast<std::size_t>(wanted - next->first);
    if (distance >= next->second.bytes)
        return std::nullopt;
    return MappedObject{next->second.object, next->second.offset + distance};
}

std::vector<char *> multicast_addresses(const void *address) {
    const auto mapped = mapped_at(address);
    if (!mapped || !mapped->object.multicast)
        return {};
    return mapped->object.multicast->addresses(mapped->offset);
}

} // namespace collwire::cuda_double
