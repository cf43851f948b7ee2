// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/library.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

// A mapped ELF file. The loader has checked it, but not its section headers. A library has 400 MB,
// of which only symbols are read.
class ElfFile {
public:
    explicit ElfFile(const std::string &path) : path_(path) {
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        struct stat status {};
        if (fd < 0 || ::fstat(fd, &status) != 0)
            damaged();
        size_bytes_ = static_cast<std::size_t>(status.st_size);
        void *mapped = ::mmap(nullptr, size_bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
        ::close(fd);
        if (mapped == MAP_FAILED)
            damaged();
        bytes_ = static_cast<const char *>(mapped);
        const auto *header = at<Elf64_Ehdr>(0, 1);
        sections_ = at<Elf64_Shdr>(header->e_shoff, header->e_shnum);
        section_count_ = header->e_shnum;
    }
    ElfFile(const ElfFile &) = delete;
    ElfFile &operator=(const ElfFile &) = delete;
    ~ElfFile() { ::munmap(const_cast<char *>(bytes_), size_bytes_); }

    [[nodiscard]] std::vector<Elf64_Shdr> sections(unsigned type) const {
        std::vector<Elf64_Shdr> found;
        std::copy_if(sections_, sections_ + section_count_, std::back_inserter(found),
                     [&](const Elf64_Shdr &section) { return section.sh_type == type; });
        return found;
    }
    [[nodiscard]] const Elf64_Shdr &section(std::size_t index) const {
        if (index >= section_count_)
            damaged();
        return sections_[index];
    }
    template <class T> const T *at(std::uint64_t offset_bytes, std::uint64_t count) const {
        if (offset_bytes > size_bytes_ || count > (size_bytes_ - offset_bytes) / sizeof(T))
            damaged();
        return reinterpret_cast<const T *>(bytes_ + offset_bytes);
    }

private:
    [[noreturn]] void damaged() const {
        fatal(fmt::format("{}: not a whole ELF file. Fix: install libnccl again", path_));
    }

    std::string path_;
    const char *bytes_ = nullptr;
    std::size_t size_bytes_ = 0;
    const Elf64_Shdr *sections_ = nullptr;
    std::size_t section_count_ = 0;
};

std::string build_id_in(const ElfFile &file) {
    const auto padded = [](std::uint64_t bytes) { return (bytes + 3) / 4 * 4; };
    for (const Elf64_Shdr &section : file.sections(SHT_NOTE)) {
        std::uint64_t at = section.sh_offset;
        while (at + sizeof(Elf64_Nhdr) <= section.sh_offset + section.sh_size) {
            const auto *note_header = file.at<Elf64_Nhdr>(at, 1);
            const std::uint64_t content = at + sizeof *note_header + padded(note_header->n_namesz);
            if (note_header->n_type == NT_GNU_BUILD_ID && note_header->n_namesz == sizeof "GNU") {
                std::string text;
                const auto *bytes = file.at<unsigned char>(content, note_header->n_descsz);
                for (unsigned i = 0; i < note_header->n_descsz; i++)
                    text += fmt::format("{:02x}", bytes[i]);
                return text;
            }
            at = content + padded(note_header->n_descsz);
        }
    }
    return {};
}

std::string layouts_folder() {
    if (!settings().layouts.empty())
        return settings().layouts;
    Dl_info self;
    if (::dladdr(reinterpret_cast<void *>(&layouts_folder), &self) == 0)
        return "layouts";
    const std::string path = self.dli_fname;
    return path.substr(0, path.rfind('/') + 1) + "layouts";
}

} // namespace

std::optional<Library> Library::find_mapped() {
    struct Mapped {
        std::string path;
        std::uintptr_t base = 0;
    } mapped;
    ::dl_iterate_phdr(
        [](dl_phdr_info *info, std::size_t, void *user) {
            const std::string path = info->dlpi_name;
            const std::string &name = settings().library_name;
            if (path.compare(path.rfind('/') + 1, name.size(), name) != 0)
                return 0;
            *static_cast<Mapped *>(user) = {path, info->dlpi_addr};
            return 1;
        },
        &mapped);
    if (mapped.path.empty())
        return std::nullopt;
    Library found;
    found.path_ = mapped.path;
    found.base_ = mapped.base;
    found.read_file();
    return found;
}

void Library::read_file() {
    const std::string &symbols = settings().symbols.empty() ? path_ : settings().symbols;
    const ElfFile file(symbols);
    build_id_ = build_id_in(file);
    if (symbols != path_ && build_id_in(ElfFile{path_}) != build_id_)
        fatal(fmt::format("{} is not what {} was before it was stripped. Fix: "
                          "COLLWIRE_CUDA_SYMBOLS=the same build",
                          symbols, path_));
    for (const Elf64_Shdr &section : file.sections(SHT_SYMTAB)) {
        const std::uint64_t count = section.sh_size / sizeof(Elf64_Sym);
        const auto *symbol = file.at<Elf64_Sym>(section.sh_offset, count);
        const Elf64_Shdr &strings = file.section(section.sh_link);
        for (const auto *end = symbol + count; symbol != end; symbol++) {
            const unsigned type = ELF64_ST_TYPE(symbol->st_info);
            if ((type != STT_FUNC && type != STT_OBJECT) || symbol->st_shndx == SHN_UNDEF)
                continue;
            symbols_.push_back({file.at<char>(strings.sh_offset + symbol->st_name, 1),
                                base_ + symbol->st_value, symbol->st_size, type == STT_FUNC});
        }
    }
    if (symbols_.empty())
        fatal(fmt::format("{} has no .symtab. Fix: NVIDIA's own build, not stripped, or "
                          "COLLWIRE_CUDA_SYMBOLS",
                          symbols));
    std::sort(symbols_.begin(), symbols_.end(),
              [](const Symbol &a, const Symbol &b) { return a.address < b.address; });
    for (std::size_t i = 0; i < symbols_.size(); i++)
        index_of_.emplace(symbols_[i].name, i);
    layout_ = Layout::read_file(layouts_folder() + "/" + build_id_ + ".layout");
}

const Symbol *Library::find(std::string_view name) const {
    const auto found = index_of_.find(name);
    return found != index_of_.end() ? &symbols_[found->second] : nullptr;
}

const Symbol *Library::function_at(const void *address) const {
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    auto next = std::upper_bound(
        symbols_.begin(), symbols_.end(), wanted,
        [](std::uintptr_t value, const Symbol &symbol) { return value < symbol.address; });
    while (next != symbols_.begin()) {
        const Symbol &symbol = *--next;
        if (!symbol.is_function)
            continue;
        if (wanted >= symbol.address + std::max<std::size_t>(symbol.size_bytes, 1))
            break;
        return &symbol;
    }
    return nullptr;
}

const char *Library::symbol_name_at(const void *address) const {
    const Symbol *function = function_at(address);
    return function != nullptr ? function->name.c_str() : "";
}

std::string Library::function_name_at(const void *address) const {
    const std::string symbol = symbol_name_at(address);
    int status = 0;
    char *demangled = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
    std::string name = demangled != nullptr ? demangled : symbol;
    std::free(demangled);
    return name;
}

} // namespace collwire::cuda_double
