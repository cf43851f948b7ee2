// SPDX-License-Identifier: Apache-2.0
// A multicast object of an NVSwitch: behind each of its bytes is one byte of every device of its
// group. Which memory that is stands in a file without a name that the processes of a node share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/cuda_double/memory.h"

namespace collwire::cuda_double {

struct MulticastTable;

class Multicast {
public:
    static std::shared_ptr<Multicast> create(std::size_t bytes, unsigned devices);
    // Of another process's file, or of this one's. Null: it is of something else.
    static std::shared_ptr<Multicast> open(int file);
    ~Multicast();
    Multicast(const Multicast &) = delete;
    Multicast &operator=(const Multicast &) = delete;

    [[nodiscard]] std::size_t bytes() const;
    [[nodiscard]] int file() const { return file_; }

    // Of this process. False: CUDA would refuse it.
    bool add_device(int device);
    bool bind(int device, std::size_t offset, const SharedMemory &memory, std::size_t memory_offset,
              std::size_t bytes);
    bool unbind(int device, std::size_t offset, std::size_t bytes);

    // One for each device of the group. Fatal where one has bound no memory there.
    [[nodiscard]] std::vector<char *> addresses(std::size_t offset);

private:
    Multicast(int file, MulticastTable *table) : file_(file), table_(table) {}
    char *import(const SharedMemory &memory, int place);

    int file_;
    MulticastTable *table_;
    std::mutex mutex_;
    std::map<int, int> place_of_device_;       // of this object's user
    std::map<std::uint64_t, char *> imported_; // by inode
};

} // namespace collwire::cuda_double
