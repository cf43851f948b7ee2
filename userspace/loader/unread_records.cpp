// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/unread_records.h"

#include <atomic>
#include <cstddef>
#include <cstring>

#include <bpf/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

namespace collwire::loader {
namespace {

class ReadOnlyPages {
public:
    ReadOnlyPages(int fd, std::size_t offset_bytes, std::size_t size_bytes)
        : size_bytes_(size_bytes), at_(mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd,
                                            static_cast<off_t>(offset_bytes))) {}
    ReadOnlyPages(const ReadOnlyPages &) = delete;
    ReadOnlyPages &operator=(const ReadOnlyPages &) = delete;
    ~ReadOnlyPages() {
        if (is_there())
            munmap(at_, size_bytes_);
    }
    [[nodiscard]] bool is_there() const { return at_ != MAP_FAILED; }
    [[nodiscard]] std::uint64_t position() const {
        return std::atomic_ref(*static_cast<std::uint64_t *>(at_)).load(std::memory_order_acquire);
    }
    [[nodiscard]] const std::byte *at(std::size_t offset_bytes) const {
        return static_cast<const std::byte *>(at_) + offset_bytes;
    }

private:
    std::size_t size_bytes_;
    void *at_;
};

} // namespace

std::optional<std::uint64_t> unread_records(int ring_map_fd) {
    bpf_map_info info = {};
    std::uint32_t info_bytes = sizeof(info);
    if (bpf_obj_get_info_by_fd(ring_map_fd, &info, &info_bytes) != 0)
        return std::nullopt;
    const std::size_t ring_bytes = info.max_entries;
    const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const ReadOnlyPages consumer(ring_map_fd, 0, page_bytes);
    const ReadOnlyPages producer(ring_map_fd, page_bytes, page_bytes + ring_bytes);
    if (!consumer.is_there() || !producer.is_there())
        return std::nullopt;
    return records_between(consumer.position(), producer.position(),
                           {producer.at(page_bytes), ring_bytes});
}

std::uint64_t records_between(std::uint64_t consumer, std::uint64_t producer,
                              std::span<const std::byte> ring) {
    std::uint64_t records = 0;
    for (std::uint64_t at = consumer; at < producer;) {
        std::uint32_t header = 0; // never beyond the end: all start at a multiple of 8
        std::memcpy(&header, &ring[at % ring.size()], sizeof(header));
        const std::uint32_t length_bytes =
            header & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
        if ((header & BPF_RINGBUF_DISCARD_BIT) == 0)
            ++records;
        at += (length_bytes + BPF_RINGBUF_HDR_SZ + 7) / 8 * 8;
    }
    return records;
}

} // namespace collwire::loader
