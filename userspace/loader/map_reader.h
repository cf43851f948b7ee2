// SPDX-License-Identifier: Apache-2.0
// Reads whole BPF hash maps, many entries per system call if the kernel can (Linux 5.6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace collwire::loader {

class MapReader {
public:
    // Sizes as in the map's definition. A per-CPU map gives one value per possible CPU.
    MapReader(int map_fd, std::size_t key_bytes, std::size_t value_bytes, bool per_cpu);

    // Called with the key and the values (one, or one per CPU, value_stride() apart). Entries added
    // or removed meanwhile may be missing, and one may come twice.
    using Visit =
        std::function<void(std::span<const std::byte> key, std::span<const std::byte> values)>;
    // False: the kernel stopped in the middle, and entries are missing.
    [[nodiscard]] bool for_each(const Visit &visit);

    [[nodiscard]] std::size_t value_stride() const { return value_stride_; }

private:
    // False: the kernel has no batches for the map, or no memory for one.
    bool for_each_batched(const Visit &visit);
    bool for_each_single(const Visit &visit);
    int fd_;
    std::size_t key_bytes_;
    std::size_t value_stride_;
    std::size_t entry_bytes_; // all CPUs' values
    bool batched_ = true;
    std::vector<std::byte> keys_;
    std::vector<std::byte> values_;
};

} // namespace collwire::loader
