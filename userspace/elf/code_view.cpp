// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/code_view.h"

namespace collwire::elf {

const ElfSegment *CodeView::segment_of(std::uint64_t address) const {
    for (const ElfSegment &segment : segments_)
        if (address >= segment.address && address - segment.address < segment.file_bytes)
            return &segment;
    return nullptr;
}

bool CodeView::is_code(std::uint64_t address) const {
    const ElfSegment *segment = segment_of(address);
    return segment != nullptr && segment->executable;
}

std::optional<std::uint64_t> CodeView::file_offset(std::uint64_t address) const {
    const ElfSegment *segment = segment_of(address);
    if (segment == nullptr)
        return std::nullopt;
    return segment->file_offset + (address - segment->address);
}

std::optional<std::uint64_t> CodeView::address_of(std::uint64_t file_offset) const {
    for (const ElfSegment &segment : segments_)
        if (file_offset >= segment.file_offset &&
            file_offset - segment.file_offset < segment.file_bytes)
            return segment.address + (file_offset - segment.file_offset);
    return std::nullopt;
}

std::span<const std::byte> CodeView::bytes_from(std::uint64_t address) const {
    const ElfSegment *segment = segment_of(address);
    if (segment == nullptr)
        return {};
    const std::uint64_t skip = address - segment->address;
    return file_.subspan(segment->file_offset + skip, segment->file_bytes - skip);
}

} // namespace collwire::elf
