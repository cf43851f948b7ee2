// SPDX-License-Identifier: Apache-2.0
// A shared library as the dynamic loader sees it: segments, and every pointer that it fills in.
// Section headers are not used: they may be stripped, and nothing at run time depends on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "userspace/elf/code_view.h"

namespace collwire::elf {

// A pointer-sized slot that relocation fills. Addresses are those of the file, without load bias.
struct ElfPointer {
    std::uint64_t slot = 0;
    std::uint64_t target = 0; // 0 for a symbol of another library
    std::string symbol;       // empty for a plain pointer into this library
};

class ElfImage {
public:
    // x86-64 shared objects only; `bytes` are the whole file. BadInput names the fault.
    static Result<ElfImage> parse(std::vector<std::byte> bytes);

    ElfImage(const ElfImage &) = delete; // code_ refers to bytes_, which moving leaves in place
    ElfImage &operator=(const ElfImage &) = delete;
    ElfImage(ElfImage &&) = default;
    ElfImage &operator=(ElfImage &&) = default;
    ~ElfImage() = default;

    [[nodiscard]] const CodeView &code() const { return code_; }
    [[nodiscard]] const std::vector<ElfSegment> &segments() const { return code_.segments(); }
    // Sorted by slot, each slot once.
    [[nodiscard]] const std::vector<ElfPointer> &pointers() const { return pointers_; }
    [[nodiscard]] const ElfPointer *pointer_at(std::uint64_t slot) const;
    // The part of the data that the loader makes read-only after relocation; empty if none.
    [[nodiscard]] std::uint64_t relro_begin() const { return relro_begin_; }
    [[nodiscard]] std::uint64_t relro_end() const { return relro_end_; }

    // Address of .eh_frame_hdr, the table of function starts; 0: the file has none.
    [[nodiscard]] std::uint64_t frame_table() const { return frame_table_; }

    // The number in libibverbs' private symbol version, IBVERBS_PRIVATE_34, that the library needs;
    // 0: it needs none.
    [[nodiscard]] unsigned private_abi() const { return private_abi_; }

    // Like code().
    [[nodiscard]] bool is_code(std::uint64_t address) const { return code_.is_code(address); }
    [[nodiscard]] std::optional<std::uint64_t> file_offset(std::uint64_t address) const {
        return code_.file_offset(address);
    }
    [[nodiscard]] std::optional<std::uint64_t> address_of(std::uint64_t file_offset) const {
        return code_.address_of(file_offset);
    }
    [[nodiscard]] std::span<const std::byte> bytes_from(std::uint64_t address) const {
        return code_.bytes_from(address);
    }

private:
    ElfImage() = default;
    Result<void> read(std::vector<std::byte> &&bytes);

    std::vector<std::byte> bytes_;
    CodeView code_;
    std::vector<ElfPointer> pointers_;
    std::uint64_t relro_begin_ = 0;
    std::uint64_t relro_end_ = 0;
    std::uint64_t frame_table_ = 0;
    unsigned private_abi_ = 0;
};

// Reads a whole file of at most 64 MiB. The errors name the path.
Result<std::vector<std::byte>> read_library_file(const std::string &path);

} // namespace collwire::elf
