// SPDX-License-Identifier: Apache-2.0
#include "userspace/verbs/wr_scan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include <capstone/capstone.h>

namespace collwire::verbs {
namespace {

constexpr std::uint64_t WR_START = 320, WR_COMPLETE = 328, WR_ABORT = 336;
constexpr std::uint64_t POINTER_BYTES = 8;
constexpr std::size_t MAX_FUNCTION_BYTES = 64UL * 1024;

// .eh_frame_hdr as every linker writes it: version 1, a sorted table of (function, description),
// both 4 bytes from the header's address (Linux Standard Base, "Exception Frames").
constexpr std::array<std::byte, 4> TABLE_OF_OFFSETS{std::byte{1}, std::byte{0x1b}, std::byte{3},
                                                    std::byte{0x3b}};
constexpr std::size_t TABLE_AT = 12;

std::uint32_t read_u32(std::span<const std::byte> bytes, std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

// Function starts, ascending. Without them no function's end is known, and the stores of the next
// function would count for it.
std::vector<std::uint64_t> function_starts(const elf::ElfImage &image) {
    std::vector<std::uint64_t> starts;
    const std::uint64_t header = image.frame_table();
    const auto bytes = image.bytes_from(header);
    if (header == 0 || bytes.size() < TABLE_AT ||
        !std::equal(TABLE_OF_OFFSETS.begin(), TABLE_OF_OFFSETS.end(), bytes.begin()))
        return starts;
    const std::uint64_t n =
        std::min<std::uint64_t>(read_u32(bytes, 8), (bytes.size() - TABLE_AT) / 8);
    for (std::uint64_t i = 0; i < n; ++i) {
        const auto offset = static_cast<std::int32_t>(read_u32(bytes, TABLE_AT + i * 8));
        const std::uint64_t start = header + static_cast<std::uint64_t>(std::int64_t{offset});
        if (image.is_code(start))
            starts.push_back(start);
    }
    std::ranges::sort(starts);
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
    return starts;
}

// Decoding a whole library is expensive. A function that stores wr_start, wr_complete and wr_abort,
// each alone or as one of a pair, has at least two of these offsets in its code.
bool may_store_calls(std::span<const std::byte> code) {
    std::size_t mentioned = 0;
    for (const std::uint64_t offset : {WR_START - POINTER_BYTES, WR_START, WR_COMPLETE, WR_ABORT}) {
        const auto value = static_cast<std::uint32_t>(offset);
        std::array<std::byte, 4> pattern{};
        std::memcpy(pattern.data(), &value, sizeof value);
        if (std::search(code.begin(), code.end(), pattern.begin(), pattern.end()) != code.end())
            ++mentioned;
    }
    return mentioned >= 2;
}

using CodeAddress = std::uint64_t; // 0: not one

struct Vector {
    CodeAddress low = 0;
    CodeAddress high = 0;
};

// Follows addresses of code from where they are computed to where they are stored, in the order of
// the instructions.
class Tracker {
public:
    explicit Tracker(const elf::ElfImage &image) : image_(image) {}

    // By base register: offset and address of each store through it.
    using Stores = std::map<unsigned, std::vector<std::pair<std::uint64_t, CodeAddress>>>;
    [[nodiscard]] const Stores &stores() const { return stores_; }

    void step(csh handle, const cs_insn &instruction) {
        const cs_x86 &x86 = instruction.detail->x86;
        const std::span operands{x86.operands, x86.op_count};
        if (operands.size() == 2 && understood(instruction, operands[0], operands[1]))
            return;
        forget_written(handle, instruction);
    }

private:
    // The destination is the first operand: capstone's default is Intel's order.
    bool understood(const cs_insn &instruction, const cs_x86_op &to, const cs_x86_op &from) {
        const bool to_memory = to.type == X86_OP_MEM;
        const bool from_memory = from.type == X86_OP_MEM;
        switch (instruction.id) {
        case X86_INS_LEA:
            general_[whole_register(to.reg)] = code(address_of(instruction, from.mem));
            return true;
        case X86_INS_MOV:
            if (to_memory && from.type == X86_OP_REG && from.size == POINTER_BYTES) {
                store(to.mem, general_[from.reg]);
                return true;
            }
            if (to.type == X86_OP_REG && from.type == X86_OP_REG && to.size == POINTER_BYTES) {
                general_[to.reg] = general_[from.reg];
                return true;
            }
            if (to.type == X86_OP_REG && from_memory && to.size == POINTER_BYTES) {
                general_[to.reg] = pointer_in(address_of(instruction, from.mem));
                return true;
            }
            return false;
        case X86_INS_MOVQ:
            if (to_memory) {
                store(to.mem, from.type == X86_OP_REG ? vectors_[from.reg].low : 0);
                return true;
            }
            if (!is_vector(to))
                return false;
            if (from_memory)
                vectors_[to.reg] = {pointer_in(address_of(instruction, from.mem)), 0};
            else if (is_vector(from))
                vectors_[to.reg] = {vectors_[from.reg].low, 0};
            else
                vectors_[to.reg] = {general_[from.reg], 0};
            return true;
        case X86_INS_MOVHPS:
            if (to_memory) {
                store(to.mem, vectors_[from.reg].high);
                return true;
            }
            vectors_[to.reg].high = pointer_in(address_of(instruction, from.mem));
            return true;
        case X86_INS_PUNPCKLQDQ:
            if (!is_vector(from))
                return false;
            vectors_[to.reg].high = vectors_[from.reg].low;
            return true;
        case X86_INS_MOVUPS:
        case X86_INS_MOVAPS:
        case X86_INS_MOVDQU:
        case X86_INS_MOVDQA:
            if (to_memory) {
                store(to.mem, vectors_[from.reg].low);
                store_at(to.mem, POINTER_BYTES, vectors_[from.reg].high);
            } else if (from_memory) {
                const std::uint64_t at = address_of(instruction, from.mem);
                vectors_[to.reg] = {pointer_in(at), at == 0 ? 0 : pointer_in(at + POINTER_BYTES)};
            } else {
                vectors_[to.reg] = vectors_[from.reg];
            }
            return true;
        default:
            return false;
        }
    }

    static bool is_vector(const cs_x86_op &operand) {
        return operand.type == X86_OP_REG && operand.reg >= X86_REG_XMM0 &&
               operand.reg <= X86_REG_XMM31;
    }

    // An address in the library; 0 for every other place.
    static std::uint64_t address_of(const cs_insn &instruction, const x86_op_mem &memory) {
        if (memory.base != X86_REG_RIP || memory.index != X86_REG_INVALID)
            return 0;
        return instruction.address + instruction.size + static_cast<std::uint64_t>(memory.disp);
    }

    [[nodiscard]] CodeAddress code(std::uint64_t address) const {
        return image_.is_code(address) ? address : 0;
    }

    [[nodiscard]] CodeAddress pointer_in(std::uint64_t slot) const {
        const elf::ElfPointer *pointer = slot == 0 ? nullptr : image_.pointer_at(slot);
        return pointer == nullptr ? 0 : code(pointer->target);
    }

    void store(const x86_op_mem &memory, CodeAddress value) { store_at(memory, 0, value); }

    void store_at(const x86_op_mem &memory, std::uint64_t further_bytes, CodeAddress value) {
        // Memory on the stack is not a queue pair.
        if (value == 0 || memory.base == X86_REG_INVALID || memory.base == X86_REG_RIP ||
            memory.base == X86_REG_RSP || memory.index != X86_REG_INVALID || memory.disp < 0)
            return;
        const std::uint64_t offset = static_cast<std::uint64_t>(memory.disp) + further_bytes;
        if (offset >= CW_IBV_QP_EX_FIRST && offset < CW_IBV_QP_EX_END)
            stores_[memory.base].emplace_back(offset, value);
    }

    void forget_written(csh handle, const cs_insn &instruction) {
        cs_regs read{};
        cs_regs written{};
        std::uint8_t n_read = 0;
        std::uint8_t n_written = 0;
        if (cs_insn_group(handle, &instruction, CS_GRP_CALL) ||
            cs_regs_access(handle, &instruction, read, &n_read, written, &n_written) != CS_ERR_OK) {
            general_.clear();
            vectors_.clear();
            return;
        }
        for (std::size_t i = 0; i < n_written; ++i) {
            vectors_.erase(written[i]);
            general_.erase(whole_register(written[i]));
        }
    }

    // The 64-bit register of a partial register: writing a part invalidates the whole.
    static unsigned whole_register(unsigned part) {
        static const std::map<unsigned, unsigned> wholes = {
            {X86_REG_EAX, X86_REG_RAX},  {X86_REG_AX, X86_REG_RAX},   {X86_REG_AL, X86_REG_RAX},
            {X86_REG_EBX, X86_REG_RBX},  {X86_REG_BX, X86_REG_RBX},   {X86_REG_BL, X86_REG_RBX},
            {X86_REG_ECX, X86_REG_RCX},  {X86_REG_CX, X86_REG_RCX},   {X86_REG_CL, X86_REG_RCX},
            {X86_REG_EDX, X86_REG_RDX},  {X86_REG_DX, X86_REG_RDX},   {X86_REG_DL, X86_REG_RDX},
            {X86_REG_ESI, X86_REG_RSI},  {X86_REG_SI, X86_REG_RSI},   {X86_REG_SIL, X86_REG_RSI},
            {X86_REG_EDI, X86_REG_RDI},  {X86_REG_DI, X86_REG_RDI},   {X86_REG_DIL, X86_REG_RDI},
            {X86_REG_EBP, X86_REG_RBP},  {X86_REG_BP, X86_REG_RBP},   {X86_REG_BPL, X86_REG_RBP},
            {X86_REG_R8D, X86_REG_R8},   {X86_REG_R8W, X86_REG_R8},   {X86_REG_R8B, X86_REG_R8},
            {X86_REG_R9D, X86_REG_R9},   {X86_REG_R9W, X86_REG_R9},   {X86_REG_R9B, X86_REG_R9},
            {X86_REG_R10D, X86_REG_R10}, {X86_REG_R10W, X86_REG_R10}, {X86_REG_R10B, X86_REG_R10},
            {X86_REG_R11D, X86_REG_R11}, {X86_REG_R11W, X86_REG_R11}, {X86_REG_R11B, X86_REG_R11},
            {X86_REG_R12D, X86_REG_R12}, {X86_REG_R12W, X86_REG_R12}, {X86_REG_R12B, X86_REG_R12},
            {X86_REG_R13D, X86_REG_R13}, {X86_REG_R13W, X86_REG_R13}, {X86_REG_R13B, X86_REG_R13},
            {X86_REG_R14D, X86_REG_R14}, {X86_REG_R14W, X86_REG_R14}, {X86_REG_R14B, X86_REG_R14},
            {X86_REG_R15D, X86_REG_R15}, {X86_REG_R15W, X86_REG_R15}, {X86_REG_R15B, X86_REG_R15}};
        const auto found = wholes.find(part);
        return found == wholes.end() ? part : found->second;
    }

    const elf::ElfImage &image_;
    std::map<unsigned, CodeAddress> general_;
    std::map<unsigned, Vector> vectors_;
    Stores stores_;
};

class InstructionDecoder {
public:
    InstructionDecoder() {
        if (cs_open(CS_ARCH_X86, CS_MODE_64, &handle_) != CS_ERR_OK) {
            handle_ = 0;
            return;
        }
        cs_option(handle_, CS_OPT_DETAIL, CS_OPT_ON);
        instruction_ = cs_malloc(handle_);
    }
    InstructionDecoder(const InstructionDecoder &) = delete;
    InstructionDecoder &operator=(const InstructionDecoder &) = delete;
    ~InstructionDecoder() {
        if (instruction_ != nullptr)
            cs_free(instruction_, 1);
        if (handle_ != 0)
            cs_close(&handle_);
    }

    // Until the end, or until bytes that are not an instruction.
    void follow(std::span<const std::byte> code, std::uint64_t address, Tracker &tracker) {
        if (instruction_ == nullptr)
            return;
        const auto *bytes = reinterpret_cast<const std::uint8_t *>(code.data());
        std::size_t size = code.size();
        while (cs_disasm_iter(handle_, &bytes, &size, &address, instruction_))
            tracker.step(handle_, *instruction_);
    }

private:
    csh handle_ = 0;
    cs_insn *instruction_ = nullptr;
};

} // namespace

std::vector<WrFunction> find_wr_functions(const elf::ElfImage &image) {
    std::vector<WrFunction> found;
    const auto starts = function_starts(image);
    InstructionDecoder decoder;
    for (std::size_t i = 0; i < starts.size(); ++i) {
        auto code = image.bytes_from(starts[i]);
        if (i + 1 < starts.size())
            code = code.first(std::min<std::uint64_t>(code.size(), starts[i + 1] - starts[i]));
        code = code.first(std::min(code.size(), MAX_FUNCTION_BYTES));
        if (!may_store_calls(code))
            continue;
        Tracker tracker(image);
        decoder.follow(code, starts[i], tracker);
        for (const auto &[base, stores] : tracker.stores()) {
            std::set<std::uint64_t> offsets;
            for (const auto &[offset, address] : stores)
                offsets.insert(offset);
            if (!offsets.contains(WR_START) || !offsets.contains(WR_COMPLETE) ||
                !offsets.contains(WR_ABORT))
                continue;
            for (const auto &[offset, address] : stores) {
                const std::uint32_t call = cw_call_of_qp_ex_offset(offset);
                if (call != CW_CALL_NONE)
                    found.push_back({static_cast<cw_verbs_call>(call), address});
            }
        }
    }
    const auto order = [](const WrFunction &a, const WrFunction &b) {
        return a.call != b.call ? a.call < b.call : a.address < b.address;
    };
    std::ranges::sort(found, order);
    found.erase(std::unique(found.begin(), found.end()), found.end());
    // One function for two calls: its address does not show which call it is.
    std::map<std::uint64_t, std::size_t> calls_at;
    for (const WrFunction &function : found)
        ++calls_at[function.address];
    std::erase_if(found,
                  [&](const WrFunction &function) { return calls_at[function.address] > 1; });
    return found;
}

} // namespace collwire::verbs
