// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/code_facts.h"

#include <algorithm>

namespace collwire::nccl {
namespace {

constexpr std::uint64_t MAX_FUNCTION_BYTES = 64UL * 1024;
constexpr unsigned INSTRUCTIONS_BETWEEN = 8; // of a load and its store

// Calls `look` for every instruction until it says true.
template <typename Look>
bool any_instruction(const CodeView &code, const LibrarySymbol &function, Look look) {
    Disassembler disassembler;
    const std::uint64_t end = function.address + std::min(function.bytes, MAX_FUNCTION_BYTES);
    for (std::uint64_t at = function.address; at < end;) {
        const cs_insn *instruction = disassembler.decode(code.bytes_from(at), at);
        if (instruction == nullptr)
            return false;
        const cs_x86 &x86 = instruction->detail->x86;
        if (look(*instruction, std::span{x86.operands, x86.op_count}))
            return true;
        at += instruction->size;
    }
    return false;
}

// AT&T puts the destination last, and capstone orders operands by the syntax.
const cs_x86_op *memory_at(const cs_x86_op &operand, std::uint64_t offset_bytes) {
    return operand.type == X86_OP_MEM && operand.mem.base != X86_REG_RIP &&
                   operand.mem.disp == static_cast<std::int64_t>(offset_bytes)
               ? &operand
               : nullptr;
}

} // namespace

std::optional<std::uint32_t> stored_number(const CodeView &code, const LibrarySymbol &get_version) {
    std::optional<std::uint32_t> number;
    any_instruction(code, get_version, [&](const cs_insn &instruction, auto operands) {
        if (instruction.id != X86_INS_MOV || operands.size() != 2 ||
            operands[0].type != X86_OP_IMM || operands[1].type != X86_OP_MEM ||
            operands[1].size != sizeof(std::uint32_t))
            return false;
        number = static_cast<std::uint32_t>(operands[0].imm);
        return true;
    });
    return number;
}

bool reads_int_at(const CodeView &code, const LibrarySymbol &getter, std::uint64_t offset_bytes) {
    return any_instruction(code, getter, [&](const cs_insn &instruction, auto operands) {
        return instruction.id == X86_INS_MOV && operands.size() == 2 &&
               memory_at(operands[0], offset_bytes) != nullptr &&
               operands[0].size == sizeof(std::uint32_t) && operands[1].type == X86_OP_REG;
    });
}

bool adds_at(const CodeView &code, const LibrarySymbol &function, std::uint64_t offset_bytes) {
    unsigned loaded_register = X86_REG_INVALID;
    unsigned base = X86_REG_INVALID;
    unsigned left = 0;
    return any_instruction(code, function, [&](const cs_insn &instruction, auto operands) {
        left -= left == 0 ? 0 : 1;
        if (operands.size() != 2)
            return false;
        const bool add = instruction.id == X86_INS_ADD;
        if (const cs_x86_op *to = memory_at(operands[1], offset_bytes)) {
            return add ||
                   (instruction.id == X86_INS_MOV && left != 0 && operands[0].type == X86_OP_REG &&
                    operands[0].reg == loaded_register && to->mem.base == base);
        }
        const cs_x86_op *from = memory_at(operands[0], offset_bytes);
        if (from != nullptr && (add || instruction.id == X86_INS_MOV) &&
            operands[1].type == X86_OP_REG) {
            loaded_register = operands[1].reg;
            base = from->mem.base;
            left = INSTRUCTIONS_BETWEEN;
        }
        return false;
    });
}

} // namespace collwire::nccl
