// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/library/library_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <gelf.h>

namespace collwire::nccl {
namespace {

constexpr std::size_t MAX_SEGMENTS = 256;
constexpr std::size_t MAX_BUILD_ID_BYTES = 64;
constexpr std::size_t MAX_DEBUG_LINK_BYTES = 256;
constexpr std::size_t MAX_PARAMETERS = 1024; // 2.32 has 229
constexpr std::size_t MAX_PARAMETER_NAME_BYTES = 47;
constexpr std::size_t PARAMETER_BYTES = 8;
constexpr std::size_t MAX_POINTERS = 1UL << 20;
// .eh_frame_hdr ("Linux Standard Base Core Specification", 10.6.2): a version, three encodings, the
// address of the frames, the number of entries, and the entries: the start of a function and its
// frame, both relative to the table's start.
constexpr std::array<std::byte, 4> EXCEPTION_TABLE{std::byte{1}, std::byte{0x1b}, std::byte{0x03},
                                                   std::byte{0x3b}};
constexpr std::size_t EXCEPTION_COUNT_AT = 8;
constexpr std::size_t EXCEPTION_ENTRIES_AT = 12;
constexpr std::size_t EXCEPTION_ENTRY_BYTES = 8;

Error bad(std::string_view what) {
    return error(ErrorKind::BadInput, fmt::format("not a usable shared library: {}", what));
}

} // namespace

std::string_view base_name(std::string_view symbol) {
    symbol = symbol.substr(0, symbol.find('.'));
    if (!symbol.starts_with("_Z"))
        return symbol;
    symbol.remove_prefix(2);
    if (symbol.starts_with('L')) // internal linkage, in a few compilers
        symbol.remove_prefix(1);
    std::size_t length = 0;
    const auto [end, failed] =
        std::from_chars(symbol.data(), symbol.data() + symbol.size(), length);
    if (failed != std::errc{})
        return {};
    symbol.remove_prefix(static_cast<std::size_t>(end - symbol.data()));
    return length <= symbol.size() ? symbol.substr(0, length) : std::string_view{};
}

std::string_view parameter_name(std::string_view symbol) {
    constexpr std::string_view LOCAL = "_ZZ", FUNCTION = "ncclParam", VARIABLE = "vE5cache";
    if (!symbol.starts_with(LOCAL) || !symbol.ends_with(VARIABLE))
        return {};
    symbol.remove_prefix(LOCAL.size());
    symbol.remove_suffix(VARIABLE.size());
    const std::string_view name =
        symbol.substr(std::min(symbol.find_first_not_of("0123456789"), symbol.size()));
    std::size_t length = 0;
    const auto [end, failed] =
        std::from_chars(symbol.data(), symbol.data() + symbol.size(), length);
    if (failed != std::errc{} || length != name.size() || !name.starts_with(FUNCTION))
        return {};
    return name.substr(FUNCTION.size());
}

SymbolForm form_of(std::string_view symbol) {
    const auto dot = symbol.find('.');
    if (dot == std::string_view::npos)
        return SymbolForm::Standard;
    const auto suffix = symbol.substr(dot);
    if (suffix.find(".cold") != std::string_view::npos)
        return SymbolForm::Cold;
    if (suffix.find(".isra") != std::string_view::npos ||
        suffix.find(".constprop") != std::string_view::npos)
        return SymbolForm::Clone;
    return suffix.starts_with(".part") ? SymbolForm::Part : SymbolForm::Standard;
}

Result<LibraryFile> LibraryFile::parse(std::span<const std::byte> bytes) {
    LibraryFile file;
    if (auto done = file.open(bytes); !done)
        return std::move(done).failure();
    if (auto done = file.read_segments(bytes); !done)
        return std::move(done).failure();
    file.read_sections();
    return file;
}

Result<LibraryFile> LibraryFile::parse_debug(std::span<const std::byte> bytes) {
    LibraryFile file;
    if (auto done = file.open(bytes); !done)
        return std::move(done).failure();
    file.read_sections();
    return file;
}

Result<void> LibraryFile::open(std::span<const std::byte> bytes) {
    if (bytes.size() < sizeof(Elf64_Ehdr))
        return bad("shorter than an ELF header");
    // libelf changes a file's bytes in place if byte orders differ, and the mapping is read-only.
    // Such files are refused first.
    const auto *ident = reinterpret_cast<const unsigned char *>(bytes.data());
    if (std::memcmp(ident, ELFMAG, SELFMAG) != 0)
        return bad("no ELF magic");
    if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB)
        return bad("not 64-bit little endian");
    elf_version(EV_CURRENT);
    elf_.reset(
        elf_memory(const_cast<char *>(reinterpret_cast<const char *>(bytes.data())), bytes.size()));
    if (!elf_ || elf_kind(elf_.get()) != ELF_K_ELF)
        return bad(elf_errmsg(-1));
    return {};
}

Result<void> LibraryFile::read_segments(std::span<const std::byte> bytes) {
    GElf_Ehdr header{};
    if (gelf_getehdr(elf_.get(), &header) == nullptr)
        return bad(elf_errmsg(-1));
    if (header.e_machine != EM_X86_64)
        return error(ErrorKind::Unsupported,
                     fmt::format("library for machine {}: only x86-64 is supported",
                                 unsigned{header.e_machine}));
    std::size_t n_segments = 0;
    if (elf_getphdrnum(elf_.get(), &n_segments) != 0 || n_segments > MAX_SEGMENTS ||
        n_segments != header.e_phnum || n_segments == 0)
        return bad("program headers (truncated?)");
    std::vector<elf::ElfSegment> segments;
    for (std::size_t i = 0; i < n_segments; ++i) {
        GElf_Phdr part{};
        if (gelf_getphdr(elf_.get(), static_cast<int>(i), &part) == nullptr)
            return bad(fmt::format("program header {}", i));
        if (part.p_type == PT_GNU_EH_FRAME)
            exception_table_ = part.p_vaddr;
        if (part.p_type != PT_LOAD)
            continue;
        if (part.p_offset > bytes.size() || part.p_filesz > bytes.size() - part.p_offset ||
            part.p_filesz > part.p_memsz ||
            part.p_vaddr > std::numeric_limits<std::uint64_t>::max() - part.p_memsz)
            return bad(
                fmt::format("program header {}: beyond the end of the file (truncated?)", i));
        segments.push_back({part.p_vaddr, part.p_offset, part.p_filesz, part.p_memsz,
                            (part.p_flags & PF_X) != 0, (part.p_flags & PF_W) != 0});
    }
    code_ = elf::CodeView{bytes, std::move(segments)};
    return {};
}

void LibraryFile::read_sections() {
    std::size_t names = 0;
    if (elf_getshdrstrndx(elf_.get(), &names) != 0)
        return;
    for (Elf_Scn *section = elf_nextscn(elf_.get(), nullptr); section != nullptr;
         section = elf_nextscn(elf_.get(), section)) {
        GElf_Shdr header{};
        if (gelf_getshdr(section, &header) == nullptr)
            continue;
        const char *name = elf_strptr(elf_.get(), names, header.sh_name);
        if (header.sh_type == SHT_SYMTAB || (header.sh_type == SHT_DYNSYM && !has_symbol_table_)) {
            symbols_ = section;
            has_symbol_table_ = has_symbol_table_ || header.sh_type == SHT_SYMTAB;
        } else if (header.sh_type == SHT_NOTE) {
            read_build_id(elf_getdata(section, nullptr));
        } else if (name != nullptr && header.sh_type != SHT_NOBITS &&
                   std::string_view{name} == ".debug_info") {
            has_debug_types_ = true;
        } else if (name != nullptr && header.sh_type == SHT_PROGBITS &&
                   std::string_view{name} == ".gnu_debuglink") {
            read_debug_link(elf_getdata(section, nullptr));
        } else if (name != nullptr && header.sh_type == SHT_PROGBITS &&
                   std::string_view{name} == ".rodata") {
            read_only_data_ = {header.sh_addr, header.sh_size};
        }
    }
}

void LibraryFile::read_build_id(Elf_Data *notes) {
    GElf_Nhdr note{};
    std::size_t name_at = 0;
    std::size_t content_at = 0;
    for (std::size_t at = 0; notes != nullptr && notes->d_buf != nullptr;) {
        at = gelf_getnote(notes, at, &note, &name_at, &content_at);
        if (at == 0)
            return;
        const auto *bytes = static_cast<const unsigned char *>(notes->d_buf);
        if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof "GNU" ||
            std::memcmp(bytes + name_at, "GNU", sizeof "GNU") != 0)
            continue;
        build_id_.clear();
        for (std::size_t i = 0; i < std::min<std::size_t>(note.n_descsz, MAX_BUILD_ID_BYTES); ++i)
            build_id_ += fmt::format("{:02x}", bytes[content_at + i]);
    }
}

// A name, which ends with a 0, and a checksum.
void LibraryFile::read_debug_link(const Elf_Data *link) {
    if (link == nullptr || link->d_buf == nullptr)
        return;
    const std::string_view bytes{static_cast<const char *>(link->d_buf), link->d_size};
    const std::string_view name = bytes.substr(0, bytes.find('\0'));
    // It comes from the file and becomes part of paths.
    if (name.size() < MAX_DEBUG_LINK_BYTES && name.find('/') == std::string_view::npos &&
        name != "." && name != "..")
        debug_link_ = name;
}

template <typename Visit> void LibraryFile::for_each_symbol(Visit visit) const {
    GElf_Shdr header{};
    Elf_Data *data = symbols_ == nullptr ? nullptr : elf_getdata(symbols_, nullptr);
    if (data == nullptr || gelf_getshdr(symbols_, &header) == nullptr || header.sh_entsize == 0)
        return;
    const std::size_t n = data->d_size / header.sh_entsize;
    for (std::size_t i = 0; i < n; ++i) {
        GElf_Sym symbol{};
        if (gelf_getsym(data, static_cast<int>(i), &symbol) == nullptr)
            break;
        const unsigned type = GELF_ST_TYPE(symbol.st_info);
        if (symbol.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_OBJECT))
            continue;
        const char *name = elf_strptr(elf_.get(), header.sh_link, symbol.st_name);
        if (name != nullptr)
            visit(std::string_view{name}, symbol, type == STT_FUNC);
    }
}

LibraryFile::Symbols LibraryFile::find(std::span<const std::string_view> bases) const {
    Symbols found;
    for_each_symbol([&](std::string_view name, const GElf_Sym &symbol, bool is_function) {
        const std::string_view base = base_name(name);
        if (!base.empty() && std::ranges::binary_search(bases, base))
            found.emplace(base, LibrarySymbol{name, base, symbol.st_value, symbol.st_size,
                                              is_function, form_of(name)});
    });
    return found;
}

std::map<std::string, std::uint64_t> LibraryFile::parameters() const {
    std::map<std::string, std::uint64_t> found;
    std::set<std::string, std::less<>> several;
    for_each_symbol([&](std::string_view symbol_name, const GElf_Sym &symbol, bool is_function) {
        const std::string_view name = parameter_name(symbol_name);
        if (is_function || name.empty() || name.size() > MAX_PARAMETER_NAME_BYTES ||
            symbol.st_size != PARAMETER_BYTES || found.size() >= MAX_PARAMETERS)
            return;
        if (const auto [at, is_new] = found.try_emplace(std::string{name}, symbol.st_value);
            !is_new && at->second != symbol.st_value)
            several.emplace(name);
    });
    for (const std::string &name : several)
        found.erase(name);
    return found;
}

std::vector<std::uint64_t> LibraryFile::function_starts() const {
    std::vector<std::uint64_t> starts;
    const auto table = code_.bytes_from(exception_table_);
    if (exception_table_ == 0 || table.size() < EXCEPTION_ENTRIES_AT ||
        !std::ranges::equal(table.first(EXCEPTION_TABLE.size()), EXCEPTION_TABLE))
        return starts;
    const auto number_at = [&table](std::size_t at) {
        std::uint32_t number = 0;
        std::memcpy(&number, table.data() + at, sizeof number);
        return number;
    };
    const std::size_t n =
        std::min<std::size_t>(number_at(EXCEPTION_COUNT_AT),
                              (table.size() - EXCEPTION_ENTRIES_AT) / EXCEPTION_ENTRY_BYTES);
    starts.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
        const auto from_table =
            static_cast<std::int32_t>(number_at(EXCEPTION_ENTRIES_AT + i * EXCEPTION_ENTRY_BYTES));
        const std::uint64_t start = exception_table_ + static_cast<std::uint64_t>(from_table);
        if (code_.is_code(start))
            starts.push_back(start);
    }
    std::ranges::sort(starts);
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
    return starts;
}

std::map<std::uint64_t, std::uint64_t> LibraryFile::pointers() const {
    std::map<std::uint64_t, std::uint64_t> found;
    for (Elf_Scn *section = elf_nextscn(elf_.get(), nullptr); section != nullptr;
         section = elf_nextscn(elf_.get(), section)) {
        GElf_Shdr header{};
        if (gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_RELA ||
            header.sh_entsize == 0 || (header.sh_flags & SHF_ALLOC) == 0)
            continue;
        Elf_Data *data = elf_getdata(section, nullptr);
        const std::size_t n =
            data == nullptr ? 0 : std::min(data->d_size / header.sh_entsize, MAX_POINTERS);
        for (std::size_t i = 0; i < n; ++i) {
            GElf_Rela relocation{};
            if (gelf_getrela(data, static_cast<int>(i), &relocation) == nullptr)
                break;
            if (GELF_R_TYPE(relocation.r_info) == R_X86_64_RELATIVE)
                found.emplace(relocation.r_offset, static_cast<std::uint64_t>(relocation.r_addend));
        }
    }
    return found;
}

std::vector<elf::CodeRange> jump_sources(const LibraryFile::Symbols &symbols,
                                         const LibrarySymbol &function) {
    std::vector<elf::CodeRange> ranges{{function.address, function.bytes}};
    const auto [begin, end] = symbols.equal_range(function.base);
    for (auto at = begin; at != end; ++at)
        if (at->second.form == SymbolForm::Cold)
            ranges.push_back({at->second.address, at->second.bytes});
    return ranges;
}

} // namespace collwire::nccl
