// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/scan_comms.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "collwire/nccl_layout.h"
#include "userspace/foreign/foreign.h"
#include "userspace/nccl/layout/bpf_layout.h"

namespace collwire::nccl {
namespace {

constexpr std::uint64_t PAGE_BYTES = 4096;
constexpr std::size_t PAGES_AT_ONCE = 1024;    // IOV_MAX
constexpr std::size_t BLOCK_PAGES = 256;       // 1 MiB
constexpr std::uint64_t CHUNK_HEAD_BYTES = 16; // of malloc's before what it returns
constexpr std::uint64_t PRESENT = 1ULL << 63U; // pagemap
constexpr std::size_t MAX_COMMS = 4096;
constexpr std::uint64_t MAX_SCANNED_BYTES = 8ULL << 30U;
// Larger mappings are reserved address space: asking which of their pages are present takes too
// long.
constexpr std::uint64_t MAX_MAPPING_BYTES = 64ULL << 30U;

class PageMap {
public:
    explicit PageMap(pid_t pid) : pid_(pid), path_("/proc/" + std::to_string(pid) + "/pagemap") {}
    // Of pages from this address on; unreadable pages are not present.
    void read(std::uint64_t address, std::span<std::uint64_t> entries) const {
        std::ranges::fill(entries, 0);
        const auto text = foreign::read_file(pid_, path_, entries.size_bytes(),
                                             address / PAGE_BYTES * sizeof(std::uint64_t));
        if (text)
            std::memcpy(entries.data(), text->data(), text->size());
    }

private:
    pid_t pid_;
    std::string path_;
};

// Which pages are present, and a word of each: some ms for a process of many GiB.
constexpr std::chrono::milliseconds MOST_FOR_CHUNKS{200};
// glibc: the least address of a thread's arena is a multiple of this, and it grows no larger.
constexpr std::uint64_t ARENA_BYTES = 64ULL << 20U;

bool is_own_memory(const process::Mapping &mapping) {
    return mapping.inode == 0 && mapping.writable && !mapping.executable &&
           mapping.end - mapping.begin <= MAX_MAPPING_BYTES;
}

// Where glibc's malloc puts objects that have no pages of their own. From the first large object
// that a program frees on, objects of that size are among them, too (M_MMAP_THRESHOLD).
bool is_heap(const process::Mapping &mapping) {
    return mapping.is_heap || (mapping.path.empty() && mapping.begin % ARENA_BYTES == 0 &&
                               mapping.end - mapping.begin <= ARENA_BYTES);
}

class CommScanner {
public:
    CommScanner(const process::ProcessView &process, std::uint32_t end_magic,
                std::chrono::steady_clock::time_point until)
        : process_(process), pages_(process.pid()), end_magic_(end_magic), until_(until) {}

    ScannedComms scan() {
        const auto heaps_until = until_;
        until_ = std::max(until_, std::chrono::steady_clock::now() + MOST_FOR_CHUNKS);
        for (const process::Mapping &mapping : process_.mappings())
            if (is_own_memory(mapping))
                look_at_chunks(mapping);
        until_ = heaps_until;
        for (const process::Mapping &mapping : process_.mappings())
            if (is_own_memory(mapping) && is_heap(mapping))
                look_at_all(mapping);
        // Another malloc.
        if (found_.addresses.empty())
            for (const process::Mapping &mapping : process_.mappings())
                if (is_own_memory(mapping) && !is_heap(mapping))
                    look_at_all(mapping);
        return std::move(found_);
    }

private:
    bool may_go_on(std::uint64_t bytes) {
        scanned_bytes_ += bytes;
        if (scanned_bytes_ <= MAX_SCANNED_BYTES && found_.addresses.size() < MAX_COMMS &&
            std::chrono::steady_clock::now() < until_)
            return true;
        found_.is_cut = true;
        return false;
    }

    void consider(std::uint64_t address) {
        if (process_.read<std::uint64_t>(address + end_magic_) == COMM_MAGIC &&
            std::ranges::find(found_.addresses, address) == found_.addresses.end())
            found_.addresses.push_back(address);
    }

    // Objects that malloc has mapped pages for.
    void look_at_chunks(const process::Mapping &mapping) {
        std::array<std::uint64_t, PAGES_AT_ONCE> entries{};
        for (std::uint64_t at = mapping.begin; at < mapping.end; at += PAGES_AT_ONCE * PAGE_BYTES) {
            const std::size_t n =
                std::min<std::size_t>(PAGES_AT_ONCE, (mapping.end - at) / PAGE_BYTES);
            if (!may_go_on(0))
                return;
            pages_.read(at, std::span{entries}.first(n));
            std::vector<std::uint64_t> places;
            for (std::size_t i = 0; i < n; ++i)
                if ((entries[i] & PRESENT) != 0)
                    places.push_back(at + i * PAGE_BYTES + CHUNK_HEAD_BYTES);
            std::vector<std::uint64_t> words(places.size());
            // The read stops at a page that was unmapped meanwhile.
            for (std::size_t first = 0; first < places.size();) {
                const std::size_t n_read = process_.read_words(std::span{places}.subspan(first),
                                                               std::span{words}.subspan(first));
                for (std::size_t i = first; i < first + n_read; ++i)
                    if (words[i] == COMM_MAGIC)
                        consider(places[i]);
                first += n_read + 1;
            }
        }
    }

    void look_at_all(const process::Mapping &mapping) {
        std::array<std::uint64_t, BLOCK_PAGES> entries{};
        std::vector<std::byte> block(BLOCK_PAGES * PAGE_BYTES);
        for (std::uint64_t at = mapping.begin; at < mapping.end; at += block.size()) {
            const std::size_t n =
                std::min<std::size_t>(BLOCK_PAGES, (mapping.end - at) / PAGE_BYTES);
            pages_.read(at, std::span{entries}.first(n));
            for (std::size_t i = 0; i < n;) {
                std::size_t end = i;
                while (end < n && (entries[end] & PRESENT) != 0)
                    ++end;
                const std::size_t bytes = (end - i) * PAGE_BYTES;
                if (bytes != 0) {
                    if (!may_go_on(bytes))
                        return;
                    const std::span part{block.data(), bytes};
                    if (process_.read(at + i * PAGE_BYTES, part))
                        search(at + i * PAGE_BYTES, part);
                }
                i = end + 1;
            }
        }
    }

    void search(std::uint64_t address, std::span<const std::byte> bytes) {
        for (std::size_t i = 0; i + sizeof(COMM_MAGIC) <= bytes.size(); i += sizeof(COMM_MAGIC)) {
            std::uint64_t word = 0;
            std::memcpy(&word, &bytes[i], sizeof(word));
            if (word == COMM_MAGIC)
                consider(address + i);
        }
    }

    const process::ProcessView &process_;
    PageMap pages_;
    std::uint32_t end_magic_;
    std::chrono::steady_clock::time_point until_;
    std::uint64_t scanned_bytes_ = 0;
    ScannedComms found_;
};

} // namespace

bool can_scan(const LibraryLayout &layout) {
    return field_offset(layout, "ncclComm.startMagic") == 0 &&
           field_offset(layout, "ncclComm.endMagic") != CW_NCCL_NO_FIELD;
}

ScannedComms scan_comms(const process::ProcessView &process, const LibraryLayout &layout,
                        std::chrono::steady_clock::time_point until) {
    if (!can_scan(layout))
        return {};
    return CommScanner{process, field_offset(layout, "ncclComm.endMagic"), until}.scan();
}

} // namespace collwire::nccl
