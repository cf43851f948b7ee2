// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/probe_point.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "userspace/elf/disassembler.h"

namespace collwire::elf {
namespace {

constexpr std::size_t MAX_PROLOGUE_INSTRUCTIONS = 64;
constexpr std::size_t SHORT_JUMP_REACH_BYTES = 128;

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

// Short jumps reach as far as this from the point on; any in [begin, there) are found by decoding.
bool jumped_into_from_near(const CodeView &code, Disassembler &disassembler, Range range,
                           std::uint64_t begin, std::uint64_t entry, std::uint64_t end) {
    for (std::uint64_t address = begin; address < end;) {
        const cs_insn *instruction = disassembler.decode(code.bytes_from(address), address);
        if (instruction == nullptr)
            break;
        if (disassembler.in_group(*instruction, CS_GRP_JUMP)) {
            const auto target = direct_target(*instruction);
            // Also to the entry from after it: a loop around everything would count each round.
            if (target && (range.holds(*target) || (*target == entry && address >= entry)))
                return true;
        }
        address += instruction->size;
    }
    return false;
}

// At every byte: finds all long jumps, and perhaps some false ones, which only costs the point.
bool long_jump_into(std::span<const std::byte> code, std::uint64_t begin, Range range) {
    for (std::size_t at = 0; at + 4 < code.size(); ++at) {
        const auto opcode = std::to_integer<unsigned>(code[at]);
        const bool conditional =
            at > 0 && code[at - 1] == std::byte{0x0f} && (opcode & 0xf0) == 0x80;
        if (opcode != 0xe8 && opcode != 0xe9 && !conditional)
            continue;
        std::int32_t displacement = 0;
        std::memcpy(&displacement, code.data() + at + 1, sizeof displacement);
        if (range.holds(begin + at + 5 + static_cast<std::uint64_t>(displacement)))
            return true;
    }
    return false;
}

// Whether any code jumps between the entry and the point.
bool jumped_into(const CodeView &code, Disassembler &disassembler, Range range, std::uint64_t entry,
                 std::span<const CodeRange> jump_sources) {
    // If the entry is in the middle of a function, code before it may jump, too.
    std::uint64_t begin = entry;
    for (const CodeRange &source : jump_sources)
        if (entry >= source.begin && entry - source.begin < source.bytes)
            begin = source.begin;
    if (jumped_into_from_near(code, disassembler, range, begin, entry,
                              range.last + SHORT_JUMP_REACH_BYTES))
        return true;
    if (range.after == range.last)
        return false;
    for (const CodeRange &source : jump_sources) {
        const auto bytes = code.bytes_from(source.begin);
        if (long_jump_into(bytes.first(std::min<std::uint64_t>(bytes.size(), source.bytes)),
                           source.begin, range))
            return true;
    }
    if (!jump_sources.empty())
        return false;
    return std::ranges::any_of(code.segments(), [&](const ElfSegment &segment) {
        return segment.executable &&
               long_jump_into(code.bytes_from(segment.address), segment.address, range);
    });
}

} // namespace

Result<ProbePoint> choose_probe_point(const CodeView &code, std::uint64_t entry, unsigned registers,
                                      std::span<const CodeRange> jump_sources) {
    Disassembler disassembler;
    std::optional<ProbePoint> fallback;
    std::uint64_t address = entry;
    for (std::size_t i = 0; i < MAX_PROLOGUE_INSTRUCTIONS; ++i) {
        const auto offset = code.file_offset(address);
        const cs_insn *instruction = code.is_code(address) && offset
                                         ? disassembler.decode(code.bytes_from(address), address)
                                         : nullptr;
        if (instruction == nullptr)
            break;
        const KernelView view = kernel_view(*instruction);
        const bool leaves = disassembler.leaves(*instruction);
        const ProbePoint here{address, *offset, text_of(*instruction),
                              view == KernelView::Emulated};
        const std::uint64_t next = address + instruction->size;
        const unsigned lost = disassembler.overwritten(*instruction);
        if (here.emulated &&
            !jumped_into(code, disassembler, {entry, address}, entry, jump_sources))
            return here;
        if (!fallback && view == KernelView::SingleStepped)
            fallback = here;
        if (leaves || (lost & registers) != 0)
            break;
        address = next;
    }
    if (fallback)
        return *fallback;
    return error(ErrorKind::BadInput, fmt::format("no instruction to probe at {:#x}", entry));
}

} // namespace collwire::elf
