// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/frame_functions.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace collwire::elf {
namespace {

// .eh_frame_hdr: a version, three encodings, the address of the frames, the number of entries, and
// the entries: the start of a function and its frame, both relative to the table's start.
constexpr std::array<std::byte, 4> HEAD{std::byte{1}, std::byte{0x1b}, std::byte{0x03},
                                        std::byte{0x3b}};
constexpr std::size_t COUNT_AT = 8;
constexpr std::size_t ENTRIES_AT = 12;
constexpr std::size_t ENTRY_BYTES = 8;
// A frame: its length, the distance to what it has in common with others, the start of its
// function, relative to this field, and the number of its bytes.
constexpr std::size_t START_AT = 8;
constexpr std::size_t BYTES_AT = 12;
constexpr std::size_t FRAME_HEAD_BYTES = 16;

constexpr std::uint64_t MOST_CODE_BYTES = 16UL << 20; // NCCL 2.32 has 2 MiB

template <typename T> T read_at(std::span<const std::byte> bytes, std::size_t at) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

std::uint64_t signed_at(std::span<const std::byte> bytes, std::size_t at) {
    return static_cast<std::uint64_t>(std::int64_t{read_at<std::int32_t>(bytes, at)});
}

// Of the frame at this address. Empty if the frame is of another function.
std::optional<CodeRange> range_of(const CodeView &code, std::uint64_t frame, std::uint64_t start) {
    const auto bytes = code.bytes_from(frame);
    if (bytes.size() < FRAME_HEAD_BYTES || frame + START_AT + signed_at(bytes, START_AT) != start)
        return std::nullopt;
    const CodeRange range{start, read_at<std::uint32_t>(bytes, BYTES_AT)};
    const auto content = code.bytes_from(start);
    return code.is_code(start) && range.bytes <= content.size() ? std::optional{range}
                                                                : std::nullopt;
}

} // namespace

std::vector<CodeRange> frame_functions(const CodeView &code, std::uint64_t table) {
    const auto bytes = code.bytes_from(table);
    if (table == 0 || bytes.size() < ENTRIES_AT ||
        !std::ranges::equal(bytes.first(HEAD.size()), HEAD))
        return {};
    const std::size_t n = read_at<std::uint32_t>(bytes, COUNT_AT);
    if (n > (bytes.size() - ENTRIES_AT) / ENTRY_BYTES)
        return {};
    std::vector<CodeRange> functions;
    std::uint64_t n_bytes = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t at = ENTRIES_AT + i * ENTRY_BYTES;
        const auto range = range_of(code, table + signed_at(bytes, at + ENTRY_BYTES / 2),
                                    table + signed_at(bytes, at));
        if (!range || (n_bytes += range->bytes) > MOST_CODE_BYTES)
            return {};
        if (range->bytes != 0)
            functions.push_back(*range);
    }
    std::ranges::sort(functions, {}, &CodeRange::begin);
    const auto overlap = std::ranges::adjacent_find(
        functions, [](const auto &a, const auto &b) { return b.begin - a.begin < a.bytes; });
    return overlap == functions.end() ? functions : std::vector<CodeRange>{};
}

} // namespace collwire::elf
