// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/elf_image.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <memory>

#include <fmt/format.h>
#include <gelf.h>
#include <libelf.h>
#include <sys/stat.h>

#include "userspace/foreign/foreign.h"

namespace collwire::elf {
namespace {

constexpr std::size_t MAX_LIBRARY_BYTES = 64u << 20;
constexpr std::size_t MAX_SEGMENTS = 256;
constexpr std::size_t MAX_POINTERS = 1u << 20;
constexpr std::uint64_t POINTER_BYTES = 8;
// Older elf.h headers do not have these two.
constexpr std::int64_t DYNAMIC_RELR = 36;
constexpr std::int64_t DYNAMIC_RELR_BYTES = 35;

struct ElfCloser {
    void operator()(Elf *elf) const { elf_end(elf); }
};
using ElfHandle = std::unique_ptr<Elf, ElfCloser>;

Error bad(std::string_view what) {
    return error(ErrorKind::BadInput, fmt::format("not a usable shared library: {}", what));
}

// Addresses and sizes out of PT_DYNAMIC; 0 where absent.
struct DynamicTables {
    std::uint64_t rela = 0, rela_bytes = 0;
    std::uint64_t jump_rela = 0, jump_rela_bytes = 0;
    std::uint64_t relr = 0, relr_bytes = 0;
    std::uint64_t symbols = 0;
    std::uint64_t strings = 0, strings_bytes = 0;
};

std::string_view string_at(std::span<const std::byte> strings, std::uint64_t offset) {
    if (offset >= strings.size()) {
        return {};
    }
    const auto *begin = reinterpret_cast<const char *>(strings.data()) + offset;
    return {begin, strnlen(begin, strings.size() - offset)};
}

unsigned private_abi_in(std::span<const std::byte> strings) {
    constexpr std::string_view PREFIX = "IBVERBS_PRIVATE_";
    const std::string_view text{reinterpret_cast<const char *>(strings.data()), strings.size()};
    unsigned number = 0;
    if (const auto at = text.find(PREFIX); at != std::string_view::npos) {
        const auto digits = text.substr(at + PREFIX.size());
        std::from_chars(digits.data(), digits.data() + digits.size(), number);
    }
    return number;
}

template <typename T> T read_at(std::span<const std::byte> bytes, std::size_t offset) {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

} // namespace

Result<ElfImage> ElfImage::parse(std::vector<std::byte> bytes) {
    ElfImage image;
    if (auto done = image.read(std::move(bytes)); !done) {
        return std::move(done).failure();
    }
    return image;
}

Result<void> ElfImage::read(std::vector<std::byte> &&bytes) {
    bytes_ = std::move(bytes);
    if (bytes_.size() < sizeof(Elf64_Ehdr)) {
        return bad("shorter than an ELF header");
    }
    elf_version(EV_CURRENT);
    // libelf changes its input if byte orders differ: so the byte order is checked first.
    const auto *ident = reinterpret_cast<const unsigned char *>(bytes_.data());
    if (std::memcmp(ident, ELFMAG, SELFMAG) != 0) {
        return bad("no ELF magic");
    }
    if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB) {
        return bad("not 64-bit little endian");
    }
    const ElfHandle elf{elf_memory(reinterpret_cast<char *>(bytes_.data()), bytes_.size())};
    GElf_Ehdr header{};
    if (!elf || elf_kind(elf.get()) != ELF_K_ELF || !gelf_getehdr(elf.get(), &header)) {
        return bad(elf_errmsg(-1));
    }
    if (header.e_machine != EM_X86_64) {
        return error(ErrorKind::Unsupported,
                     fmt::format("library for machine {}: only x86-64 is supported",
                                 unsigned{header.e_machine}));
    }
    std::size_t n_segments = 0;
    if (elf_getphdrnum(elf.get(), &n_segments) != 0 || n_segments > MAX_SEGMENTS) {
        return bad("program headers");
    }
    // libelf gives fewer where the file ends early.
    if (n_segments != header.e_phnum || n_segments == 0) {
        return bad("program headers beyond the end of the file (truncated?)");
    }
    std::vector<ElfSegment> segments;
    std::uint64_t dynamic_offset = 0;
    std::uint64_t dynamic_bytes = 0;
    for (std::size_t i = 0; i < n_segments; ++i) {
        GElf_Phdr part{};
        if (!gelf_getphdr(elf.get(), static_cast<int>(i), &part)) {
            return bad(fmt::format("program header {}", i));
        }
        if (part.p_vaddr > std::numeric_limits<std::uint64_t>::max() - part.p_memsz) {
            return bad(fmt::format("program header {}: size wraps around", i));
        }
        if (part.p_type == PT_GNU_RELRO) {
            relro_begin_ = part.p_vaddr;
            relro_end_ = part.p_vaddr + part.p_memsz;
        }
        if (part.p_type == PT_GNU_EH_FRAME) {
            frame_table_ = part.p_vaddr;
        }
        if (part.p_type != PT_LOAD && part.p_type != PT_DYNAMIC) {
            continue;
        }
        if (part.p_offset > bytes_.size() || part.p_filesz > bytes_.size() - part.p_offset ||
            part.p_filesz > part.p_memsz) {
            return bad(
                fmt::format("program header {}: beyond the end of the file (truncated?)", i));
        }
        if (part.p_type == PT_DYNAMIC) {
            dynamic_offset = part.p_offset;
            dynamic_bytes = part.p_filesz;
            continue;
        }
        segments.push_back({part.p_vaddr, part.p_offset, part.p_filesz, part.p_memsz,
                            (part.p_flags & PF_X) != 0, (part.p_flags & PF_W) != 0});
    }

    code_ = CodeView{bytes_, std::move(segments)};

    DynamicTables tables;
    const std::span<const std::byte> whole{bytes_};
    for (std::uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic_bytes; at += sizeof(Elf64_Dyn)) {
        const auto entry = read_at<Elf64_Dyn>(whole, dynamic_offset + at);
        if (entry.d_tag == DT_NULL) {
            break;
        }
        const std::uint64_t value = entry.d_un.d_val;
        switch (entry.d_tag) {
        case DT_RELA:
            tables.rela = value;
            break;
        case DT_RELASZ:
            tables.rela_bytes = value;
            break;
        case DT_JMPREL:
            tables.jump_rela = value;
            break;
        case DT_PLTRELSZ:
            tables.jump_rela_bytes = value;
            break;
        case DYNAMIC_RELR:
            tables.relr = value;
            break;
        case DYNAMIC_RELR_BYTES:
            tables.relr_bytes = value;
            break;
        case DT_SYMTAB:
            tables.symbols = value;
            break;
        case DT_STRTAB:
            tables.strings = value;
            break;
        case DT_STRSZ:
            tables.strings_bytes = value;
            break;
        default:
            break;
        }
    }

    const auto symbols = bytes_from(tables.symbols);
    auto strings = bytes_from(tables.strings);
    strings = strings.first(std::min<std::uint64_t>(strings.size(), tables.strings_bytes));
    private_abi_ = private_abi_in(strings);
    for (const auto &[address, size] : {std::pair{tables.rela, tables.rela_bytes},
                                        std::pair{tables.jump_rela, tables.jump_rela_bytes}}) {
        const auto relocations = bytes_from(address);
        if (size > relocations.size()) {
            return bad("relocations beyond the end of the file (truncated?)");
        }
        for (std::uint64_t at = 0; at + sizeof(Elf64_Rela) <= size; at += sizeof(Elf64_Rela)) {
            const auto entry = read_at<Elf64_Rela>(relocations, at);
            const std::uint64_t type = ELF64_R_TYPE(entry.r_info);
            ElfPointer pointer{entry.r_offset, static_cast<std::uint64_t>(entry.r_addend), {}};
            if (type == R_X86_64_64 || type == R_X86_64_GLOB_DAT || type == R_X86_64_JUMP_SLOT) {
                const std::uint64_t index = ELF64_R_SYM(entry.r_info);
                if (index >= symbols.size() / sizeof(Elf64_Sym)) {
                    return bad(fmt::format("relocation of missing symbol {}", index));
                }
                const auto symbol = read_at<Elf64_Sym>(symbols, index * sizeof(Elf64_Sym));
                pointer.target = symbol.st_value == 0 ? 0 : symbol.st_value + pointer.target;
                pointer.symbol = string_at(strings, symbol.st_name);
            } else if (type != R_X86_64_RELATIVE) {
                continue;
            }
            if (pointers_.size() == MAX_POINTERS) {
                return bad("more than a million relocations");
            }
            pointers_.push_back(std::move(pointer));
        }
    }

    // RELR: an even entry is a slot; an odd one is a bit map of the next 63 slots (the ELF gABI's
    // SHT_RELR). The pointer itself lies in the slot.
    const auto packed = bytes_from(tables.relr);
    if (tables.relr_bytes > packed.size()) {
        return bad("packed relocations beyond the end of the file (truncated?)");
    }
    const auto add_packed = [this](std::uint64_t slot) {
        const auto content = bytes_from(slot);
        if (content.size() >= POINTER_BYTES && pointers_.size() < MAX_POINTERS) {
            pointers_.push_back({slot, read_at<std::uint64_t>(content, 0), {}});
        }
    };
    std::uint64_t next = 0;
    for (std::uint64_t at = 0; at + POINTER_BYTES <= tables.relr_bytes; at += POINTER_BYTES) {
        const auto entry = read_at<std::uint64_t>(packed, at);
        if ((entry & 1) == 0) {
            add_packed(entry);
            next = entry + POINTER_BYTES;
            continue;
        }
        for (std::uint64_t bit = 1; bit < 64; ++bit) {
            if ((entry >> bit & 1) != 0) {
                add_packed(next + (bit - 1) * POINTER_BYTES);
            }
        }
        next += 63 * POINTER_BYTES;
    }

    std::ranges::stable_sort(pointers_, {}, &ElfPointer::slot);
    pointers_.erase(
        std::unique(pointers_.begin(), pointers_.end(),
                    [](const ElfPointer &a, const ElfPointer &b) { return a.slot == b.slot; }),
        pointers_.end());
    return {};
}

const ElfPointer *ElfImage::pointer_at(std::uint64_t slot) const {
    const auto found = std::ranges::lower_bound(pointers_, slot, {}, &ElfPointer::slot);
    return found != pointers_.end() && found->slot == slot ? &*found : nullptr;
}

Result<std::vector<std::byte>> read_library_file(const std::string &path) {
    const auto status = foreign::status(foreign::NO_PROCESS, path);
    if (status && !S_ISREG(status->stx_mode)) {
        return error(ErrorKind::Failed, fmt::format("{}: not a regular file", path));
    }
    auto text = foreign::read_file(foreign::NO_PROCESS, path, MAX_LIBRARY_BYTES + 1);
    if (!text) {
        return std::move(text).failure();
    }
    if (text->size() > MAX_LIBRARY_BYTES) {
        return error(ErrorKind::Failed,
                     fmt::format("{}: larger than 64 MiB, not a provider library", path));
    }
    std::vector<std::byte> bytes(text->size());
    std::memcpy(bytes.data(), text->data(), text->size());
    return bytes;
}

} // namespace collwire::elf
