// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/map_reader.h"

#include <algorithm>
#include <cerrno>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

namespace collwire::loader {
namespace {

constexpr std::uint32_t batch_entries = 512;
// A batch must hold the fullest bucket of the kernel's hash table: ENOSPC means too small.
constexpr std::uint32_t max_batch_entries = 65536;

} // namespace

MapReader::MapReader(int map_fd, std::size_t key_bytes, std::size_t value_bytes, bool per_cpu)
    : fd_(map_fd), key_bytes_(key_bytes), value_stride_((value_bytes + 7) / 8 * 8) {
    const int n_cpus = per_cpu ? std::max(1, libbpf_num_possible_cpus()) : 1;
    if (!per_cpu)
        value_stride_ = value_bytes;
    entry_bytes_ = value_stride_ * static_cast<std::size_t>(n_cpus);
}

bool MapReader::for_each(const Visit &visit) {
    return (batched_ && for_each_batched(visit)) || for_each_single(visit);
}

bool MapReader::for_each_batched(const Visit &visit) {
    std::uint32_t capacity = batch_entries;
    // The kernel stores its position, a bucket number, in the batch cursor.
    std::uint64_t cursor[8] = {};
    bool first = true;
    for (;;) {
        keys_.resize(key_bytes_ * capacity);
        values_.resize(entry_bytes_ * capacity);
        std::uint32_t count = capacity;
        const int failed = bpf_map_lookup_batch(fd_, first ? nullptr : cursor, cursor, keys_.data(),
                                                values_.data(), &count, nullptr);
        const int number = failed == 0 ? 0 : errno;
        if (number == ENOSPC && capacity < max_batch_entries) {
            capacity *= 2;
            continue;
        }
        if (number != 0 && number != ENOENT) {
            batched_ = !first;
            return false;
        }
        for (std::uint32_t i = 0; i < count; ++i)
            visit(std::span(keys_).subspan(i * key_bytes_, key_bytes_),
                  std::span(values_).subspan(i * entry_bytes_, entry_bytes_));
        if (number == ENOENT)
            return true;
        first = false;
    }
}

bool MapReader::for_each_single(const Visit &visit) {
    std::vector<std::vector<std::byte>> keys;
    std::vector<std::byte> next(key_bytes_);
    const void *previous = nullptr;
    while (bpf_map_get_next_key(fd_, previous, next.data()) == 0) {
        keys.push_back(next);
        previous = keys.back().data();
    }
    const bool complete = errno == ENOENT;
    values_.resize(entry_bytes_);
    for (const auto &key : keys)
        if (bpf_map_lookup_elem(fd_, key.data(), values_.data()) == 0)
            visit(key, std::span(values_).first(entry_bytes_));
    return complete;
}

} // namespace collwire::loader
