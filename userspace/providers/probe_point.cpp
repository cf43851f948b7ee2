// SPDX-License-Identifier: Apache-2.0
#include "userspace/providers/probe_point.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <capstone/capstone.h>
#include <fmt/format.h>

namespace collwire {
namespace {

constexpr std::size_t MAX_PROLOGUE_INSTRUCTIONS = 64;
constexpr std::size_t MAX_INSTRUCTION_BYTES = 15;
constexpr std::size_t SHORT_JUMP_REACH_BYTES = 128;

class Disassembler {
public:
    Disassembler() {
        if (cs_open(CS_ARCH_X86, CS_MODE_64, &handle_) != CS_ERR_OK) {
            handle_ = 0;
            return;
        }
        cs_option(handle_, CS_OPT_DETAIL, CS_OPT_ON);
        cs_option(handle_, CS_OPT_SYNTAX, CS_OPT_SYNTAX_ATT);
        instruction_ = cs_malloc(handle_);
    }
    Disassembler(const Disassembler &) = delete;
    Disassembler &operator=(const Disassembler &) = delete;
    ~Disassembler() {
        if (instruction_) {
            cs_free(instruction_, 1);
        }
        if (handle_ != 0) {
            cs_close(&handle_);
        }
    }

    // Valid until the next call; nullptr if these bytes are no instruction.
    const cs_insn *decode(std::span<const std::byte> code, std::uint64_t address) {
        if (!instruction_) {
            return nullptr;
        }
        const auto *bytes = reinterpret_cast<const std::uint8_t *>(code.data());
        std::size_t size = std::min(code.size(), MAX_INSTRUCTION_BYTES);
        return cs_disasm_iter(handle_, &bytes, &size, &address, instruction_) ? instruction_
                                                                              : nullptr;
    }

    [[nodiscard]] bool in_group(const cs_insn &instruction, unsigned group) const {
        return cs_insn_group(handle_, &instruction, group);
    }

    // The arguments that the instruction overwrites, as ProbeArguments bits.
    [[nodiscard]] unsigned overwritten(const cs_insn &instruction) const {
        cs_regs read{};
        cs_regs written{};
        std::uint8_t n_read = 0;
        std::uint8_t n_written = 0;
        if (cs_regs_access(handle_, &instruction, read, &n_read, written, &n_written) !=
            CS_ERR_OK) {
            return ~0u;
        }
        unsigned arguments = 0;
        for (std::size_t i = 0; i < n_written; ++i) {
            switch (written[i]) {
            case X86_REG_RDI:
            case X86_REG_EDI:
            case X86_REG_DI:
            case X86_REG_DIL:
                arguments |= ARGUMENT_1;
                break;
            case X86_REG_RSI:
            case X86_REG_ESI:
            case X86_REG_SI:
            case X86_REG_SIL:
                arguments |= ARGUMENT_2;
                break;
            case X86_REG_RDX:
            case X86_REG_EDX:
            case X86_REG_DX:
            case X86_REG_DL:
            case X86_REG_DH:
                arguments |= ARGUMENT_3;
                break;
            case X86_REG_RCX:
            case X86_REG_ECX:
            case X86_REG_CX:
            case X86_REG_CL:
            case X86_REG_CH:
                arguments |= ARGUMENT_4;
                break;
            default:
                break;
            }
        }
        return arguments;
    }

private:
    csh handle_ = 0;
    cs_insn *instruction_ = nullptr;
};

bool is_legacy_prefix(unsigned byte) {
    switch (byte) {
    case 0x26:
    case 0x2e:
    case 0x36:
    case 0x3e:
    case 0x64:
    case 0x65:
    case 0x66:
    case 0x67:
    case 0xf0:
    case 0xf2:
    case 0xf3:
        return true;
    default:
        return false;
    }
}

enum class KernelView { Emulated, SingleStepped, Refused };

// How uprobes treat these bytes. Refused: prefixes that is_prefix_bad() rejects, and opcodes that
// good_insns_64 leaves out (those that fault or need privileges).
KernelView kernel_view(const cs_insn &instruction) {
    std::size_t at = 0;
    bool operand_size = false;
    while (at < instruction.size && is_legacy_prefix(instruction.bytes[at])) {
        const unsigned prefix = instruction.bytes[at];
        if (prefix == 0x26 || prefix == 0x2e || prefix == 0x36 || prefix == 0x3e ||
            prefix == 0xf0) {
            return KernelView::Refused;
        }
        operand_size = operand_size || prefix == 0x66;
        ++at;
    }
    const std::size_t n_prefixes = at;
    std::optional<unsigned> rex;
    if (at < instruction.size && (instruction.bytes[at] & 0xf0) == 0x40) {
        rex = instruction.bytes[at];
        ++at;
    }
    if (at >= instruction.size) {
        return KernelView::Refused;
    }
    const unsigned opcode = instruction.bytes[at];
    const bool near_condition =
        opcode == 0x0f && at + 1 < instruction.size && (instruction.bytes[at + 1] & 0xf0) == 0x80;
    const bool branch = opcode == 0xeb || opcode == 0xe9 || opcode == 0xe8 ||
                        (opcode & 0xf0) == 0x70 || near_condition;
    if (branch) {
        return operand_size ? KernelView::Refused : KernelView::Emulated;
    }
    if (opcode == 0x90) {
        return rex ? KernelView::SingleStepped : KernelView::Emulated;
    }
    if (opcode >= 0x50 && opcode <= 0x57 && n_prefixes == 0 && (!rex || *rex == 0x41)) {
        return KernelView::Emulated;
    }
    // int3 and other traps, port I/O, hlt, cli, sti, far transfers
    if (opcode == 0xcc || opcode == 0xcd || opcode == 0xce || opcode == 0xcf || opcode == 0xf1 ||
        opcode == 0xf4 || opcode == 0xfa || opcode == 0xfb || (opcode >= 0x6c && opcode <= 0x6f) ||
        (opcode >= 0xe4 && opcode <= 0xe7) || (opcode >= 0xec && opcode <= 0xef) ||
        opcode == 0xca || opcode == 0xcb) {
        return KernelView::Refused;
    }
    return KernelView::SingleStepped;
}

std::optional<std::uint64_t> direct_target(const cs_insn &instruction) {
    const cs_x86 &x86 = instruction.detail->x86;
    if (x86.op_count == 1 && x86.operands[0].type == X86_OP_IMM) {
        return static_cast<std::uint64_t>(x86.operands[0].imm);
    }
    return std::nullopt;
}

struct Range { // (after, last]
    std::uint64_t after;
    std::uint64_t last;
    [[nodiscard]] bool holds(std::uint64_t address) const {
        return address > after && address <= last;
    }
};

// Does any code jump between the entry and the point? Short jumps are looked for by decoding from
// the point on; long ones anywhere in the library, at every byte: that finds all of them, and
// perhaps some that are none, which only costs the point.
bool jumped_into(const ElfImage &image, Disassembler &disassembler, Range range,
                 std::uint64_t entry) {
    for (std::uint64_t address = entry; address < range.last + SHORT_JUMP_REACH_BYTES;) {
        const cs_insn *instruction = disassembler.decode(image.bytes_from(address), address);
        if (!instruction) {
            break;
        }
        if (disassembler.in_group(*instruction, CS_GRP_JUMP)) {
            const auto target = direct_target(*instruction);
            // To the entry, too: a loop around the whole function would count each round.
            if (target && (range.holds(*target) || *target == entry)) {
                return true;
            }
        }
        address += instruction->size;
    }
    for (const ElfSegment &segment : image.segments()) {
        if (!segment.executable) {
            continue;
        }
        const auto code = image.bytes_from(segment.address);
        for (std::size_t at = 0; at + 4 < code.size(); ++at) {
            const auto opcode = std::to_integer<unsigned>(code[at]);
            const bool conditional =
                at > 0 && code[at - 1] == std::byte{0x0f} && (opcode & 0xf0) == 0x80;
            if (opcode != 0xe8 && opcode != 0xe9 && !conditional) {
                continue;
            }
            std::int32_t displacement = 0;
            std::memcpy(&displacement, code.data() + at + 1, sizeof displacement);
            if (range.holds(segment.address + at + 5 + static_cast<std::uint64_t>(displacement))) {
                return true;
            }
        }
    }
    return false;
}

std::string text_of(const cs_insn &instruction) {
    return instruction.op_str[0] == '\0'
               ? std::string{instruction.mnemonic}
               : fmt::format("{} {}", instruction.mnemonic, instruction.op_str);
}

} // namespace

Result<ProbePoint> choose_probe_point(const ElfImage &image, std::uint64_t entry,
                                      unsigned arguments) {
    Disassembler disassembler;
    std::optional<ProbePoint> fallback;
    std::uint64_t address = entry;
    for (std::size_t i = 0; i < MAX_PROLOGUE_INSTRUCTIONS; ++i) {
        const auto offset = image.file_offset(address);
        const cs_insn *instruction = image.is_code(address) && offset
                                         ? disassembler.decode(image.bytes_from(address), address)
                                         : nullptr;
        if (!instruction) {
            break;
        }
        const KernelView view = kernel_view(*instruction);
        const bool leaves = disassembler.in_group(*instruction, CS_GRP_JUMP) ||
                            disassembler.in_group(*instruction, CS_GRP_CALL) ||
                            disassembler.in_group(*instruction, CS_GRP_RET) ||
                            disassembler.in_group(*instruction, CS_GRP_IRET) ||
                            disassembler.in_group(*instruction, CS_GRP_INT);
        const ProbePoint here{address, *offset, text_of(*instruction),
                              view == KernelView::Emulated};
        const std::uint64_t next = address + instruction->size;
        const unsigned lost = disassembler.overwritten(*instruction);
        if (here.emulated && !jumped_into(image, disassembler, {entry, address}, entry)) {
            return here;
        }
        if (!fallback && view == KernelView::SingleStepped) {
            fallback = here;
        }
        if (leaves || (lost & arguments) != 0) {
            break;
        }
        address = next;
    }
    if (fallback) {
        return *fallback;
    }
    return error(ErrorKind::BadInput, fmt::format("no instruction to probe at {:#x}", entry));
}

} // namespace collwire
