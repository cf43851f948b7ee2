// SPDX-License-Identifier: Apache-2.0
#include "userspace/inject/places.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <elf.h>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>

#include <fmt/format.h>

#include "userspace/elf/elf_image.h"
#include "userspace/elf/exported_functions.h"
#include "userspace/inventory/files.h"

namespace collwire::inject {
namespace {

constexpr std::uint64_t PAGE_BYTES = 4096;
constexpr std::uint64_t CODE_ALIGNMENT = 64;
constexpr std::uint64_t LOWEST_ADDRESS = std::uint64_t{1} << 32;
constexpr std::uint64_t HIGHEST_ADDRESS = std::uint64_t{1} << 46; // half of the user's range
constexpr std::size_t MAX_PROGRAM_HEADERS = 64;
constexpr std::uint64_t MAX_DYNAMIC = 512;
constexpr std::size_t MAX_NAME_BYTES = 128;
// glibc 2.3 to 2.33 name the files by their version.
constexpr std::array LIBC{"libc.so.6", "libc-2."};
constexpr std::array LIBPTHREAD{"libpthread.so.0", "libpthread-2."};
constexpr std::array LOADER{"ld-linux-x86-64.so.2", "ld-2."};
constexpr std::array LIBDL{"libdl.so.2", "libdl-2."};

bool has_name(std::string_view path, std::span<const char *const> names) {
    const auto name = inventory::base_name(path);
    return std::ranges::any_of(names,
                               [name](const char *wanted) { return name.starts_with(wanted); });
}

std::vector<Elf64_Phdr> program_headers(const process::ProcessView &view, std::uint64_t begin) {
    const auto header = view.read<Elf64_Ehdr>(begin);
    if (!header || std::memcmp(ELFMAG, &header->e_ident[0], SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != EM_X86_64 ||
        header->e_phnum > MAX_PROGRAM_HEADERS || header->e_phentsize != sizeof(Elf64_Phdr))
        return {};
    std::vector<Elf64_Phdr> headers(header->e_phnum);
    if (!view.read(begin + header->e_phoff, std::as_writable_bytes(std::span{headers})))
        return {};
    return headers;
}

// What is added to the addresses of a file that is mapped from `begin`.
std::optional<std::uint64_t> bias_of(const process::ProcessView &view, std::uint64_t begin) {
    for (const Elf64_Phdr &part : program_headers(view, begin))
        if (part.p_type == PT_LOAD && part.p_offset == 0)
            return begin - part.p_vaddr;
    return std::nullopt;
}

Result<void> add_symbols(const process::ProcessView &view, std::span<const char *const> names,
                         std::map<std::string, std::uint64_t> &addresses) {
    for (const process::Mapping &mapping : view.mappings()) {
        if (mapping.file_offset != 0 || !has_name(mapping.path, names))
            continue;
        const auto bias = bias_of(view, mapping.begin);
        auto file = process::MappedFile::open(view.pid(), mapping);
        if (!file)
            return std::move(file).failure();
        const auto bytes = elf::read_library_file(file->own_path());
        if (!bytes)
            return bytes.failure();
        const auto functions = elf::exported_functions(*bytes);
        if (!bias || !functions)
            return error(ErrorKind::Unsupported,
                         fmt::format("{}: no x86-64 library with symbols", mapping.path));
        for (const auto &[name, address] : *functions)
            addresses.emplace(name, *bias + address);
        return {};
    }
    return {};
}

std::string text_at(const process::ProcessView &view, std::uint64_t address) {
    std::array<char, MAX_NAME_BYTES> text{};
    for (std::size_t i = 0; i + 1 < text.size(); ++i) {
        const auto byte = view.read<char>(address + i);
        if (!byte || *byte == '\0')
            break;
        text[i] = *byte;
    }
    return text.data();
}

// The files that stay mapped until the process ends: the program, the C library and its loader, and
// what the program is linked with. All others can be unmapped by dlclose at any moment.
std::set<std::string, std::less<>> lasting_files(const process::ProcessView &view) {
    std::set<std::string, std::less<>> needed;
    const auto program = inventory::read_link(fmt::format("/proc/{}/exe", view.pid()));
    for (const process::Mapping &mapping : view.mappings()) {
        if (mapping.path != program || mapping.file_offset != 0)
            continue;
        const auto bias = bias_of(view, mapping.begin);
        std::vector<std::uint64_t> names;
        std::uint64_t strings = 0;
        for (const Elf64_Phdr &part : program_headers(view, mapping.begin))
            for (std::uint64_t i = 0; bias && part.p_type == PT_DYNAMIC && i < MAX_DYNAMIC; ++i) {
                const auto entry =
                    view.read<Elf64_Dyn>(*bias + part.p_vaddr + i * sizeof(Elf64_Dyn));
                if (!entry || entry->d_tag == DT_NULL)
                    break;
                if (entry->d_tag == DT_NEEDED)
                    names.push_back(entry->d_un.d_val);
                if (entry->d_tag == DT_STRTAB) // the loader has added the bias
                    strings = entry->d_un.d_ptr;
            }
        for (const std::uint64_t name : names)
            needed.insert(text_at(view, strings + name));
        break;
    }
    std::set<std::string, std::less<>> paths;
    for (const process::Mapping &mapping : view.mappings())
        if (mapping.path == program || has_name(mapping.path, LIBC) ||
            has_name(mapping.path, LOADER) ||
            needed.contains(std::string{inventory::base_name(mapping.path)}))
            paths.insert(mapping.path);
    return paths;
}

} // namespace

bool is_c_library(std::string_view path) {
    return has_name(path, LIBC);
}

Result<LibraryFunctions> find_functions(const process::ProcessView &view) {
    std::map<std::string, std::uint64_t> addresses;
    for (const auto &names : {LIBC, LIBPTHREAD, LIBDL})
        if (auto added = add_symbols(view, names, addresses); !added)
            return std::move(added).failure();
    LibraryFunctions functions;
    for (const auto &[name, into] : {std::pair{"pthread_create", &functions.pthread_create},
                                     {"pthread_self", &functions.pthread_self},
                                     {"pthread_detach", &functions.pthread_detach},
                                     {"dlopen", &functions.dlopen},
                                     {"dlsym", &functions.dlsym},
                                     {"dlerror", &functions.dlerror},
                                     {"__errno_location", &functions.errno_location}}) {
        const auto found = addresses.find(name);
        if (found == addresses.end())
            return error(ErrorKind::Unsupported, fmt::format("its C library has no {}", name));
        *into = found->second;
    }
    return functions;
}

std::optional<std::uint64_t> find_code_room(const process::ProcessView &view, std::uint64_t bytes) {
    const auto lasting = lasting_files(view);
    std::map<std::string, std::uint64_t> begins; // of each file
    for (const process::Mapping &mapping : view.mappings()) {
        if (mapping.inode == 0 || !lasting.contains(mapping.path))
            continue;
        if (mapping.file_offset == 0)
            begins[mapping.path] = mapping.begin;
        const auto begin = begins.find(mapping.path);
        if (!mapping.executable || mapping.writable || begin == begins.end())
            continue;
        const auto bias = bias_of(view, begin->second);
        for (const Elf64_Phdr &part : program_headers(view, begin->second)) {
            if (!bias || part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0 ||
                part.p_filesz != part.p_memsz)
                continue;
            const std::uint64_t end = *bias + part.p_vaddr + part.p_memsz;
            const std::uint64_t room = (end + CODE_ALIGNMENT - 1) & ~(CODE_ALIGNMENT - 1);
            const std::uint64_t page_end = (end + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
            if (page_end != mapping.end || room + bytes > page_end || room < mapping.begin)
                continue;
            std::vector<std::byte> there(bytes);
            if (view.read(room, there) &&
                std::ranges::all_of(there, [](std::byte value) { return value == std::byte{0}; }))
                return room;
        }
    }
    return std::nullopt;
}

std::optional<std::uint64_t> find_free_range(const std::vector<process::Mapping> &mappings,
                                             std::uint64_t bytes) {
    std::uint64_t at = LOWEST_ADDRESS;
    std::uint64_t best = 0;
    std::uint64_t best_bytes = 0;
    const auto consider = [&](std::uint64_t begin, std::uint64_t end) {
        if (end > begin && end - begin > best_bytes) {
            best = begin;
            best_bytes = end - begin;
        }
    };
    for (const process::Mapping &mapping : mappings) {
        consider(at, std::min(mapping.begin, HIGHEST_ADDRESS));
        at = std::max(at, mapping.end);
    }
    consider(at, HIGHEST_ADDRESS);
    if (best_bytes < 4 * bytes)
        return std::nullopt;
    return (best + best_bytes / 2) & ~(PAGE_BYTES - 1);
}

} // namespace collwire::inject
