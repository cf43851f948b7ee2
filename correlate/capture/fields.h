// SPDX-License-Identifier: Apache-2.0
// What is where in each record: the fields of collwire/records.h as data, so that a dump or a check
// can walk them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "correlate/capture/kinds.h"

namespace collwire::capture {

enum class FieldType : std::uint8_t {
    Unsigned,
    Signed,
    Text, // zero-filled
    Gid,  // 16 bytes
    Mac,  // 6 bytes, 2 more of padding
    Struct,
    Reserved,
};

struct Field {
    std::string_view name;
    std::uint32_t offset_bytes = 0; // in the struct that it belongs to
    std::uint32_t size_bytes = 0;   // of all elements together
    std::uint32_t count = 1;        // of elements, if it is an array of numbers or structs
    FieldType type = FieldType::Unsigned;
    // Name of the number, or, in an array, of the index.
    std::string_view (*name_of)(std::uint64_t) = nullptr;
    std::span<const NamedNumber> (*flag_names)() = nullptr;
    std::span<const Field> fields = {}; // of a Struct
    // Of an array: the unsigned field of the same struct that says how many elements are used.
    std::uint32_t used_offset_bytes = 0;
    std::uint32_t used_size_bytes = 0; // 0: all are

    [[nodiscard]] constexpr Field named(std::string_view (*function)(std::uint64_t)) const {
        Field copy = *this;
        copy.name_of = function;
        return copy;
    }
    [[nodiscard]] constexpr Field flags(std::span<const NamedNumber> (*function)()) const {
        Field copy = *this;
        copy.flag_names = function;
        return copy;
    }
    [[nodiscard]] constexpr Field used_by(const Field &number) const {
        Field copy = *this;
        copy.used_offset_bytes = number.offset_bytes;
        copy.used_size_bytes = number.size_bytes;
        return copy;
    }
    [[nodiscard]] constexpr Field as(FieldType other) const {
        Field copy = *this;
        copy.type = other;
        copy.count = 1;
        return copy;
    }
};

struct RecordLayout {
    std::string_view struct_name;
    std::uint32_t size_bytes = 0;
    std::span<const Field> fields; // behind the header, in order, without a gap
};

// Null for a kind that this program does not know. What is behind the struct (samples of
// counter_samples, order of nccl_channel) is not in it.
[[nodiscard]] const RecordLayout *layout_of(std::uint64_t kind);

} // namespace collwire::capture
