// SPDX-License-Identifier: Apache-2.0
// Small x86-64 shared objects, made in memory: code, pointer slots, relocations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <elf.h>

namespace collwire::test {

// Layout, addresses equal to file offsets: headers, dynamic tables | code at 0x1000 | data at DATA.
class ElfBuilder {
public:
    static constexpr std::uint64_t CODE = 0x1000;
    static constexpr std::uint64_t DATA = 0x4000;
    static constexpr std::uint64_t END = 0x6000;

    ElfBuilder() : bytes_(END) {}

    void code(std::uint64_t address, std::initializer_list<int> instructions) {
        for (const int byte : instructions)
            bytes_[address++] = static_cast<std::byte>(byte);
    }
    void raw(std::uint64_t address, std::uint64_t value) { put(address, value); }
    void pointer(std::uint64_t slot, std::uint64_t target) {
        relocations_.push_back(
            {slot, ELF64_R_INFO(0, R_X86_64_RELATIVE), static_cast<std::int64_t>(target)});
    }
    // In the packed table instead, the pointer in the slot itself. Slots ascending.
    void packed_pointer(std::uint64_t slot, std::uint64_t target) {
        put(slot, target);
        packed_.push_back(slot);
    }
    void import_pointer(std::uint64_t slot, std::string_view symbol, unsigned type) {
        Elf64_Sym entry{};
        entry.st_name = static_cast<Elf64_Word>(strings_.size());
        strings_ += symbol;
        strings_ += '\0';
        symbols_.push_back(entry);
        relocations_.push_back({slot, ELF64_R_INFO(symbols_.size() - 1, type), 0});
    }
    // Where functions begin, for .eh_frame_hdr; without any there is no such table.
    void function(std::uint64_t address) { functions_.push_back(address); }
    void private_abi(std::string_view version) {
        strings_ += version;
        strings_ += '\0';
    }

    std::vector<std::byte> build() {
        Elf64_Ehdr header{};
        std::memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = ELFCLASS64;
        header.e_ident[EI_DATA] = ELFDATA2LSB;
        header.e_ident[EI_VERSION] = EV_CURRENT;
        header.e_type = ET_DYN;
        header.e_machine = EM_X86_64;
        header.e_version = EV_CURRENT;
        header.e_phoff = sizeof header;
        header.e_ehsize = sizeof header;
        header.e_phentsize = sizeof(Elf64_Phdr);

        std::uint64_t at = sizeof header + 16 * sizeof(Elf64_Phdr);
        const auto place = [&](const void *data, std::size_t size) {
            const std::uint64_t begin = at;
            if (size != 0)
                std::memcpy(bytes_.data() + begin, data, size);
            at += (size + 15) / 16 * 16;
            return begin;
        };
        const auto symbols = place(symbols_.data(), symbols_.size() * sizeof(Elf64_Sym));
        const auto strings = place(strings_.data(), strings_.size());
        const auto packed = place(packed_.data(), packed_.size() * 8);
        const auto relocations =
            place(relocations_.data(), relocations_.size() * sizeof(Elf64_Rela));
        const std::vector<Elf64_Dyn> dynamic = {
            {DT_SYMTAB, {symbols}},
            {DT_STRTAB, {strings}},
            {DT_STRSZ, {strings_.size()}},
            {DT_RELA, {relocations}},
            {DT_RELASZ, {relocations_.size() * sizeof(Elf64_Rela)}},
            {36, {packed}}, // DT_RELR, DT_RELRSZ: not in every elf.h
            {35, {packed_.size() * 8}},
            {DT_NULL, {0}}};
        const auto dynamic_at = place(dynamic.data(), dynamic.size() * sizeof(Elf64_Dyn));
        // Version 1; one unused pointer, the count, pairs of offsets from here.
        std::vector<std::uint32_t> frames = {0x3b031b01, 0,
                                             static_cast<std::uint32_t>(functions_.size())};
        for (const std::uint64_t address : functions_) {
            frames.push_back(static_cast<std::uint32_t>(address - at));
            frames.push_back(0);
        }
        const auto frames_at = place(frames.data(), frames.size() * 4);
        std::vector<Elf64_Phdr> parts = {
            {PT_LOAD, PF_R, 0, 0, 0, CODE, CODE, 0x1000},
            {PT_LOAD, PF_R | PF_X, CODE, CODE, CODE, DATA - CODE, DATA - CODE, 0x1000},
            {PT_LOAD, PF_R | PF_W, DATA, DATA, DATA, END - DATA, END - DATA, 0x1000},
            {PT_DYNAMIC, PF_R, dynamic_at, dynamic_at, dynamic_at,
             dynamic.size() * sizeof(Elf64_Dyn), dynamic.size() * sizeof(Elf64_Dyn), 8},
            {PT_GNU_RELRO, PF_R, DATA, DATA, DATA, END - DATA, END - DATA, 1}};
        if (!functions_.empty())
            parts.push_back({PT_GNU_EH_FRAME, PF_R, frames_at, frames_at, frames_at,
                             frames.size() * 4, frames.size() * 4, 4});
        header.e_phnum = static_cast<Elf64_Half>(parts.size());
        std::memcpy(bytes_.data(), &header, sizeof header);
        std::memcpy(bytes_.data() + sizeof header, parts.data(), parts.size() * sizeof(Elf64_Phdr));
        return bytes_;
    }

private:
    void put(std::uint64_t address, std::uint64_t value) {
        std::memcpy(bytes_.data() + address, &value, sizeof value);
    }
    std::vector<std::byte> bytes_;
    std::vector<Elf64_Rela> relocations_;
    std::vector<Elf64_Sym> symbols_ = std::vector<Elf64_Sym>(1);
    std::vector<std::uint64_t> packed_;
    std::vector<std::uint64_t> functions_;
    std::string strings_ = std::string(1, '\0');
};

} // namespace collwire::test
