// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/layout/borrowed_layout.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "userspace/elf/probe_point.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/layout/check_layout.h"
#include "userspace/nccl/library/code_facts.h"
#include "userspace/nccl/library/logged_names.h"
#include "userspace/nccl/library/recipe.h"

namespace collwire::nccl {
namespace {

// It logs no name, so it is found by its caller.
constexpr std::string_view START = "ncclProxyStart";
constexpr std::string_view STARTER = "hostStreamPlanTask";
constexpr std::string_view LAUNCHER =
    "ncclLaunchKernelAfter_NoCuda"; // of 2.23 to 2.27 has it inlined
// Its probe is inside the function, at an address that only DWARF gives.
constexpr std::string_view EARLY = "ncclLocalOpAppend";
constexpr std::string_view PLAN_REGISTER = "plan"; // its register there
// It compares startMagic and endMagic. endMagic is the last field of ncclComm.
constexpr std::string_view CHECK = "CommCheck";
constexpr std::string_view CLEANUP = "commCleanup";
constexpr std::string_view DESTROY = "ncclCommDestroy";

constexpr std::array<std::string_view, 3> EXPORTED{DESTROY, "ncclGetLastError", "ncclGetVersion"};

constexpr std::array<std::pair<std::string_view, std::string_view>, 2> NETWORKS{
    {{"ncclNetIb", "IB"}, {"ncclNetSocket", "Socket"}}};
// ncclNet_t starts with its name. In 2.18 to 2.32 at least this many functions follow.
constexpr std::size_t FUNCTIONS_OF_NETWORK = 7;
constexpr std::uint64_t POINTER_BYTES = 8;

constexpr std::size_t BUILD_ID_DIGITS = 12; // that are shown

class Borrower {
public:
    Borrower(const LibraryFile &file, const LibraryLayout &other, Lender lender)
        : file_(file), other_(other), lender_(lender), exported_(file.find(EXPORTED)) {}

    Result<LibraryLayout> make() {
        if (auto checked = check_build(); !checked)
            return std::move(checked).failure();
        const auto names = names_of(other_);
        logged_.emplace(file_, names);
        find_own_symbols(names);
        if (auto checked = check_size(); !checked)
            return std::move(checked).failure();
        layout_.version = version_text(version_of(file_));
        layout_.build_id = file_.build_id();
        layout_.debug_link = file_.debug_link();
        layout_.has_symbol_table = file_.has_symbol_table();
        layout_.has_debug_types = file_.has_debug_types();
        layout_.enumerators = other_.enumerators;
        for (const auto &[name, offset] : other_.offsets)
            layout_.offsets.emplace(
                name, FieldOffset{offset.value, offset.size_bytes, offset.elements,
                                  lender_ == Lender::SameVersion ? "another build's"
                                                                 : "another version's"});
        find_functions();
        find_data();
        put_exported_functions();
        for (const std::string_view name : NEEDED_FUNCTIONS)
            if (find_probe(layout_, name) == nullptr)
                return no(fmt::format("{} is not found in it", name));
        for (const CapabilityRecipe &recipe : capability_recipes())
            layout_.capabilities.push_back(capability(recipe));
        if (const auto bpf_layout = bpf_layout_of(layout_, 0); !bpf_layout)
            return Error{bpf_layout.failure()};
        return std::move(layout_);
    }

private:
    static std::vector<std::string_view> names_of(const LibraryLayout &other) {
        std::vector<std::string_view> names{STARTER, LAUNCHER, CHECK};
        for (const ProbedFunction &probe : other.probes)
            names.push_back(probe.function);
        std::ranges::sort(names);
        names.erase(std::unique(names.begin(), names.end()), names.end());
        return names;
    }

    static Error no(std::string_view what) {
        return error(ErrorKind::BadInput, fmt::format("does not fit that build: {}", what));
    }

    [[nodiscard]] const LibrarySymbol *exported(std::string_view name) const {
        const auto [begin, end] = exported_.equal_range(name);
        for (auto at = begin; at != end; ++at)
            if (at->second.function && at->second.form == SymbolForm::Standard &&
                at->second.bytes != 0)
                return &at->second;
        return nullptr;
    }

    // What was linked from NCCL's static library has symbols and no types.
    void find_own_symbols(std::span<const std::string_view> functions) {
        if (!file_.has_symbol_table())
            return;
        std::vector<std::string_view> names{functions.begin(), functions.end()};
        for (const auto &[name, address] : other_.data)
            names.push_back(name);
        std::ranges::sort(names);
        own_ = file_.find(names);
    }

    // The only one of this name and kind.
    [[nodiscard]] const LibrarySymbol *own(std::string_view name, bool is_function) const {
        const LibrarySymbol *only = nullptr;
        const auto [begin, end] = own_.equal_range(name);
        for (auto at = begin; at != end; ++at) {
            const LibrarySymbol &symbol = at->second;
            if (symbol.function != is_function || symbol.form != SymbolForm::Standard ||
                symbol.bytes == 0)
                continue;
            if (only != nullptr && only->address != symbol.address)
                return nullptr;
            only = &symbol;
        }
        return only;
    }

    // Threads that wait in other functions cannot be seen: those have no names here.
    void put_exported_functions() {
        std::vector<std::string_view> names{host_functions().begin(), host_functions().end()};
        std::ranges::sort(names);
        for (const auto &[name, symbol] : file_.find(names))
            if (symbol.function && symbol.bytes != 0 && name == symbol.name)
                layout_.host_functions[std::string{name}] = {{symbol.address, symbol.bytes}};
    }

    // One version is one source: only the compiler and its options may differ.
    [[nodiscard]] Result<void> check_build() const {
        if (!can_lend(version_of(file_), version_number(other_.version), lender_))
            return no("another version");
        // A layout of this very build was refused before.
        if (other_.build_id == file_.build_id())
            return no("it is of this build");
        if (!other_.not_recorded.empty() || !other_.calls_only.empty() || !other_.has_debug_types)
            return no("no layout is known for that build, either");
        return check_getters(other_, file_);
    }

    // Sizes that cannot be checked are accepted from the same version only.
    [[nodiscard]] Result<void> check_size() const {
        const LoggingFunction *check = logged_->find(CHECK);
        const std::uint32_t end = field_offset(other_, "ncclComm.endMagic");
        const auto compares = [&](std::uint32_t offset) {
            return check != nullptr && offset != CW_NCCL_NO_FIELD &&
                   compares_at(file_.code(), {check->begin, check->bytes}, COMM_MAGIC, offset);
        };
        if (compares(end))
            return {};
        // A compiler may use other code for the comparison.
        if (lender_ == Lender::PatchRelease)
            return no("the size of communicators cannot be checked");
        if (end != CW_NCCL_NO_FIELD && compares(field_offset(other_, "ncclComm.startMagic")))
            return no("communicators of another size");
        return {};
    }

    void find_functions() {
        for (const ProbedFunction &probe : other_.probes) {
            if (probe.function == START) {
                find_start(probe);
                continue;
            }
            const LibrarySymbol *symbol =
                probe.function == EARLY ? nullptr : own(probe.function, true);
            if (symbol != nullptr) {
                add(probe, symbol->name, symbol->address, 0);
                continue;
            }
            const LoggingFunction *function = logged_->find(probe.function);
            if (function == nullptr)
                continue;
            if (probe.function == CLEANUP && !function->is_called) {
                // It was inlined into a function with another argument. The application's call
                // comes right before.
                if (const LibrarySymbol *destroy = exported(DESTROY))
                    add(probe, destroy->name, destroy->address, 0);
                continue;
            }
            if (probe.function != EARLY)
                add(probe, probe.function, function->begin, 0);
        }
    }

    // Of the callees of hostStreamPlanTask, the one that starts by following comm->proxyState to
    // its list of operations, at the offsets of `other`.
    void find_start(const ProbedFunction &probe) {
        const LoggingFunction *starter = logged_->find(STARTER);
        const std::uint32_t state = field_offset(layout_, "ncclComm.proxyState");
        const std::uint32_t operations = field_offset(layout_, "ncclProxyState.proxyOps");
        if (starter == nullptr || state == CW_NCCL_NO_FIELD || operations == CW_NCCL_NO_FIELD)
            return;
        const elf::CodeRange caller{starter->begin, starter->bytes};
        std::set<std::uint64_t> found;
        std::optional<DirectCall> of;
        for (const DirectCall &call : direct_calls(file_.code(), caller)) {
            const elf::CodeRange callee = logged_->function_at(call.callee);
            if (callee.begin == call.callee && callee.bytes != 0 &&
                begins_with_reading(file_.code(), callee, state, operations) &&
                found.insert(call.callee).second)
                of = call;
        }
        if (found.size() != 1)
            return;
        const std::string_view kept = second_argument_at(file_.code(), caller, of->address);
        const unsigned bit = elf::register_bit(kept);
        if (bit == 0)
            return;
        add(probe, START, of->callee, bit);
        if (!layout_.probes.empty() && layout_.probes.back().function == START)
            layout_.probes.back().registers.emplace(PLAN_REGISTER, kept);
    }

    void add(const ProbedFunction &like, std::string_view symbol, std::uint64_t entry,
             unsigned registers) {
        ProbedFunction probe;
        probe.function = like.function;
        probe.symbol = symbol;
        probe.entry = entry;
        for (const auto &[name, place] : like.registers)
            if (name != PLAN_REGISTER) { // its register is the other build's choice
                registers |= elf::register_bit(place);
                probe.registers.emplace(name, place);
            }
        const auto point = choose_probe_point(file_.code(), entry, registers);
        if (!point)
            return;
        probe.address = point->address;
        probe.file_offset = point->file_offset;
        probe.instruction = point->instruction;
        probe.emulated = point->emulated;
        layout_.probes.push_back(std::move(probe));
    }

    void find_data() {
        for (const auto &[name, address] : other_.data)
            if (const LibrarySymbol *symbol = own(name, false))
                layout_.data.emplace(name, symbol->address);
        const auto pointers = file_.pointers();
        for (const auto &[variable, name] : NETWORKS)
            if (const auto address = network(pointers, name))
                layout_.data.emplace(variable, *address);
        if (const LibrarySymbol *getter = exported("ncclGetLastError"))
            if (const auto address = returned_address(file_.code(), *getter))
                layout_.data.emplace("ncclLastError", *address);
    }

    // The only table of functions that begins with this name.
    [[nodiscard]] std::optional<std::uint64_t>
    network(const std::map<std::uint64_t, std::uint64_t> &pointers, std::string_view name) const {
        std::optional<std::uint64_t> only;
        for (const auto &[at, to] : pointers) {
            const auto text = file_.code().bytes_from(to);
            if (!is_constant(to) || text.size() <= name.size() ||
                !std::ranges::equal(text.first(name.size()), std::as_bytes(std::span{name})) ||
                text[name.size()] != std::byte{0})
                continue;
            bool is_table = true;
            for (std::size_t i = 1; is_table && i <= FUNCTIONS_OF_NETWORK; ++i) {
                const auto function = pointers.find(at + i * POINTER_BYTES);
                is_table = function != pointers.end() && file_.code().is_code(function->second) &&
                           !is_constant(function->second);
            }
            if (!is_table)
                continue;
            if (only)
                return std::nullopt;
            only = at;
        }
        return only;
    }

    // In official builds they share a segment with the code.
    [[nodiscard]] bool is_constant(std::uint64_t address) const {
        const elf::CodeRange constants = file_.read_only_data();
        return address >= constants.begin && address - constants.begin < constants.bytes;
    }

    [[nodiscard]] Capability capability(const CapabilityRecipe &recipe) const {
        const Capability *of_other = find_capability(other_, recipe.name);
        Capability result{std::string{recipe.name}, Certainty::Inferred, {}, {}};
        if (of_other == nullptr)
            return {std::string{recipe.name}, Certainty::Process, {}, {}};
        result.missing = of_other->missing;
        const auto miss = [&result](std::string_view names) {
            if (std::ranges::find(result.missing, names) == result.missing.end())
                result.missing.emplace_back(names);
        };
        bool has_all = true;
        if (recipe.name == "operations")
            miss(EARLY);
        if (const ProbedFunction *cleanup = find_probe(layout_, CLEANUP);
            recipe.name == "communicators" && cleanup != nullptr && cleanup->symbol == DESTROY)
            miss("commCleanup: ends by ncclCommAbort");
        for (const FunctionRecipe &function : recipe.functions)
            if (!has_probe(function.names))
                miss(function.names);
        for (const DataRecipe &data : recipe.data)
            if (!layout_.data.contains(std::string{data.names})) {
                miss(data.names);
                has_all = has_all && data.need == Need::Optional;
            }
        if (of_other->rung == Certainty::Process || !has_all)
            result.rung = Certainty::Process;
        else
            result.source = fmt::format(
                "layouts of {} ({}){}, {}",
                lender_ == Lender::SameVersion ? "another build of " + other_.version
                                               : "another version, " + other_.version,
                other_.build_id.substr(0, BUILD_ID_DIGITS),
                lender_ == Lender::SameVersion ? "" : ", equal to those of the next version",
                own_.empty() ? "functions by what they log" : "functions by its own symbols");
        return result;
    }

    [[nodiscard]] bool has_probe(std::string_view names) const {
        for (;;) {
            const auto bar = names.find('|');
            if (find_probe(layout_, names.substr(0, bar)) != nullptr)
                return true;
            if (bar == std::string_view::npos)
                return false;
            names.remove_prefix(bar + 1);
        }
    }

    const LibraryFile &file_;
    const LibraryLayout &other_;
    Lender lender_;
    LibraryFile::Symbols exported_, own_;
    std::optional<LoggedNames> logged_;
    LibraryLayout layout_;
};

} // namespace

std::uint32_t version_of(const LibraryFile &file) {
    for (const auto &[base, symbol] : file.find(EXPORTED))
        if (base == "ncclGetVersion" && symbol.function && symbol.form == SymbolForm::Standard)
            if (const auto number = stored_number(file.code(), symbol))
                return *number;
    return 0;
}

bool is_patch_release(std::uint32_t of, std::uint32_t other) {
    return of != other && of / 100 == other / 100;
}

bool can_lend(std::uint32_t to, std::uint32_t of, Lender lender) {
    if (to == 0 || of == 0)
        return false;
    return lender == Lender::SameVersion ? to == of : is_patch_release(to, of);
}

bool have_same_offsets(const LibraryLayout &a, const LibraryLayout &b) {
    return a.enumerators == b.enumerators &&
           std::ranges::equal(a.offsets, b.offsets, [](const auto &one, const auto &other) {
               return one.first == other.first && one.second.value == other.second.value &&
                      one.second.size_bytes == other.second.size_bytes &&
                      one.second.elements == other.second.elements;
           });
}

Result<LibraryLayout> borrow_layout(const LibraryFile &file, const LibraryLayout &other,
                                    Lender lender) {
    return Borrower{file, other, lender}.make();
}

} // namespace collwire::nccl
