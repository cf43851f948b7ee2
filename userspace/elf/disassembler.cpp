// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/disassembler.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace collwire::elf {
namespace {

constexpr std::size_t MAX_INSTRUCTION_BYTES = 15;

unsigned bit_of(unsigned part) {
    switch (part) {
    case X86_REG_RDI:
    case X86_REG_EDI:
    case X86_REG_DI:
    case X86_REG_DIL:
        return ARGUMENT_1;
    case X86_REG_RSI:
    case X86_REG_ESI:
    case X86_REG_SI:
    case X86_REG_SIL:
        return ARGUMENT_2;
    case X86_REG_RDX:
    case X86_REG_EDX:
    case X86_REG_DX:
    case X86_REG_DL:
    case X86_REG_DH:
        return ARGUMENT_3;
    case X86_REG_RCX:
    case X86_REG_ECX:
    case X86_REG_CX:
    case X86_REG_CL:
    case X86_REG_CH:
        return ARGUMENT_4;
    case X86_REG_R8:
    case X86_REG_R8D:
    case X86_REG_R8W:
    case X86_REG_R8B:
        return ARGUMENT_5;
    case X86_REG_R9:
    case X86_REG_R9D:
    case X86_REG_R9W:
    case X86_REG_R9B:
        return ARGUMENT_6;
    case X86_REG_RBX:
    case X86_REG_EBX:
    case X86_REG_BX:
    case X86_REG_BL:
    case X86_REG_BH:
        return REGISTER_RBX;
    case X86_REG_RBP:
    case X86_REG_EBP:
    case X86_REG_BP:
    case X86_REG_BPL:
        return REGISTER_RBP;
    case X86_REG_R12:
    case X86_REG_R12D:
    case X86_REG_R12W:
    case X86_REG_R12B:
        return REGISTER_R12;
    case X86_REG_R13:
    case X86_REG_R13D:
    case X86_REG_R13W:
    case X86_REG_R13B:
        return REGISTER_R13;
    case X86_REG_R14:
    case X86_REG_R14D:
    case X86_REG_R14W:
    case X86_REG_R14B:
        return REGISTER_R14;
    case X86_REG_R15:
    case X86_REG_R15D:
    case X86_REG_R15W:
    case X86_REG_R15B:
        return REGISTER_R15;
    default:
        return 0;
    }
}

} // namespace

unsigned register_bit(std::string_view name) {
    constexpr std::array<std::string_view, 12> NAMES{"rdi", "rsi", "rdx", "rcx", "r8",  "r9",
                                                     "rbx", "rbp", "r12", "r13", "r14", "r15"};
    const auto found = std::ranges::find(NAMES, name);
    return found == NAMES.end() ? 0 : 1u << (found - NAMES.begin());
}

Disassembler::Disassembler() {
    if (cs_open(CS_ARCH_X86, CS_MODE_64, &handle_) != CS_ERR_OK) {
        handle_ = 0;
        return;
    }
    cs_option(handle_, CS_OPT_DETAIL, CS_OPT_ON);
    cs_option(handle_, CS_OPT_SYNTAX, CS_OPT_SYNTAX_ATT);
    instruction_ = cs_malloc(handle_);
}

Disassembler::~Disassembler() {
    if (instruction_ != nullptr)
        cs_free(instruction_, 1);
    if (handle_ != 0)
        cs_close(&handle_);
}

const cs_insn *Disassembler::decode(std::span<const std::byte> code, std::uint64_t address) {
    if (instruction_ == nullptr)
        return nullptr;
    const auto *bytes = reinterpret_cast<const std::uint8_t *>(code.data());
    std::size_t size = std::min(code.size(), MAX_INSTRUCTION_BYTES);
    return cs_disasm_iter(handle_, &bytes, &size, &address, instruction_) ? instruction_ : nullptr;
}

bool Disassembler::in_group(const cs_insn &instruction, unsigned group) const {
    return cs_insn_group(handle_, &instruction, group);
}

bool Disassembler::leaves(const cs_insn &instruction) const {
    for (const unsigned group : {CS_GRP_JUMP, CS_GRP_CALL, CS_GRP_RET, CS_GRP_IRET, CS_GRP_INT})
        if (in_group(instruction, group))
            return true;
    return false;
}

unsigned Disassembler::overwritten(const cs_insn &instruction) const {
    cs_regs read{};
    cs_regs written{};
    std::uint8_t n_read = 0;
    std::uint8_t n_written = 0;
    if (cs_regs_access(handle_, &instruction, read, &n_read, written, &n_written) != CS_ERR_OK)
        return ~0u;
    unsigned registers = 0;
    for (std::size_t i = 0; i < n_written; ++i)
        registers |= bit_of(written[i]);
    return registers;
}

std::string text_of(const cs_insn &instruction) {
    return instruction.op_str[0] == '\0'
               ? std::string{instruction.mnemonic}
               : fmt::format("{} {}", instruction.mnemonic, instruction.op_str);
}

} // namespace collwire::elf
