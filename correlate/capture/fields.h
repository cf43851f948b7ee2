// SPDX-License-Identifier: Apache-2.0
// The fields of every record of collwire/records.h as data, for dumps and checks.
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
    std::uint32_t offset_bytes = 0; // in its struct
    std::uint32_t size_bytes = 0;   // of all elements
    std::uint32_t count = 1;        // of elements, for an array of numbers or structs
    FieldType type = FieldType::Unsigned;
    // Name of the value; for an array, of the index.
    std::string_view (*name_of)(std::uint64_t) = nullptr;
    std::span<const NamedNumber> (*flag_names)() = nullptr;
    std::span<const Field> fields = {}; // of a Struct
    // For an array: the unsigned field of the same struct with the number of used elements.
    std::uint32_t used_offset_bytes = 0;
    std::uint32_t used_size_bytes = 0; // 0: all elements are used

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
    std::span<const Field> fields; // after the header, in order, without a gap
};

// Null for an unknown kind. Excludes what follows the struct (samples of counter_samples, order of
// nccl_channel).
[[nodiscard]] const RecordLayout *layout_of(std::uint64_t kind);

} // namespace collwire::capture
