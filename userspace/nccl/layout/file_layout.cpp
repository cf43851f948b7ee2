// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/layout/file_layout.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/layout/check_layout.h"
#include "userspace/nccl/library/code_facts.h"
#include "userspace/nccl/library/debug_types.h"
#include "userspace/nccl/library/logged_names.h"
#include "userspace/nccl/library/recipe.h"

namespace collwire::nccl {
namespace {

// Read for their code or for their callees, not probed.
constexpr std::array<std::string_view, 12> OTHER_FUNCTIONS{
    "ncclAllReduce",    "ncclGetVersion",    "ncclCommUserRank",  "ncclCommCount",
    "ncclCommCuDevice", "sendProxyProgress", "recvProxyProgress", "hostStreamPlanTask",
    "ncclProxyPost",    "ncclLocalOpAppend", "SaveProxy",         "ncclCommDestroy"};

// DWARF's numbers of the x86-64 psABI.
constexpr std::array<std::string_view, 16> REGISTER_NAMES{"rax", "rdx", "rcx", "rbx", "rsi", "rdi",
                                                          "rbp", "rsp", "r8",  "r9",  "r10", "r11",
                                                          "r12", "r13", "r14", "r15"};
constexpr unsigned RSI = 4, RDI = 5;

constexpr std::array<std::string_view, 6> ARGUMENT_NAMES{"rdi", "rsi", "rdx", "rcx", "r8", "r9"};

// The bit of a callee-saved register; 0 for other registers.
unsigned preserved_bit(unsigned dwarf_register) {
    switch (dwarf_register) {
    case 3:
        return elf::REGISTER_RBX;
    case 6:
        return elf::REGISTER_RBP;
    case 12:
        return elf::REGISTER_R12;
    case 13:
        return elf::REGISTER_R13;
    case 14:
        return elf::REGISTER_R14;
    case 15:
        return elf::REGISTER_R15;
    default:
        return 0;
    }
}

std::vector<std::string_view> alternatives(std::string_view names) {
    std::vector<std::string_view> list;
    for (;;) {
        const auto bar = names.find('|');
        list.push_back(names.substr(0, bar));
        if (bar == std::string_view::npos)
            return list;
        names.remove_prefix(bar + 1);
    }
}

std::vector<std::string_view> wanted_symbols() {
    std::vector<std::string_view> names{OTHER_FUNCTIONS.begin(), OTHER_FUNCTIONS.end()};
    std::ranges::copy(host_functions(), std::back_inserter(names));
    for (const CapabilityRecipe &capability : capability_recipes()) {
        for (const FunctionRecipe &function : capability.functions)
            std::ranges::copy(alternatives(function.names), std::back_inserter(names));
        for (const DataRecipe &data : capability.data)
            std::ranges::copy(alternatives(data.names), std::back_inserter(names));
    }
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

std::vector<std::string> wanted_fields() {
    std::vector<std::string> names;
    for (const CapabilityRecipe &capability : capability_recipes())
        for (const FieldRecipe &field : capability.fields)
            for (const std::string_view name : alternatives(field.names))
                names.emplace_back(name);
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

constexpr std::string_view CLEANUP = "commCleanup";

class Planner {
public:
    Planner(const LibraryFile &file, const LibraryFile *debug)
        : file_(file), of_debug_(debug == nullptr ? file : *debug), has_own_(debug == nullptr),
          names_(wanted_symbols()), symbols_(of_debug_.find(names_)) {}

    Result<LibraryLayout> make() {
        if (function("ncclAllReduce") == nullptr)
            return error(ErrorKind::BadInput,
                         "defines no ncclAllReduce: not NCCL. Fix: name libnccl.so.2, or the "
                         "library that it was linked into");
        layout_.build_id = file_.build_id();
        layout_.debug_link = file_.debug_link();
        layout_.has_symbol_table = of_debug_.has_symbol_table();
        if (const LibrarySymbol *get_version = function("ncclGetVersion"))
            if (const auto number = stored_number(file_.code(), *get_version))
                layout_.version = version_text(*number);
        if (of_debug_.has_debug_types())
            debug_ = DebugInfo::open(of_debug_.elf());
        if (debug_)
            types_ = debug_->types(wanted_fields(), units_of_types(), enumerator_prefixes());
        layout_.has_debug_types = !types_.layouts.empty();
        layout_.enumerators.insert(types_.enumerators.begin(), types_.enumerators.end());
        compare_with_getters();
        for (const CapabilityRecipe &recipe : capability_recipes())
            layout_.capabilities.push_back(capability(recipe));
        layout_.parameters = of_debug_.parameters();
        put_host_functions();
        lower_what_is_not_recorded();
        return std::move(layout_);
    }

private:
    // The only function of this name that takes its arguments where the ABI says.
    [[nodiscard]] const LibrarySymbol *function(std::string_view name,
                                                SymbolForm form = SymbolForm::Standard) const {
        const LibrarySymbol *only = nullptr;
        const auto [begin, end] = symbols_.equal_range(name);
        for (auto at = begin; at != end; ++at) {
            const LibrarySymbol &symbol = at->second;
            if (!symbol.function || symbol.form != form || symbol.bytes == 0)
                continue;
            if (only != nullptr && only->address != symbol.address)
                return nullptr;
            only = &symbol;
        }
        return only;
    }

    void put_host_functions() {
        for (const std::string_view name : host_functions()) {
            std::set<CodePiece> pieces;
            const auto [begin, end] = symbols_.equal_range(name);
            for (auto at = begin; at != end; ++at)
                if (at->second.function && at->second.bytes != 0)
                    pieces.insert({at->second.address, at->second.bytes});
            if (!pieces.empty())
                layout_.host_functions.emplace(name, std::vector(pieces.begin(), pieces.end()));
        }
    }

    [[nodiscard]] const LibrarySymbol *data(std::string_view name) const {
        const auto [begin, end] = symbols_.equal_range(name);
        for (auto at = begin; at != end; ++at)
            if (!at->second.function)
                return &at->second;
        return nullptr;
    }

    // The code of exported functions proves the offsets: DWARF of another build is refused.
    void compare_with_getters() {
        for (const auto &[getter, field] : GETTERS) {
            const auto field_layout = types_.layouts.find(field);
            const LibrarySymbol *symbol = function(getter);
            if (field_layout == types_.layouts.end() || symbol == nullptr)
                continue;
            if (reads_int_at(file_.code(), *symbol, field_layout->second.offset_bytes))
                checked_.emplace(field);
            else
                refused_.emplace_back(
                    fmt::format("{} ({} reads it elsewhere than DWARF says)", field, getter));
        }
    }

    Capability capability(const CapabilityRecipe &recipe) {
        Capability result{std::string{recipe.name}, Certainty::Exact, {}, {}};
        bool exact = refused_.empty();
        if (recipe.name == "communicators")
            result.missing = refused_;
        for (const FunctionRecipe &function : recipe.functions)
            exact = have(function, result) && exact;
        for (const DataRecipe &data : recipe.data)
            exact = have(data, result) && exact;
        for (const FieldRecipe &field : recipe.fields)
            exact = have(field, result) && exact;
        if (recipe.name == "operations")
            exact = plan_early_post(result) && exact;
        if (recipe.name == "bytes")
            exact = exact && sums_bytes(result);
        if (recipe.name == "graphs") // a replay repeats the operations of its first launch
            exact = exact && find_capability(layout_, "operations")->rung == Certainty::Exact;
        result.rung = exact ? Certainty::Exact : weaker(recipe.name);
        result.source = source_of(result);
        return result;
    }

    bool have(const FunctionRecipe &recipe, Capability &capability) {
        for (const std::string_view name : alternatives(recipe.names)) {
            const LibrarySymbol *symbol = function(name);
            if (symbol == nullptr && recipe.part_will_do)
                symbol = standard_part(name);
            if (symbol != nullptr && plan_probe(name, *symbol, recipe.registers, capability))
                return true;
        }
        capability.missing.emplace_back(recipe.names);
        if (recipe.names == CLEANUP)
            plan_cleanup(capability);
        return recipe.need == Need::Optional;
    }

    // A fork, or its compiler, may have inlined it, or left out its name. Then it is found by what
    // it logs, as in a stripped file; else the application's call comes right before.
    void plan_cleanup(Capability &capability) {
        constexpr std::array NAMES{CLEANUP};
        const LoggedNames logged{file_, NAMES};
        const LoggingFunction *cleanup = logged.find(CLEANUP);
        if (cleanup != nullptr && cleanup->is_called) {
            LibrarySymbol symbol;
            symbol.name = symbol.base = CLEANUP;
            symbol.address = cleanup->begin;
            symbol.bytes = cleanup->bytes;
            symbol.function = true;
            if (plan_probe(CLEANUP, symbol, 0, capability))
                return;
        }
        if (const LibrarySymbol *destroy = function("ncclCommDestroy");
            destroy != nullptr && plan_probe(CLEANUP, *destroy, 0, capability))
            capability.missing.emplace_back("commCleanup: ends by ncclCommAbort");
    }

    // If the compiler split a function, its rest calls the part, and DWARF says that the part still
    // has (comm, plan) as its first arguments.
    [[nodiscard]] const LibrarySymbol *standard_part(std::string_view name) const {
        const LibrarySymbol *part = function(name, SymbolForm::Part);
        const bool standard = part != nullptr && debug_ &&
                              debug_->parameter_at_entry(part->address, "comm") == RDI &&
                              debug_->parameter_at_entry(part->address, "plan") == RSI;
        return standard ? part : nullptr;
    }

    // A list of operations that grows too long goes to its proxy before the launch: in
    // ncclLocalOpAppend, which inlines ncclProxyPost, or calls it, or is itself inlined elsewhere.
    bool plan_early_post(Capability &capability) {
        constexpr std::string_view NAME = "ncclLocalOpAppend";
        const LibrarySymbol *post = function("ncclProxyPost");
        auto passings = post != nullptr && debug_ ? debug_->passings_of(post->address)
                                                  : std::vector<DebugInfo::Passing>{};
        std::erase_if(passings,
                      [](const auto &passing) { return passing.function == "ncclProxyStart"; });
        if (passings.size() == 1) {
            ProbedFunction probe;
            probe.function = NAME;
            probe.symbol = passings[0].function;
            for (const auto &[name, symbol] : symbols_)
                if (symbol.function && symbol.address == passings[0].entry)
                    probe.symbol = symbol.name;
            probe.entry = passings[0].entry;
            std::vector<elf::CodeRange> sources;
            if (passings[0].bytes != 0)
                sources.push_back({passings[0].entry, passings[0].bytes});
            if (take_point(probe, passings[0].address, 0, sources)) {
                layout_.probes.push_back(std::move(probe));
                return true;
            }
        }
        capability.missing.emplace_back(
            fmt::format("{}: where it calls ncclProxyPost ({} places)", NAME, passings.size()));
        return false;
    }

    [[nodiscard]] bool take_point(ProbedFunction &probe, std::uint64_t from, unsigned registers,
                                  std::span<const elf::CodeRange> sources) const {
        const auto point = choose_probe_point(file_.code(), from, registers, sources);
        if (!point)
            return false;
        probe.address = point->address;
        probe.file_offset = point->file_offset;
        probe.instruction = point->instruction;
        probe.emulated = point->emulated;
        return true;
    }

    bool plan_probe(std::string_view name, const LibrarySymbol &symbol, unsigned registers,
                    Capability &capability) {
        if (std::ranges::any_of(layout_.probes, [&](const ProbedFunction &probe) {
                return probe.function == name;
            }))
            return true;
        ProbedFunction probe;
        probe.function = name;
        probe.symbol = symbol.name;
        probe.entry = symbol.address;
        for (std::size_t i = 0; i < ARGUMENT_NAMES.size(); ++i)
            if ((registers & (1u << i)) != 0)
                probe.registers.emplace(fmt::format("argument_{}", i + 1), ARGUMENT_NAMES[i]);
        bool complete = true;
        if (name == "ncclProxyStart") {
            const auto number = register_of_plan();
            if (number) {
                registers |= preserved_bit(*number);
                probe.registers.emplace("plan", REGISTER_NAMES[*number]);
            } else {
                capability.missing.emplace_back("ncclProxyStart: where its caller keeps the plan");
                complete = false;
            }
        }
        // Exported symbols alone do not name the parts that were split off.
        const auto sources = of_debug_.has_symbol_table() ? jump_sources(symbols_, symbol)
                                                          : std::vector<elf::CodeRange>{};
        if (!take_point(probe, symbol.address, registers, sources))
            return false;
        layout_.probes.push_back(std::move(probe));
        return complete;
    }

    [[nodiscard]] std::optional<unsigned> register_of_plan() const {
        const LibrarySymbol *caller = function("hostStreamPlanTask");
        if (caller == nullptr)
            caller = function("hostStreamPlanTask", SymbolForm::Part);
        if (caller == nullptr || !debug_)
            return std::nullopt;
        const auto number = debug_->parameter_at_call(caller->address, "ncclProxyStart", "plan");
        return number && preserved_bit(*number) != 0 ? number : std::nullopt;
    }

    bool have(const DataRecipe &recipe, Capability &capability) {
        for (const std::string_view name : alternatives(recipe.names)) {
            if (const LibrarySymbol *symbol = data(name)) {
                layout_.data.emplace(name, symbol->address);
                return true;
            }
        }
        capability.missing.emplace_back(recipe.names);
        return recipe.need == Need::Optional;
    }

    bool have(const FieldRecipe &recipe, Capability &capability) {
        for (const std::string_view name : alternatives(recipe.names)) {
            const auto field_layout = types_.layouts.find(name);
            if (field_layout == types_.layouts.end())
                continue;
            const bool is_size = name.find('.') == std::string_view::npos;
            layout_.offsets.emplace(
                name,
                FieldOffset{is_size ? field_layout->second.size_bytes
                                    : field_layout->second.offset_bytes,
                            field_layout->second.size_bytes, field_layout->second.elements,
                            fmt::format("{}{}", has_own_ ? "dwarf" : "dwarf of its debug file",
                                        checked_.contains(name) ? ", code of a getter" : "")});
            return true;
        }
        capability.missing.emplace_back(recipe.names);
        return recipe.need == Need::Optional;
    }

    // Up to 2.26 the field holds all bytes so far, from 2.27 on those of the last message.
    bool sums_bytes(Capability &capability) const {
        const auto field = types_.layouts.find("ncclProxySubArgs.transSize");
        for (const std::string_view name : {"sendProxyProgress", "recvProxyProgress"}) {
            const auto [begin, end] = symbols_.equal_range(name);
            for (auto at = begin; at != end; ++at)
                if (at->second.function &&
                    adds_at(file_.code(), at->second, field->second.offset_bytes))
                    return true;
        }
        capability.missing.emplace_back("ncclProxySubArgs.transSize as a sum");
        return false;
    }

    [[nodiscard]] bool has_field(std::string_view name) const {
        return types_.layouts.find(name) != types_.layouts.end();
    }

    // A file that the recorder refuses has no certainty above `process`.
    void lower_what_is_not_recorded() {
        const std::vector<std::string> lacks = needed_and_missing();
        if (!lacks.empty()) {
            const bool is_stripped = !layout_.has_symbol_table || !of_debug_.has_debug_types();
            layout_.not_recorded =
                is_stripped
                    ? fmt::format(
                          "it was stripped: it has no {}, so the memory of its processes "
                          "cannot be read. Fix: --symbols with its debug file (build-id {}) or "
                          "with another build of "
                          "NCCL {} or patch releases around it, or the file as NVIDIA publishes it",
                          fmt::join(lacks, " and no "),
                          layout_.build_id.empty() ? "none" : layout_.build_id,
                          layout_.version.empty() ? "of its version" : layout_.version)
                    : fmt::format("not as it has to be: {}. So the memory of its processes cannot "
                                  "be read. Fix: the file as NVIDIA publishes it",
                                  fmt::join(lacks, ", "));
        } else if (const auto bpf_layout = bpf_layout_of(layout_, 0); !bpf_layout) {
            layout_.not_recorded =
                bpf_layout.failure().message +
                ": this collwire does not know such a build. Fix: a newer collwire";
        }
        if (layout_.not_recorded.empty())
            return;
        for (Capability &capability : layout_.capabilities) {
            // It needs no function.
            if (capability.name == "inspect" && layout_.has_debug_types && refused_.empty())
                continue;
            capability.rung = Certainty::Process;
            capability.source.clear();
            for (std::size_t i = lacks.size(); i > 0; --i)
                if (std::ranges::find(capability.missing, lacks[i - 1]) == capability.missing.end())
                    capability.missing.insert(capability.missing.begin(), lacks[i - 1]);
        }
    }

    [[nodiscard]] std::vector<std::string> needed_and_missing() const {
        std::vector<std::string> lacks;
        if (!layout_.has_symbol_table)
            lacks.emplace_back("symbols (.symtab)");
        if (!layout_.has_debug_types)
            lacks.emplace_back(of_debug_.has_debug_types()
                                   ? "types that this collwire finds (DWARF)"
                                   : "types (DWARF)");
        else
            for (const std::string_view name : NEEDED_FUNCTIONS)
                if (find_probe(layout_, name) == nullptr)
                    lacks.emplace_back(name);
        lacks.insert(lacks.end(), refused_.begin(), refused_.end());
        return lacks;
    }

    // The certainty without a part of the recipe. For files that are not recorded see
    // lower_what_is_not_recorded().
    [[nodiscard]] Certainty weaker(std::string_view capability) const {
        if (capability == "errors" || capability == "inspect")
            return Certainty::Process;
        if (capability == "bytes")
            return has_field("ncclProxyOp.channelSize") && has_field("ncclProxyOp.loopSize")
                       ? Certainty::Inferred
                       : Certainty::Process;
        if (capability == "times") // by sampling the field
            return has_field("sendNetResources.step") || has_field("sendResources.step")
                       ? Certainty::Inferred
                       : Certainty::Process;
        return Certainty::Inferred;
    }

    [[nodiscard]] std::string source_of(const Capability &capability) const {
        if (capability.rung == Certainty::Exact)
            return fmt::format("{}{}",
                               has_own_ ? "the file's own symbols and DWARF"
                                        : "symbols and DWARF of its debug file",
                               capability.name == "bytes" ? "; no recording reads it yet" : "");
        if (capability.rung == Certainty::Process)
            return {};
        if (capability.name == "bytes")
            return "computed from the operation's own fields";
        if (capability.name == "times")
            return "samples of what connections count";
        return capability.name == "operations" || capability.name == "graphs"
                   ? "DWARF, and the order of calls"
                   : "DWARF, without what is missing";
    }

    const LibraryFile &file_;
    const LibraryFile &of_debug_; // symbols and types
    bool has_own_;                // they are the file's
    std::vector<std::string_view> names_;
    LibraryFile::Symbols symbols_;
    std::optional<DebugInfo> debug_;
    DebugTypes types_;
    std::set<std::string_view> checked_;
    std::vector<std::string> refused_;
    LibraryLayout layout_;
};

} // namespace

Result<LibraryLayout> make_layout(const LibraryFile &file, const LibraryFile *debug) {
    return Planner{file, debug}.make();
}

} // namespace collwire::nccl
