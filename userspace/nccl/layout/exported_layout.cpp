// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/layout/exported_layout.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "userspace/elf/probe_point.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/layout/check_layout.h"
#include "userspace/nccl/library/code_facts.h"

namespace collwire::nccl {
namespace {

constexpr unsigned SIX = (elf::ARGUMENT_6 << 1U) - 1;

// nccl.h: since 2.7, ...Config since 2.14, ncclCommSplit since 2.18, ...Scalable since 2.23, the
// last three since 2.28. `registers` are those that the program reads.
struct ExportedFunction {
    std::string_view name;
    unsigned registers;
};
constexpr std::array<ExportedFunction, 16> CALLS{{
    {"ncclCommInitRank", elf::ARGUMENT_1},
    {"ncclCommInitRankConfig", elf::ARGUMENT_1},
    {"ncclCommInitRankScalable", elf::ARGUMENT_1},
    {"ncclCommSplit", elf::ARGUMENT_1 | elf::ARGUMENT_2 | elf::ARGUMENT_4},
    {"ncclCommDestroy", elf::ARGUMENT_1},
    {"ncclCommAbort", elf::ARGUMENT_1},
    {"ncclAllReduce", SIX},
    {"ncclBroadcast", SIX},
    {"ncclReduce", SIX},
    {"ncclAllGather", SIX},
    {"ncclReduceScatter", SIX},
    {"ncclSend", SIX},
    {"ncclRecv", SIX},
    {"ncclAlltoAll", SIX},
    {"ncclGather", SIX},
    {"ncclScatter", SIX},
}};
// Nothing is recorded if it, or a getter, is missing.
constexpr std::string_view NEEDED = "ncclAllReduce";

constexpr std::string_view LAST_ERROR = "ncclGetLastError";
constexpr std::string_view LAST_ERROR_TEXT =
    "ncclLastError"; // the variable whose address it returns

// In every official build from 2.18 to 2.32 ncclComm::commHash, of 64 bits, is right before rank.
constexpr std::uint64_t HASH_BYTES = 8;
constexpr std::uint32_t FIRST_WITH_HASH_THERE = 21800;

constexpr std::array<std::string_view, 5> EXPORTED_FIELDS{"ncclComm.rank", "ncclComm.nRanks",
                                                          "ncclComm.cudaDev", "ncclComm.commHash",
                                                          "ncclComm.startMagic"};

constexpr std::string_view SOURCE = "the functions that it exports";

void forget_all_but(std::map<std::string, FieldOffset> offsets, LibraryLayout &layout) {
    layout.offsets = std::move(offsets);
    layout.data.clear();
    layout.parameters.clear();
    layout.enumerators.clear();
}

class Exporter {
public:
    Exporter(const LibraryFile &file, LibraryLayout &layout) : file_(file), layout_(layout) {
        std::vector<std::string_view> names{LAST_ERROR};
        for (const ExportedFunction &call : CALLS)
            names.push_back(call.name);
        for (const Getter &getter : GETTERS)
            names.push_back(getter.function);
        std::ranges::sort(names);
        symbols_ = file.find(names);
    }

    void run() {
        if (!find_fields())
            return;
        std::vector<ProbedFunction> probes;
        for (const ExportedFunction &call : CALLS)
            if (auto probe = probe_on(call))
                probes.push_back(std::move(*probe));
        if (std::ranges::find(probes, NEEDED, &ProbedFunction::function) == probes.end())
            return;
        layout_.probes = std::move(probes);
        // Without inspection nothing else is known of its memory.
        if (const Capability *inspect = find_capability(layout_, "inspect");
            inspect == nullptr || inspect->rung == Certainty::Process)
            forget_all_but(offsets_, layout_);
        else
            layout_.offsets.merge(offsets_);
        const LibrarySymbol *last_error = function(LAST_ERROR);
        if (const auto text =
                last_error == nullptr ? std::nullopt : returned_address(file_.code(), *last_error))
            layout_.data.emplace(LAST_ERROR_TEXT, *text);
        for (Capability &capability : layout_.capabilities)
            if (capability.name == "communicators" || capability.name == "operations") {
                capability.rung = Certainty::Inferred;
                capability.source = SOURCE;
            }
        layout_.calls_only = std::exchange(layout_.not_recorded, {});
    }

private:
    [[nodiscard]] const LibrarySymbol *function(std::string_view name) const {
        const auto [begin, end] = symbols_.equal_range(name);
        for (auto at = begin; at != end; ++at)
            if (at->second.function && at->second.form == SymbolForm::Standard &&
                at->second.bytes != 0)
                return &at->second;
        return nullptr;
    }

    bool find_fields() {
        if (version_number(layout_.version) < FIRST_WITH_HASH_THERE)
            return false;
        for (const Getter &getter : GETTERS) {
            const LibrarySymbol *symbol = function(getter.function);
            const auto offset =
                symbol == nullptr ? std::nullopt : int_handed_on(file_.code(), *symbol);
            if (!offset)
                return false;
            add(getter.field, *offset, sizeof(std::int32_t), "code of a getter");
        }
        const std::uint64_t rank = offsets_.at("ncclComm.rank").value;
        if (rank < HASH_BYTES)
            return false;
        add("ncclComm.commHash", rank - HASH_BYTES, HASH_BYTES, "before the rank");
        if (begins_with_magic())
            add("ncclComm.startMagic", 0, sizeof(COMM_MAGIC), "code that compares it");
        return true;
    }

    void add(std::string_view field, std::uint64_t value, std::uint64_t size_bytes,
             std::string_view source) {
        offsets_.emplace(field, FieldOffset{value, size_bytes, 0, std::string{source}});
    }

    // A getter checks its argument, in a function of its own or inline.
    [[nodiscard]] bool begins_with_magic() const {
        const LibrarySymbol *getter = function(GETTERS.front().function);
        const elf::CodeRange own{getter->address, getter->bytes};
        if (compares_at(file_.code(), own, COMM_MAGIC, 0))
            return true;
        const std::vector<std::uint64_t> starts = file_.function_starts();
        return std::ranges::any_of(direct_calls(file_.code(), own), [&](const DirectCall &call) {
            const auto next_start = std::ranges::upper_bound(starts, call.callee);
            return next_start != starts.end() &&
                   compares_at(file_.code(), {call.callee, *next_start - call.callee}, COMM_MAGIC,
                               0);
        });
    }

    [[nodiscard]] std::optional<ProbedFunction> probe_on(const ExportedFunction &call) const {
        const LibrarySymbol *symbol = function(call.name);
        if (symbol == nullptr)
            return std::nullopt;
        ProbedFunction probe;
        probe.function = call.name;
        probe.symbol = symbol->name;
        probe.entry = symbol->address;
        // Its split-off parts have no name here. They jump back past its first instructions. A
        // search of all code takes seconds on an emulated CPU.
        const std::array own{elf::CodeRange{symbol->address, symbol->bytes}};
        auto point = choose_probe_point(file_.code(), symbol->address, call.registers, own);
        if (point && moves_stack(symbol->address, point->address))
            point = at_entry(symbol->address);
        if (!point)
            return std::nullopt;
        probe.address = point->address;
        probe.file_offset = point->file_offset;
        probe.instruction = point->instruction;
        probe.emulated = point->emulated;
        return probe;
    }

    // Arguments after the sixth are on the stack.
    [[nodiscard]] bool moves_stack(std::uint64_t from, std::uint64_t until) const {
        elf::Disassembler disassembler;
        while (from < until) {
            const cs_insn *instruction = disassembler.decode(file_.code().bytes_from(from), from);
            if (instruction == nullptr || writes_stack_pointer(*instruction))
                return true;
            from += instruction->size;
        }
        return false;
    }

    static bool writes_stack_pointer(const cs_insn &instruction) {
        const cs_x86 &x86 = instruction.detail->x86;
        return instruction.id == X86_INS_PUSH || instruction.id == X86_INS_POP ||
               instruction.id == X86_INS_CALL || instruction.id == X86_INS_ENTER ||
               instruction.id == X86_INS_LEAVE ||
               std::ranges::any_of(std::span{x86.operands, x86.op_count}, [](const auto &operand) {
                   return operand.type == X86_OP_REG && operand.reg == X86_REG_RSP;
               });
    }

    [[nodiscard]] Result<elf::ProbePoint> at_entry(std::uint64_t entry) const {
        elf::Disassembler disassembler;
        const auto offset = file_.code().file_offset(entry);
        const cs_insn *instruction =
            offset ? disassembler.decode(file_.code().bytes_from(entry), entry) : nullptr;
        if (instruction == nullptr)
            return error(ErrorKind::BadInput, "no code at its entry");
        return elf::ProbePoint{entry, *offset, elf::text_of(*instruction), false};
    }

    const LibraryFile &file_;
    LibraryLayout &layout_;
    LibraryFile::Symbols symbols_;
    std::map<std::string, FieldOffset> offsets_;
};

} // namespace

void add_exported_functions(const LibraryFile &file, LibraryLayout &layout) {
    if (!layout.not_recorded.empty())
        Exporter{file, layout}.run();
}

void keep_exported(LibraryLayout &layout) {
    std::map<std::string, FieldOffset> offsets;
    for (const std::string_view field : EXPORTED_FIELDS)
        if (const auto found = layout.offsets.find(std::string{field});
            found != layout.offsets.end())
            offsets.insert(*found);
    auto data = std::exchange(layout.data, {});
    forget_all_but(std::move(offsets), layout);
    if (const auto text = data.find(std::string{LAST_ERROR_TEXT}); text != data.end())
        layout.data.insert(*text);
}

bool is_exported_call(std::string_view function) {
    return std::ranges::find(CALLS, function, &ExportedFunction::name) != CALLS.end();
}

} // namespace collwire::nccl
