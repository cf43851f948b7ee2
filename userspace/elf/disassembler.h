// SPDX-License-Identifier: Apache-2.0
// One x86-64 instruction at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <capstone/capstone.h>

namespace collwire::elf {

// Registers as bits: the first six arguments of a function, and the callee-saved ones.
enum Registers : unsigned {
    ARGUMENT_1 = 1u << 0, // rdi
    ARGUMENT_2 = 1u << 1, // rsi
    ARGUMENT_3 = 1u << 2, // rdx
    ARGUMENT_4 = 1u << 3, // rcx
    ARGUMENT_5 = 1u << 4, // r8
    ARGUMENT_6 = 1u << 5, // r9
    REGISTER_RBX = 1u << 6,
    REGISTER_RBP = 1u << 7,
    REGISTER_R12 = 1u << 8,
    REGISTER_R13 = 1u << 9,
    REGISTER_R14 = 1u << 10,
    REGISTER_R15 = 1u << 11,
};

// "rdi", "rbx": 0 of others.
unsigned register_bit(std::string_view name);

class Disassembler {
public:
    Disassembler();
    Disassembler(const Disassembler &) = delete;
    Disassembler &operator=(const Disassembler &) = delete;
    ~Disassembler();

    // Valid until the next call; nullptr if the bytes are not an instruction.
    const cs_insn *decode(std::span<const std::byte> code, std::uint64_t address);

    [[nodiscard]] bool in_group(const cs_insn &instruction, unsigned group) const;
    // A jump, a call, a return or a trap: execution may continue elsewhere.
    [[nodiscard]] bool leaves(const cs_insn &instruction) const;
    // As bits of Registers; all of them if that is not known.
    [[nodiscard]] unsigned overwritten(const cs_insn &instruction) const;

private:
    csh handle_ = 0;
    cs_insn *instruction_ = nullptr;
};

// AT&T syntax.
std::string text_of(const cs_insn &instruction);

} // namespace collwire::elf
