// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/usdt_sites.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <elf.h>
#include <fmt/format.h>

namespace collwire::elf {
namespace {

constexpr std::uint32_t STAPSDT_TYPE = 3;
constexpr std::size_t MAX_SECTIONS = 4096;
constexpr std::size_t NOTE_ALIGNMENT = 4;

Error bad(std::string_view what) {
    return error(ErrorKind::BadInput, fmt::format("no usable probe notes: {}", what));
}

template <typename T> std::optional<T> read_at(std::span<const std::byte> bytes, std::size_t at) {
    if (at > bytes.size() || bytes.size() - at < sizeof(T))
        return std::nullopt;
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

std::string_view text_at(std::span<const std::byte> bytes, std::size_t at) {
    if (at >= bytes.size())
        return {};
    const auto *begin = reinterpret_cast<const char *>(bytes.data()) + at;
    return {begin, strnlen(begin, bytes.size() - at)};
}

struct Section {
    std::string_view name;
    std::uint64_t address = 0;
    std::span<const std::byte> bytes; // empty if it has none in the file
};

Result<std::vector<Section>> sections_of(std::span<const std::byte> file) {
    const auto header = read_at<Elf64_Ehdr>(file, 0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB)
        return bad("not a 64-bit little-endian ELF file");
    if (header->e_shnum > MAX_SECTIONS || header->e_shentsize != sizeof(Elf64_Shdr))
        return bad("section headers");
    std::vector<Elf64_Shdr> headers;
    for (std::size_t i = 0; i < header->e_shnum; ++i) {
        const auto section =
            header->e_shoff > file.size()
                ? std::nullopt
                : read_at<Elf64_Shdr>(file, header->e_shoff + i * sizeof(Elf64_Shdr));
        if (!section)
            return bad("section headers beyond the end of the file (truncated?)");
        headers.push_back(*section);
    }
    const auto bytes_of = [file](const Elf64_Shdr &section) -> std::span<const std::byte> {
        if (section.sh_type == SHT_NOBITS || section.sh_offset > file.size() ||
            section.sh_size > file.size() - section.sh_offset)
            return {};
        return file.subspan(section.sh_offset, section.sh_size);
    };
    std::span<const std::byte> names;
    if (header->e_shstrndx < headers.size())
        names = bytes_of(headers[header->e_shstrndx]);
    std::vector<Section> sections;
    sections.reserve(headers.size());
    for (const Elf64_Shdr &section : headers)
        sections.push_back({text_at(names, section.sh_name), section.sh_addr, bytes_of(section)});
    return sections;
}

constexpr std::size_t aligned(std::size_t bytes) {
    return (bytes + NOTE_ALIGNMENT - 1) / NOTE_ALIGNMENT * NOTE_ALIGNMENT;
}

struct Note {
    std::string_view provider;
    std::string_view name;
    std::string_view arguments;
    std::uint64_t address = 0;
    std::uint64_t base = 0;
    std::uint64_t semaphore = 0;
};

// The note's description: three addresses, then three texts.
std::optional<Note> note_in(std::span<const std::byte> description) {
    const auto address = read_at<std::uint64_t>(description, 0);
    const auto base = read_at<std::uint64_t>(description, 8);
    const auto semaphore = read_at<std::uint64_t>(description, 16);
    if (!address || !base || !semaphore)
        return std::nullopt;
    Note note{{}, {}, {}, *address, *base, *semaphore};
    std::size_t at = 3 * sizeof(std::uint64_t);
    for (std::string_view *text : {&note.provider, &note.name, &note.arguments}) {
        *text = text_at(description, at);
        at += text->size() + 1;
    }
    return note;
}

} // namespace

Result<std::map<std::string, UsdtSite>> usdt_sites(std::span<const std::byte> file,
                                                   std::string_view provider) {
    const auto sections = sections_of(file);
    if (!sections)
        return sections.failure();
    const auto section = [&](std::string_view name) {
        const auto found = std::ranges::find(*sections, name, &Section::name);
        return found == sections->end() ? Section{} : *found;
    };
    const Section base = section(".stapsdt.base");
    const std::span<const std::byte> notes = section(".note.stapsdt").bytes;
    std::map<std::string, UsdtSite> sites;
    for (std::size_t at = 0; at < notes.size();) {
        const auto header = read_at<Elf64_Nhdr>(notes, at);
        if (!header)
            return bad(".note.stapsdt ends in a note");
        const std::size_t description_at = at + sizeof(*header) + aligned(header->n_namesz);
        const std::size_t end = description_at + aligned(header->n_descsz);
        if (description_at > notes.size() || header->n_descsz > notes.size() - description_at)
            return bad(".note.stapsdt ends in a note");
        at = end;
        const auto note = note_in(notes.subspan(description_at, header->n_descsz));
        if (header->n_type != STAPSDT_TYPE || !note || note->provider != provider)
            continue;
        // A linker or prelink that moved the section moved the addresses of the note, too.
        const std::uint64_t moved = base.name.empty() ? 0 : base.address - note->base;
        UsdtSite site{note->address + moved, note->semaphore == 0 ? 0 : note->semaphore + moved,
                      std::string{note->arguments}};
        sites.emplace(std::string{note->name}, std::move(site));
    }
    return sites;
}

} // namespace collwire::elf
