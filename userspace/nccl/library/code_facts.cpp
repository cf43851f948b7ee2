// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/library/code_facts.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace collwire::nccl {
namespace {

constexpr std::uint64_t MAX_FUNCTION_BYTES = 64UL * 1024;
constexpr unsigned INSTRUCTIONS_BETWEEN = 8; // of a load and its store
constexpr unsigned INSTRUCTIONS_OF_BEGIN = 48;

struct PreservedRegister {
    unsigned number; // capstone's
    unsigned bit;    // of Registers
    std::string_view name;
};
constexpr std::array<PreservedRegister, 6> PRESERVED{{
    {X86_REG_RBX, elf::REGISTER_RBX, "rbx"},
    {X86_REG_RBP, elf::REGISTER_RBP, "rbp"},
    {X86_REG_R12, elf::REGISTER_R12, "r12"},
    {X86_REG_R13, elf::REGISTER_R13, "r13"},
    {X86_REG_R14, elf::REGISTER_R14, "r14"},
    {X86_REG_R15, elf::REGISTER_R15, "r15"},
}};

// Calls `look` for every instruction until it returns true.
template <typename Look>
bool any_instruction(const elf::CodeView &code, const elf::CodeRange &function, Look look) {
    elf::Disassembler disassembler;
    const std::uint64_t end = function.begin + std::min(function.bytes, MAX_FUNCTION_BYTES);
    for (std::uint64_t at = function.begin; at < end;) {
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

template <typename Look>
bool any_instruction(const elf::CodeView &code, const LibrarySymbol &function, Look look) {
    return any_instruction(code, elf::CodeRange{function.address, function.bytes}, look);
}

// AT&T puts the destination last, and capstone orders operands by the syntax.
const cs_x86_op *memory_at(const cs_x86_op &operand, std::uint64_t offset_bytes) {
    return operand.type == X86_OP_MEM && operand.mem.base != X86_REG_RIP &&
                   operand.mem.disp == static_cast<std::int64_t>(offset_bytes)
               ? &operand
               : nullptr;
}

} // namespace

std::optional<std::uint32_t> stored_number(const elf::CodeView &code,
                                           const LibrarySymbol &get_version) {
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

bool reads_int_at(const elf::CodeView &code, const LibrarySymbol &getter,
                  std::uint64_t offset_bytes) {
    return any_instruction(code, getter, [&](const cs_insn &instruction, auto operands) {
        return instruction.id == X86_INS_MOV && operands.size() == 2 &&
               memory_at(operands[0], offset_bytes) != nullptr &&
               operands[0].size == sizeof(std::uint32_t) && operands[1].type == X86_OP_REG;
    });
}

std::optional<std::uint64_t> int_handed_on(const elf::CodeView &code, const LibrarySymbol &getter) {
    std::map<unsigned, std::uint64_t> loaded; // by register
    std::set<std::uint64_t> found;
    any_instruction(code, getter, [&](const cs_insn &instruction, auto operands) {
        if (instruction.id == X86_INS_CALL)
            loaded.clear();
        if (operands.size() != 2)
            return false;
        const cs_x86_op &from = operands[0], &to = operands[1];
        if (to.type == X86_OP_REG) {
            loaded.erase(to.reg);
            const bool is_int = instruction.id == X86_INS_MOV && from.type == X86_OP_MEM &&
                                from.size == sizeof(std::uint32_t) && from.mem.disp > 0;
            if (is_int && from.mem.base != X86_REG_RIP && from.mem.base != X86_REG_RSP &&
                from.mem.index == X86_REG_INVALID)
                loaded.emplace(to.reg, static_cast<std::uint64_t>(from.mem.disp));
        } else if (instruction.id == X86_INS_MOV && from.type == X86_OP_REG &&
                   memory_at(to, 0) != nullptr && to.mem.base != X86_REG_RSP) {
            if (const auto value = loaded.find(from.reg); value != loaded.end())
                found.insert(value->second);
        }
        return false;
    });
    return found.size() == 1 ? std::optional{*found.begin()} : std::nullopt;
}

bool adds_at(const elf::CodeView &code, const LibrarySymbol &function, std::uint64_t offset_bytes) {
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

std::vector<DirectCall> direct_calls(const elf::CodeView &code, const elf::CodeRange &function) {
    std::vector<DirectCall> calls;
    any_instruction(code, function, [&](const cs_insn &instruction, auto operands) {
        if (instruction.id == X86_INS_CALL && operands.size() == 1 &&
            operands[0].type == X86_OP_IMM)
            calls.push_back({instruction.address, static_cast<std::uint64_t>(operands[0].imm)});
        return false;
    });
    return calls;
}

bool begins_with_reading(const elf::CodeView &code, const elf::CodeRange &function,
                         std::uint64_t first_bytes, std::uint64_t second_bytes) {
    std::set<unsigned> has_argument{X86_REG_RDI};
    std::set<unsigned> has_pointer;
    unsigned left = INSTRUCTIONS_OF_BEGIN;
    bool is_found = false;
    any_instruction(code, function, [&](const cs_insn &instruction, auto operands) {
        if (left-- == 0 || instruction.id == X86_INS_CALL)
            return true;
        if (operands.size() != 2)
            return false;
        // A comparison reads it, too.
        const cs_x86_op *second = memory_at(operands[0], second_bytes) != nullptr
                                      ? &operands[0]
                                      : memory_at(operands[1], second_bytes);
        is_found = second != nullptr && has_pointer.contains(second->mem.base) &&
                   (second == operands.data() || instruction.id == X86_INS_CMP);
        if (is_found || instruction.id != X86_INS_MOV || operands[1].type != X86_OP_REG)
            return is_found;
        const unsigned to = operands[1].reg;
        const bool is_copy =
            operands[0].type == X86_OP_REG && has_argument.contains(operands[0].reg);
        const cs_x86_op *first = memory_at(operands[0], first_bytes);
        const bool is_pointer = first != nullptr && has_argument.contains(first->mem.base);
        has_argument.erase(to);
        has_pointer.erase(to);
        if (is_copy)
            has_argument.insert(to);
        if (is_pointer)
            has_pointer.insert(to);
        return false;
    });
    return is_found;
}

bool compares_at(const elf::CodeView &code, const elf::CodeRange &function, std::uint64_t number,
                 std::uint64_t offset_bytes) {
    unsigned has_number = X86_REG_INVALID;
    return any_instruction(code, function, [&](const cs_insn &instruction, auto operands) {
        if (instruction.id == X86_INS_CALL)
            has_number = X86_REG_INVALID;
        if (operands.size() != 2)
            return false;
        const bool is_comparison = instruction.id == X86_INS_CMP;
        if (!is_comparison && operands[1].type == X86_OP_REG) {
            if (operands[0].type == X86_OP_IMM && operands[1].size == sizeof(number) &&
                static_cast<std::uint64_t>(operands[0].imm) == number)
                has_number = operands[1].reg;
            else if (operands[1].reg == has_number && instruction.id != X86_INS_TEST)
                has_number = X86_REG_INVALID;
            return false;
        }
        const auto is_pair = [&](const cs_x86_op &of_register, const cs_x86_op &of_memory) {
            return of_register.type == X86_OP_REG && of_register.reg == has_number &&
                   memory_at(of_memory, offset_bytes) != nullptr;
        };
        return is_comparison && has_number != X86_REG_INVALID &&
               (is_pair(operands[0], operands[1]) || is_pair(operands[1], operands[0]));
    });
}

std::string_view second_argument_at(const elf::CodeView &code, const elf::CodeRange &function,
                                    std::uint64_t call) {
    struct Argument {
        unsigned number; // capstone's
        unsigned bit;
        const PreservedRegister *kept = nullptr;
        bool is_there = true; // in its own register
    };
    std::array<Argument, 2> arguments{
        {{X86_REG_RDI, elf::ARGUMENT_1}, {X86_REG_RSI, elf::ARGUMENT_2}}};
    elf::Disassembler of_writes;
    std::set<unsigned> spoilt; // numbers of registers
    unsigned handed_on = X86_REG_INVALID;
    any_instruction(code, function, [&](const cs_insn &instruction, auto operands) {
        // A pop restores the caller's value: a return follows.
        if (instruction.address >= call || instruction.id == X86_INS_PUSH ||
            instruction.id == X86_INS_POP)
            return instruction.address >= call;
        const bool is_copy = instruction.id == X86_INS_MOV && operands.size() == 2 &&
                             operands[0].type == X86_OP_REG && operands[1].type == X86_OP_REG;
        const unsigned written = of_writes.overwritten(instruction);
        for (const PreservedRegister &one : PRESERVED) {
            if ((written & one.bit) == 0)
                continue;
            const auto argument = std::ranges::find_if(arguments, [&](const Argument &of) {
                return is_copy && of.is_there && of.kept == nullptr &&
                       operands[0].reg == of.number && operands[1].reg == one.number;
            });
            if (argument != arguments.end() && !spoilt.contains(one.number))
                argument->kept = &one;
            spoilt.insert(one.number);
        }
        if ((written & elf::ARGUMENT_1) != 0)
            handed_on = is_copy ? operands[0].reg : X86_REG_INVALID;
        for (Argument &argument : arguments)
            argument.is_there = argument.is_there && (written & argument.bit) == 0 &&
                                instruction.id != X86_INS_CALL;
        return false;
    });
    const auto &[first, second] = arguments;
    return first.kept != nullptr && second.kept != nullptr && handed_on == first.kept->number
               ? second.kept->name
               : std::string_view{};
}

std::optional<std::uint64_t> returned_address(const elf::CodeView &code,
                                              const LibrarySymbol &function) {
    std::optional<std::uint64_t> address;
    any_instruction(code, function, [&](const cs_insn &instruction, auto operands) {
        if (instruction.id == X86_INS_LEA && operands.size() == 2 &&
            operands[0].type == X86_OP_MEM && operands[0].mem.base == X86_REG_RIP &&
            operands[1].type == X86_OP_REG && operands[1].reg == X86_REG_RAX)
            address = instruction.address + instruction.size +
                      static_cast<std::uint64_t>(operands[0].mem.disp);
        return instruction.id == X86_INS_RET;
    });
    return address;
}

} // namespace collwire::nccl
