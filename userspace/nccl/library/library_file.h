// SPDX-License-Identifier: Apache-2.0
// A file that may be NCCL: its code, its symbols and its build-id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <libelf.h>

#include "base/result.h"
#include "userspace/elf/code_view.h"
#include "userspace/elf/probe_point.h"

namespace collwire::nccl {

// Compilers make copies of functions, some with other arguments.
enum class SymbolForm {
    Standard,
    Part,  // split off, called from what is left: GCC's .part.N
    Clone, // other arguments: .isra.N, .constprop.N
    Cold,  // the unlikely rest of a function
};

struct LibrarySymbol {
    std::string_view name; // as in the file
    std::string_view base; // ncclProxyStart of _Z14ncclProxyStartP8ncclComm
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    bool function = false; // else data
    SymbolForm form = SymbolForm::Standard;
};

// The base of a symbol's name, empty where it is nested (a namespace, a class, a local variable).
std::string_view base_name(std::string_view symbol);
SymbolForm form_of(std::string_view symbol);

class LibraryFile {
public:
    // Does not copy the bytes.
    static Result<LibraryFile> parse(std::span<const std::byte> bytes);
    // A file of symbols and DWARF alone (objcopy --only-keep-debug). Its code is in another file,
    // so the offsets of its segments are ignored.
    static Result<LibraryFile> parse_debug(std::span<const std::byte> bytes);

    [[nodiscard]] const elf::CodeView &code() const { return code_; }
    [[nodiscard]] const std::string &build_id() const { return build_id_; } // hex; may be empty
    // The name in .gnu_debuglink; empty: it has none.
    [[nodiscard]] const std::string &debug_link() const { return debug_link_; }
    [[nodiscard]] bool has_symbol_table() const { return has_symbol_table_; } // .symtab
    [[nodiscard]] bool has_debug_types() const { return has_debug_types_; }   // .debug_info
    [[nodiscard]] Elf *elf() const { return elf_.get(); }
    // Survives strip: the starts of functions and of their split-off parts, sorted, from the
    // exception table. Empty: no such table, or of an unknown form.
    [[nodiscard]] std::vector<std::uint64_t> function_starts() const;
    // Address of .eh_frame_hdr; 0: there is none.
    [[nodiscard]] std::uint64_t exception_table() const { return exception_table_; }
    // Texts and constants (.rodata); 0 bytes if there are none.
    [[nodiscard]] elf::CodeRange read_only_data() const { return read_only_data_; }
    // The pointers that the loader fills in: their addresses and their targets.
    [[nodiscard]] std::map<std::uint64_t, std::uint64_t> pointers() const;

    // All symbols with one of these bases (sorted), from .symtab, else from .dynsym.
    using Symbols = std::unordered_multimap<std::string_view, LibrarySymbol>;
    [[nodiscard]] Symbols find(std::span<const std::string_view> bases) const;
    // Addresses of NCCL's parameters, by name. Without .symtab there are none.
    [[nodiscard]] std::map<std::string, std::uint64_t> parameters() const;

private:
    struct ElfCloser {
        void operator()(Elf *elf) const { elf_end(elf); }
    };

    LibraryFile() = default;
    Result<void> open(std::span<const std::byte> bytes);
    template <typename Visit> void for_each_symbol(Visit visit) const;
    Result<void> read_segments(std::span<const std::byte> bytes);
    void read_sections();
    void read_build_id(Elf_Data *notes);
    void read_debug_link(const Elf_Data *link);

    std::unique_ptr<Elf, ElfCloser> elf_;
    elf::CodeView code_;
    Elf_Scn *symbols_ = nullptr; // the section
    std::string build_id_;
    std::string debug_link_;
    elf::CodeRange read_only_data_;
    std::uint64_t exception_table_ = 0; // address of .eh_frame_hdr; 0: there is none
    bool has_symbol_table_ = false;
    bool has_debug_types_ = false;
};

// IbQpsPerConn of _ZZ21ncclParamIbQpsPerConnvE5cache, the variable where ncclParamIbQpsPerConn()
// keeps its value; empty for other symbols.
std::string_view parameter_name(std::string_view symbol);

// Code that may jump into a function: the function itself and its split-off parts.
std::vector<elf::CodeRange> jump_sources(const LibraryFile::Symbols &symbols,
                                         const LibrarySymbol &function);

} // namespace collwire::nccl
