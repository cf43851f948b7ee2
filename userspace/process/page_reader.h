// SPDX-License-Identifier: Apache-2.0
// Small values of another process, read a page at a time: each read of foreign memory costs a
// request (docs/foreign.md), and the fields of a structure are next to each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "userspace/process/process_view.h"

namespace collwire::process {

class PageReader {
public:
    explicit PageReader(const ProcessView &process) : process_(process) {}

    // All of `into`, or nothing. What was read since forget() may be as old as that.
    [[nodiscard]] bool read(std::uint64_t address, std::span<std::byte> into);
    template <typename T> [[nodiscard]] std::optional<T> read(std::uint64_t address) {
        T value;
        if (!read(address, std::as_writable_bytes(std::span{&value, 1})))
            return std::nullopt;
        return value;
    }
    void forget() { n_ = 0; }

private:
    static constexpr std::size_t PAGE_BYTES = 4096;
    static constexpr std::size_t MAX_PAGES = 8;
    struct Page {
        std::uint64_t address = 0;
        std::array<std::byte, PAGE_BYTES> bytes{};
    };
    [[nodiscard]] const Page *page_at(std::uint64_t address);

    const ProcessView &process_;
    std::array<Page, MAX_PAGES> pages_{};
    std::size_t n_ = 0; // so many were read since forget(); the last MAX_PAGES are kept
};

} // namespace collwire::process
