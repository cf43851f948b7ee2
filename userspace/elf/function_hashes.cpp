// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/function_hashes.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/sha256.h"
#include "userspace/elf/disassembler.h"

namespace collwire::elf {
namespace {

constexpr std::size_t DISTANCE_BYTES = 4;
constexpr std::size_t MOST_TABLE_ENTRIES = 4096;       // of one jump table
constexpr std::size_t MOST_ENTRIES_OF_ALL = 1UL << 20; // NCCL 2.32 has some thousands
constexpr std::uint64_t NO_FUNCTION = ~0ULL;

std::int32_t distance_at(std::span<const std::byte> bytes, std::size_t at) {
    std::int32_t distance = 0;
    std::memcpy(&distance, bytes.data() + at, sizeof distance);
    return distance;
}

// A part of an instruction that depends on addresses, and the address that it means.
struct Distance {
    std::size_t at = 0;
    std::size_t bytes = 0; // 0: it has none
    std::uint64_t target = 0;
    bool is_branch = false;
};

// An instruction has one at most: x86-64 has one memory operand, and no branch to an immediate
// distance has one.
Distance distance_in(const Disassembler &disassembler, const cs_insn &instruction) {
    const cs_x86 &x86 = instruction.detail->x86;
    const std::uint64_t end = instruction.address + instruction.size;
    const auto bytes = std::as_bytes(std::span{instruction.bytes}.first(instruction.size));
    for (std::size_t i = 0; i < x86.op_count; ++i) {
        const cs_x86_op &operand = x86.operands[i];
        const std::size_t at = x86.encoding.disp_offset;
        if (operand.type == X86_OP_MEM && operand.mem.base == X86_REG_RIP && at != 0 &&
            at + DISTANCE_BYTES <= bytes.size() && distance_at(bytes, at) == operand.mem.disp)
            return {at, DISTANCE_BYTES, end + static_cast<std::uint64_t>(operand.mem.disp), false};
    }
    const bool is_branch = disassembler.in_group(instruction, CS_GRP_JUMP) ||
                           disassembler.in_group(instruction, CS_GRP_CALL);
    if (!is_branch || x86.op_count != 1 || x86.operands[0].type != X86_OP_IMM)
        return {};
    // The distance of a branch is its last byte, or its last 4.
    const auto target = static_cast<std::uint64_t>(x86.operands[0].imm);
    const auto distance = static_cast<std::int64_t>(target - end);
    if (bytes.size() > DISTANCE_BYTES &&
        distance_at(bytes, bytes.size() - DISTANCE_BYTES) == distance)
        return {bytes.size() - DISTANCE_BYTES, DISTANCE_BYTES, target, true};
    if (static_cast<std::int8_t>(std::to_integer<unsigned char>(bytes.back())) == distance)
        return {bytes.size() - 1, 1, target, true};
    return {};
}

class FunctionHasher {
public:
    FunctionHasher(const CodeView &code, std::span<const CodeRange> functions,
                   const OnReference &on_reference)
        : code_(code), functions_(functions), on_reference_(on_reference) {}

    FunctionHashes hash() {
        FunctionHashes hashes;
        hashes.each.reserve(functions_.size());
        Sha256 all;
        for (std::size_t i = 0; i < functions_.size(); ++i) {
            targets_.clear();
            const Sha256::Digest digest = hash_one(i);
            hashes.each.push_back(
                static_cast<std::uint32_t>(std::to_integer<std::uint32_t>(digest[0]) << 24 |
                                           std::to_integer<std::uint32_t>(digest[1]) << 16 |
                                           std::to_integer<std::uint32_t>(digest[2]) << 8 |
                                           std::to_integer<std::uint32_t>(digest[3])));
            all.add(digest);
            for (const std::uint64_t target : targets_)
                add_target(all, target);
        }
        if (n_entries_ <= MOST_ENTRIES_OF_ALL)
            hashes.digest = hex_of(all.finish());
        return hashes;
    }

private:
    Sha256::Digest hash_one(std::size_t number) {
        const CodeRange &function = functions_[number];
        const auto code = code_.bytes_from(function.begin).first(function.bytes);
        masked_.assign(code.begin(), code.end());
        tables_.clear();
        for (std::size_t at = 0; at < code.size();) {
            const cs_insn *instruction =
                disassembler_.decode(code.subspan(at), function.begin + at);
            if (instruction == nullptr) { // its bytes count as they are
                ++at;
                continue;
            }
            const Distance distance = distance_in(disassembler_, *instruction);
            const bool is_outside = distance.target - function.begin >= function.bytes;
            if (distance.bytes != 0 && (is_outside || !distance.is_branch)) {
                std::fill_n(masked_.begin() + static_cast<std::ptrdiff_t>(at + distance.at),
                            distance.bytes, std::byte{0});
                targets_.push_back(distance.target);
                if (instruction->id == X86_INS_LEA)
                    add_table(function, distance.target);
                if (on_reference_ && !distance.is_branch)
                    on_reference_(number, at, distance.target);
            }
            at += instruction->size;
        }
        Sha256 hash;
        hash.add_number(function.bytes);
        hash.add(masked_);
        for (const std::uint64_t entry : tables_)
            hash.add_number(entry);
        return hash.finish();
    }

    // Entries of a jump table: distances from the table to this function's instructions.
    void add_table(const CodeRange &function, std::uint64_t table) {
        const auto bytes = code_.bytes_from(table);
        for (std::size_t i = 0; i < MOST_TABLE_ENTRIES && n_entries_ <= MOST_ENTRIES_OF_ALL &&
                                (i + 1) * DISTANCE_BYTES <= bytes.size();
             ++i, ++n_entries_) {
            const std::uint64_t target =
                table +
                static_cast<std::uint64_t>(std::int64_t{distance_at(bytes, i * DISTANCE_BYTES)});
            if (target - function.begin >= function.bytes)
                return;
            tables_.push_back(target - function.begin);
        }
    }

    void add_target(Sha256 &all, std::uint64_t target) {
        const auto next = std::ranges::upper_bound(functions_, target, {}, &CodeRange::begin);
        if (next != functions_.begin() &&
            target - std::prev(next)->begin < std::prev(next)->bytes) {
            all.add_number(static_cast<std::uint64_t>(std::prev(next) - functions_.begin()));
            all.add_number(target - std::prev(next)->begin);
            return;
        }
        all.add_number(NO_FUNCTION);
        all.add_number(data_.try_emplace(target, data_.size()).first->second);
    }

    const CodeView &code_;
    std::span<const CodeRange> functions_;
    const OnReference &on_reference_;
    Disassembler disassembler_;
    std::vector<std::byte> masked_;
    std::vector<std::uint64_t> tables_;  // of one function
    std::vector<std::uint64_t> targets_; // of one function
    std::unordered_map<std::uint64_t, std::uint64_t> data_;
    std::size_t n_entries_ = 0;
};

} // namespace

FunctionHashes hash_functions(const CodeView &code, std::span<const CodeRange> functions,
                              const OnReference &on_reference) {
    return FunctionHasher{code, functions, on_reference}.hash();
}

std::optional<std::uint64_t> referenced_address(const CodeView &code, std::uint64_t at) {
    if (!code.is_code(at))
        return std::nullopt;
    Disassembler disassembler;
    const cs_insn *instruction = disassembler.decode(code.bytes_from(at), at);
    if (instruction == nullptr)
        return std::nullopt;
    const Distance distance = distance_in(disassembler, *instruction);
    return distance.bytes == 0 || distance.is_branch ? std::nullopt
                                                     : std::optional{distance.target};
}

} // namespace collwire::elf
