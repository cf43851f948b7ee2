// SPDX-License-Identifier: Apache-2.0
// The loadable part of an ELF file: its code addresses and their file offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace collwire::elf {

struct ElfSegment {
    std::uint64_t address = 0;
    std::uint64_t file_offset = 0;
    std::uint64_t file_bytes = 0;
    std::uint64_t memory_bytes = 0;
    bool executable = false;
    bool writable = false;
};

// Addresses are those of the file, without load bias. Does not own the bytes.
class CodeView {
public:
    CodeView() = default;
    // The file part of every segment must lie inside `file`.
    CodeView(std::span<const std::byte> file, std::vector<ElfSegment> segments)
        : file_(file), segments_(std::move(segments)) {}

    [[nodiscard]] const std::vector<ElfSegment> &segments() const { return segments_; }
    [[nodiscard]] bool is_code(std::uint64_t address) const;
    [[nodiscard]] std::optional<std::uint64_t> file_offset(std::uint64_t address) const;
    [[nodiscard]] std::optional<std::uint64_t> address_of(std::uint64_t file_offset) const;
    // The file's bytes from `address` to the end of its segment's file part; empty if outside.
    [[nodiscard]] std::span<const std::byte> bytes_from(std::uint64_t address) const;

private:
    [[nodiscard]] const ElfSegment *segment_of(std::uint64_t address) const;

    std::span<const std::byte> file_;
    std::vector<ElfSegment> segments_;
};

} // namespace collwire::elf
