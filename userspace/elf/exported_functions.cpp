// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/exported_functions.h"

#include <cstring>
#include <elf.h>
#include <optional>

namespace collwire::elf {
namespace {

Error bad(const char *what) {
    return error(ErrorKind::BadInput, std::string{"dynamic symbols: "} + what);
}

template <typename T> std::optional<T> read_at(std::span<const std::byte> bytes, std::uint64_t at) {
    if (at > bytes.size() || bytes.size() - at < sizeof(T))
        return std::nullopt;
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

std::span<const std::byte> bytes_of(std::span<const std::byte> file, const Elf64_Shdr &section) {
    if (section.sh_offset > file.size() || section.sh_size > file.size() - section.sh_offset)
        return {};
    return file.subspan(section.sh_offset, section.sh_size);
}

} // namespace

Result<std::map<std::string, std::uint64_t>> exported_functions(std::span<const std::byte> file) {
    const auto header = read_at<Elf64_Ehdr>(file, 0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shoff > file.size())
        return bad("not a 64-bit little-endian ELF file with sections");
    const auto section_at = [&](std::size_t i) {
        return read_at<Elf64_Shdr>(file, header->e_shoff + i * sizeof(Elf64_Shdr));
    };
    std::map<std::string, std::uint64_t> functions;
    for (std::size_t i = 0; i < header->e_shnum; ++i) {
        const auto section = section_at(i);
        if (!section)
            return bad("section headers beyond the end of the file");
        if (section->sh_type != SHT_DYNSYM)
            continue;
        const auto names_section = section_at(section->sh_link);
        if (!names_section)
            return bad("no names");
        const auto symbols = bytes_of(file, *section);
        const auto names = bytes_of(file, *names_section);
        for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= symbols.size();
             at += sizeof(Elf64_Sym)) {
            const auto symbol = read_at<Elf64_Sym>(symbols, at);
            if (symbol->st_shndx == SHN_UNDEF || symbol->st_name >= names.size() ||
                ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
                continue;
            const auto *name = reinterpret_cast<const char *>(names.data()) + symbol->st_name;
            functions.emplace(std::string{name, strnlen(name, names.size() - symbol->st_name)},
                              symbol->st_value);
        }
    }
    return functions;
}

} // namespace collwire::elf
