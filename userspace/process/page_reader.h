// SPDX-License-Identifier: Apache-2.0
// Small values of another process, read a page at a time: each read of foreign memory costs a
// request (docs/foreign.md), and the fields of a structure are next to each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "userspace/process/process_view.h"

namespace collwire::process {

class PageReader {
public:
    // Keeps at most that many pages of 4 KiB.
    explicit PageReader(const ProcessView &process, std::size_t max_pages = 8)
        : process_(process), max_pages_(max_pages) {}

    // All of `into`, or nothing. What was read since forget() may be as old as that.
    [[nodiscard]] bool read(std::uint64_t address, std::span<std::byte> into);
    template <typename T> [[nodiscard]] std::optional<T> read(std::uint64_t address) {
        T value;
        if (!read(address, std::as_writable_bytes(std::span{&value, 1})))
            return std::nullopt;
        return value;
    }
    void forget();

private:
    static constexpr std::size_t PAGE_BYTES = 4096;
    struct Page {
        std::uint64_t address = 0;
        bool is_there = false; // else it cannot be read
        std::array<std::byte, PAGE_BYTES> bytes{};
    };
    [[nodiscard]] const Page &page_at(std::uint64_t address);

    const ProcessView &process_;
    std::size_t max_pages_;
    std::vector<Page> pages_;
    std::size_t oldest_ = 0; // of pages_, once they are all in use
    std::unordered_map<std::uint64_t, std::size_t> index_;
};

} // namespace collwire::process
