// SPDX-License-Identifier: Apache-2.0
// Call frame information (.eh_frame), which strip leaves in every library: where the caller of a
// frame is on the stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace collwire::inspect {

// The frame at one instruction, x86-64. The return address is at CFA - 8.
struct FrameRule {
    bool is_from_rbp = false; // CFA is rbp + offset, else rsp + offset
    std::int64_t cfa_offset = 0;
    std::optional<std::int64_t> saved_rbp; // at CFA + this; nothing: rbp is still the caller's
};

// Reads all of `into` or returns false.
using ReadMemory = std::function<bool(std::uint64_t address, std::span<std::byte> into)>;

// The frames of one library in a process. LSB core, Exception Frames; DWARF 4, 6.4.
class FrameRules {
public:
    // `header`: the address where the first byte of the file is mapped.
    FrameRules(ReadMemory read, std::uint64_t header);

    // Nothing: no such information, or of an unknown form.
    [[nodiscard]] std::optional<FrameRule> at(std::uint64_t pc) const;

private:
    struct Entry {
        std::int32_t function, description; // relative to the table
    };
    [[nodiscard]] std::optional<std::vector<std::byte>> record_at(std::uint64_t address) const;

    ReadMemory read_;
    std::uint64_t table_ = 0; // .eh_frame_hdr
    std::vector<Entry> entries_;
};

// Pure: the rule at `pc` by a common and a frame description, without their length fields. `at`:
// the address of the frame description's first byte.
[[nodiscard]] std::optional<FrameRule> frame_rule(std::span<const std::byte> common,
                                                  std::span<const std::byte> frame,
                                                  std::uint64_t at, std::uint64_t pc);

} // namespace collwire::inspect
