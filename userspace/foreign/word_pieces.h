// SPDX-License-Identifier: Apache-2.0
// Many words of a process's memory in one call of the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <sys/types.h>
#include <sys/uio.h>

namespace collwire::foreign {

// Words of one page, in ascending order, are one piece: the kernel looks up the page for each
// piece, and fails for all of a page or for none.
class WordPieces {
public:
    // Puts the words in place of their addresses: at most IOV_MAX. Returns how many could be read,
    // from the first on. No value: none, and errno says why. It may wait for ever.
    [[nodiscard]] std::optional<std::size_t> read(pid_t pid, std::span<std::uint64_t> words);

private:
    void collect(std::span<const std::uint64_t> addresses);

    std::vector<iovec> pieces_;
    std::vector<std::size_t> ends_; // of each word, in bytes_
    std::vector<std::byte> bytes_;
};

} // namespace collwire::foreign
