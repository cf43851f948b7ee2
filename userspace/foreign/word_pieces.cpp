// SPDX-License-Identifier: Apache-2.0
#include "userspace/foreign/word_pieces.h"

#include <algorithm>
#include <cstring>

namespace collwire::foreign {
namespace {

constexpr std::uint64_t PAGE_BYTES = 4096; // the least of any kernel
constexpr std::size_t WORD_BYTES = sizeof(std::uint64_t);

} // namespace

void WordPieces::collect(std::span<const std::uint64_t> addresses) {
    pieces_.clear();
    ends_.clear();
    std::size_t n_bytes = 0;
    std::uint64_t begin = 0; // of the last piece
    for (const std::uint64_t address : addresses) {
        const std::uint64_t end = address + WORD_BYTES;
        const bool is_near = !pieces_.empty() && address >= begin &&
                             address / PAGE_BYTES == begin / PAGE_BYTES &&
                             (end - 1) / PAGE_BYTES == begin / PAGE_BYTES;
        if (!is_near) {
            begin = address;
            // An address of another process. NOLINTNEXTLINE(performance-no-int-to-ptr)
            pieces_.push_back({reinterpret_cast<void *>(begin), 0});
        }
        std::size_t &length = pieces_.back().iov_len;
        n_bytes -= length;
        ends_.push_back(n_bytes + (end - begin));
        length = std::max<std::size_t>(length, end - begin);
        n_bytes += length;
    }
    bytes_.resize(n_bytes);
}

std::optional<std::size_t> WordPieces::read(pid_t pid, std::span<std::uint64_t> words) {
    collect(words);
    const iovec local{bytes_.data(), bytes_.size()};
    const ssize_t got = process_vm_readv(pid, &local, 1, pieces_.data(), pieces_.size(), 0);
    if (got < 0)
        return std::nullopt;
    std::size_t n_read = 0;
    for (; n_read < words.size() && ends_[n_read] <= static_cast<std::size_t>(got); ++n_read)
        std::memcpy(&words[n_read], bytes_.data() + ends_[n_read] - WORD_BYTES, WORD_BYTES);
    return n_read;
}

} // namespace collwire::foreign
