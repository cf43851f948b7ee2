// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/multicast.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

constexpr std::uint64_t kMagic = 0x74736163696c756d;
constexpr std::size_t kMostBindings = 256;

enum BindingState : std::uint32_t { kFree, kChanging, kBound };

} // namespace

struct MulticastTable {
    struct Binding {
        std::atomic<std::uint32_t> state{kFree};
        int place = 0; // of the device in the group
        std::size_t offset = 0;
        std::size_t bytes = 0;
        std::size_t memory_offset = 0;
        SharedMemory memory;
    };

    std::uint64_t magic = kMagic;
    std::size_t bytes = 0;
    unsigned devices = 0;
    std::atomic<unsigned> added{0};
    std::array<Binding, kMostBindings> bindings;
};

std::shared_ptr<Multicast> Multicast::create(std::size_t bytes, unsigned devices) {
    const int file = ::memfd_create("cuda_double_multicast", MFD_CLOEXEC);
    void *memory = MAP_FAILED;
    if (file >= 0 && ::ftruncate(file, sizeof(MulticastTable)) == 0)
        memory =
            ::mmap(nullptr, sizeof(MulticastTable), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        fatal(fmt::format("no file for a multicast object: {}. Fix: raise ulimit -n",
                          std::strerror(errno)));
    auto *table = new (memory) MulticastTable;
    table->bytes = bytes;
    table->devices = devices;
    return std::shared_ptr<Multicast>(new Multicast(file, table));
}

std::shared_ptr<Multicast> Multicast::open(int file) {
    struct stat status {};
    if (::fstat(file, &status) != 0 || status.st_size != sizeof(MulticastTable))
        return nullptr;
    void *memory =
        ::mmap(nullptr, sizeof(MulticastTable), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        return nullptr;
    auto *table = static_cast<MulticastTable *>(memory);
    const int own_file = table->magic == kMagic ? ::fcntl(file, F_DUPFD_CLOEXEC, 0) : -1;
    if (own_file < 0) {
        ::munmap(memory, sizeof(MulticastTable));
        return nullptr;
    }
    return std::shared_ptr<Multicast>(new Multicast(own_file, table));
}

Multicast::~Multicast() {
    for (const auto &[inode, begin] : imported_)
        release_imported(begin);
    ::munmap(table_, sizeof(MulticastTable));
    ::close(file_);
}

std::size_t Multicast::bytes() const {
    return table_->bytes;
}

bool Multicast::add_device(int device) {
    const std::lock_guard lock(mutex_);
    if (place_of_device_.count(device) != 0)
        return false;
    const unsigned place = table_->added.fetch_add(1);
    if (place >= table_->devices)
        return false;
    place_of_device_[device] = static_cast<int>(place);
    return true;
}

bool Multicast::bind(int device, std::size_t offset, const SharedMemory &memory,
                     std::size_t memory_offset, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto place = place_of_device_.find(device);
    if (place == place_of_device_.end() || bytes == 0 || offset + bytes > table_->bytes ||
        memory_offset + bytes > memory.bytes)
        return false;
    for (auto &binding : table_->bindings) {
        std::uint32_t expected = kFree;
        if (!binding.state.compare_exchange_strong(expected, kChanging))
            continue;
        binding.place = place->second;
        binding.offset = offset;
        binding.bytes = bytes;
        binding.memory_offset = memory_offset;
        binding.memory = memory;
        binding.state = kBound;
        return true;
    }
    fatal(fmt::format("a multicast object with more than {} bindings. Fix: raise kMostBindings",
                      kMostBindings));
}

bool Multicast::unbind(int device, std::size_t offset, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto place = place_of_device_.find(device);
    if (place == place_of_device_.end())
        return false;
    for (auto &binding : table_->bindings) {
        if (binding.state == kBound && binding.place == place->second && binding.offset == offset &&
            binding.bytes == bytes) {
            binding.state = kFree;
            return true;
        }
    }
    return false;
}

char *Multicast::import(const SharedMemory &memory, int place) {
    char *&begin = imported_[memory.inode];
    if (begin == nullptr)
        begin = static_cast<char *>(import_shared(memory, 0));
    if (begin == nullptr)
        fatal(fmt::format("device {} of a multicast group has bound memory of process {}, which is "
                          "gone. Fix: look at that process's output",
                          place, memory.process));
    return begin;
}

std::vector<char *> Multicast::addresses(std::size_t offset) {
    const std::lock_guard lock(mutex_);
    std::vector<std::pair<int, char *>> found;
    for (const auto &binding : table_->bindings) {
        if (binding.state == kBound && offset >= binding.offset &&
            offset < binding.offset + binding.bytes)
            found.emplace_back(binding.place, import(binding.memory, binding.place) +
                                                  binding.memory_offset + offset - binding.offset);
    }
    if (found.size() != table_->devices)
        fatal(fmt::format("a kernel uses a multicast address where {} of {} devices have bound "
                          "memory. Fix: report it, with NCCL_DEBUG=INFO",
                          found.size(), table_->devices));
    std::sort(found.begin(), found.end());
    std::vector<char *> all;
    all.reserve(found.size());
    for (const auto &[place, address] : found)
        all.push_back(address);
    return all;
}

} // namespace collwire::cuda_double
