// SPDX-License-Identifier: Apache-2.0
// Builds the field tables and checks that they cover every byte. Only for the files with such
// tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "collwire/record.h"
#include "correlate/capture/fields.h"

namespace collwire::capture {

template <typename T>
constexpr Field make_field(std::string_view name, std::size_t offset_bytes,
                           std::span<const Field> fields = {}) {
    using Element = std::remove_all_extents_t<T>;
    Field field{.name = name,
                .offset_bytes = static_cast<std::uint32_t>(offset_bytes),
                .size_bytes = sizeof(T),
                // Both types are the same for a field that is not an array.
                .count = sizeof(T) / sizeof(Element), // NOLINT(bugprone-sizeof-expression)
                .fields = fields};
    if (std::is_class_v<Element>)
        field.type = FieldType::Struct;
    else if (std::is_same_v<Element, char>)
        return field.as(FieldType::Text);
    else if (std::is_signed_v<Element>)
        field.type = FieldType::Signed;
    return field;
}

#define FIELD(type, member) make_field<decltype(type::member)>(#member, offsetof(type, member))
#define STRUCT_FIELD(type, member, fields)                                                         \
    make_field<decltype(type::member)>(#member, offsetof(type, member), fields)

// Every byte after the header belongs to exactly one field, down to the innermost struct.
consteval bool covers(std::span<const Field> fields, std::size_t from, std::size_t size_bytes) {
    for (const Field &field : fields) {
        if (field.offset_bytes != from)
            return false;
        if (field.type == FieldType::Struct &&
            !covers(field.fields, 0, field.size_bytes / field.count))
            return false;
        from += field.size_bytes;
    }
    return from == size_bytes;
}

template <typename T, const auto &FIELDS> const RecordLayout *layout(std::string_view struct_name) {
    static_assert(covers(FIELDS, sizeof(cw_header), sizeof(T)));
    static const RecordLayout LAYOUT{struct_name, sizeof(T), FIELDS};
    return &LAYOUT;
}

// As layout_of, of the kinds from CW_KIND_NCCL_IMAGE on.
[[nodiscard]] const RecordLayout *nccl_layout_of(std::uint64_t kind);
// The same, of the kinds from CW_KIND_GPU_KERNEL on.
[[nodiscard]] const RecordLayout *gpu_layout_of(std::uint64_t kind);
// The same, of the kinds from CW_KIND_NVLINK_GPU on.
[[nodiscard]] const RecordLayout *nvlink_layout_of(std::uint64_t kind);

} // namespace collwire::capture
