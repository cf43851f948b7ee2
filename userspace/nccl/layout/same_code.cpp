// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/layout/same_code.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/sha256.h"
#include "userspace/elf/disassembler.h"
#include "userspace/elf/frame_functions.h"
#include "userspace/nccl/layout/borrowed_layout.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/layout/check_layout.h"

namespace collwire::nccl {
namespace {

constexpr std::size_t BUILD_ID_DIGITS = 12;       // that are shown
constexpr std::uint64_t MOST_VARIABLE_BYTES = 64; // of ncclNet_t, from its beginning
constexpr std::size_t MOST_NAMES = 4;             // of functions that differ
constexpr std::uint64_t MOST_CONSTANT_BYTES = 16UL << 20;

std::uint64_t extent_of(std::span<const elf::CodeRange> functions) {
    return functions.back().begin + functions.back().bytes - functions.front().begin;
}

// Of all bytes from the first function to the end of the last one, and of the constants. Empty if
// the functions are in several segments.
std::string sha256_of_bytes(const LibraryFile &file, std::span<const elf::CodeRange> functions) {
    const auto code = file.code().bytes_from(functions.front().begin);
    const elf::CodeRange constants = file.read_only_data();
    const auto data = file.code().bytes_from(constants.begin);
    if (extent_of(functions) > code.size() || constants.bytes > data.size() ||
        constants.bytes > MOST_CONSTANT_BYTES)
        return {};
    Sha256 hash;
    hash.add(code.first(extent_of(functions)));
    hash.add_number(constants.begin);
    hash.add(data.first(constants.bytes));
    return hex_of(hash.finish());
}

using Pointers = std::map<std::uint64_t, std::uint64_t>; // LibraryFile::pointers()

// The number of the function that begins there.
std::optional<std::uint32_t> number_of(std::span<const elf::CodeRange> functions,
                                       std::uint64_t begin) {
    const auto found = std::ranges::lower_bound(functions, begin, {}, &elf::CodeRange::begin);
    if (found == functions.end() || found->begin != begin)
        return std::nullopt;
    return static_cast<std::uint32_t>(found - functions.begin());
}

// The only place of a pointer to this address.
std::optional<std::uint64_t> only_pointer_to(const Pointers &pointers, std::uint64_t target) {
    std::optional<std::uint64_t> only;
    for (const auto &[at, to] : pointers) {
        if (to == target && only)
            return std::nullopt;
        if (to == target)
            only = at;
    }
    return only;
}

// A pointer in the variable at this address that leads to a function, and is the only one to it.
std::optional<CodePlace> pointer_in(const Pointers &pointers,
                                    std::span<const elf::CodeRange> functions,
                                    std::uint64_t variable) {
    const auto end = pointers.lower_bound(variable + MOST_VARIABLE_BYTES);
    for (auto at = pointers.lower_bound(variable); at != end; ++at)
        if (const auto number = number_of(functions, at->second);
            number && only_pointer_to(pointers, at->second))
            return CodePlace{*number, static_cast<std::uint32_t>(at->first - variable)};
    return std::nullopt;
}

struct NamedEntry {
    std::string_view name;
    std::uint64_t address;
};

// Where the functions that a layout names begin, and their split-off parts.
std::vector<NamedEntry> named_entries(const LibraryLayout &layout) {
    std::vector<NamedEntry> entries;
    for (const ProbedFunction &probe : layout.probes)
        entries.push_back({probe.function, probe.entry});
    for (const auto &[name, pieces] : layout.host_functions)
        for (const CodePiece &piece : pieces)
            entries.push_back({name, piece.address});
    return entries;
}

Error differs(std::string_view what) {
    return error(ErrorKind::BadInput, fmt::format("not the code of that build: {}", what));
}

} // namespace

std::string text_of(const KnownFunctions &functions) {
    if (functions.n_compared == 0)
        return {};
    const std::vector<std::string> &names = functions.different;
    std::string text = fmt::format("{} of {} known functions have the same code, ",
                                   functions.n_same(), functions.n_compared);
    if (names.empty())
        return text + "others have not";
    const auto shown = std::span{names}.first(std::min(names.size(), MOST_NAMES));
    text += fmt::format("{}", fmt::join(shown, ", "));
    if (names.size() > shown.size())
        text += fmt::format(" and {} more", names.size() - shown.size());
    return text + (names.size() == 1 ? " has not" : " have not");
}

void add_code_identity(const LibraryFile &file, LibraryLayout &layout) {
    const std::vector<elf::CodeRange> functions =
        elf::frame_functions(file.code(), file.exception_table());
    if (functions.empty())
        return;
    std::set<std::uint64_t> variables;
    for (const auto *names : {&layout.data, &layout.parameters})
        for (const auto &[name, address] : *names)
            variables.insert(address);
    CodeIdentity code;
    elf::FunctionHashes hashes = elf::hash_functions(
        file.code(), functions,
        [&](std::size_t function, std::uint64_t offset_bytes, std::uint64_t address) {
            if (variables.contains(address))
                code.references.try_emplace(address,
                                            CodePlace{static_cast<std::uint32_t>(function),
                                                      static_cast<std::uint32_t>(offset_bytes)});
        });
    code.begin = functions.front().begin;
    code.bytes = extent_of(functions);
    code.bytes_sha256 = sha256_of_bytes(file, functions);
    code.functions_sha256 = std::move(hashes.digest);
    code.n_functions = static_cast<std::uint32_t>(functions.size());
    for (const NamedEntry &entry : named_entries(layout))
        if (const auto number = number_of(functions, entry.address))
            code.entries.emplace(entry.address, KnownFunction{*number, hashes.each[*number]});
    const Pointers pointers = file.pointers();
    for (const std::uint64_t variable : variables)
        if (!code.references.contains(variable))
            if (const auto place = pointer_in(pointers, functions, variable))
                code.pointers.emplace(variable, *place);
    layout.code = std::move(code);
}

const std::vector<elf::CodeRange> &CodeComparison::functions() {
    if (!functions_)
        functions_ = elf::frame_functions(file_.code(), file_.exception_table());
    return *functions_;
}

const elf::FunctionHashes &CodeComparison::hashes() {
    if (!hashes_)
        hashes_ = elf::hash_functions(file_.code(), functions());
    return *hashes_;
}

const std::string &CodeComparison::bytes_sha256() {
    if (bytes_sha256_.empty())
        bytes_sha256_ = sha256_of_bytes(file_, functions());
    return bytes_sha256_;
}

const Pointers &CodeComparison::pointers() {
    if (!pointers_)
        pointers_ = file_.pointers();
    return *pointers_;
}

bool CodeComparison::has_same_bytes(const CodeIdentity &code) {
    return code.begin == functions().front().begin && code.bytes == extent_of(functions()) &&
           !code.bytes_sha256.empty() && code.bytes_sha256 == bytes_sha256();
}

Result<LibraryLayout> CodeComparison::layout_from(const LibraryLayout &other) {
    const CodeIdentity &code = other.code;
    if (!code.is_known() || !other.not_recorded.empty() || !other.calls_only.empty())
        return differs("nothing is known of its code");
    // A layout of this very build was refused before.
    if (other.build_id == file_.build_id())
        return differs("it is of this build");
    if (functions().size() != code.n_functions)
        return differs(fmt::format("{} functions, not {}", functions().size(), code.n_functions));
    const bool has_bytes = has_same_bytes(code);
    if (!has_bytes && (code.functions_sha256.empty() || code.functions_sha256 != hashes().digest))
        return differs("other functions");
    auto layout = moved(other);
    if (layout)
        layout->fits_by =
            fmt::format("the same code as {} ({}): {}", other.version,
                        other.build_id.substr(0, BUILD_ID_DIGITS),
                        has_bytes ? "all bytes of code and constants"
                                  : fmt::format("its {} functions, one by one", code.n_functions));
    return layout;
}

KnownFunctions CodeComparison::compare_known(const LibraryLayout &other) {
    KnownFunctions known;
    if (!other.code.is_known() || functions().empty())
        return known;
    const std::set<std::uint32_t> own{hashes().each.begin(), hashes().each.end()};
    std::map<std::string_view, bool> compared; // by name: whether all its pieces are in the file
    for (const NamedEntry &entry : named_entries(other)) {
        const auto function = other.code.entries.find(entry.address);
        if (function == other.code.entries.end())
            continue;
        bool &is_there = compared.try_emplace(entry.name, true).first->second;
        is_there = is_there && own.contains(function->second.hash);
    }
    known.n_compared = compared.size();
    for (const auto &[name, is_there] : compared)
        if (!is_there)
            known.different.emplace_back(name);
    return known;
}

// The functions have the same numbers, and the instructions in them the same offsets.
Result<LibraryLayout> CodeComparison::moved(const LibraryLayout &other) {
    LibraryLayout layout = other;
    layout.build_id = file_.build_id();
    layout.debug_link = file_.debug_link();
    layout.has_symbol_table = file_.has_symbol_table();
    layout.has_debug_types = file_.has_debug_types();
    layout.code = {};
    if (version_of(file_) != version_number(other.version))
        return differs("another version");
    if (auto checked = check_getters(layout, file_); !checked)
        return std::move(checked).failure();
    if (auto done = move_probes(other.code, layout); !done)
        return std::move(done).failure();
    if (auto done = move_host_functions(other.code, layout); !done)
        return std::move(done).failure();
    for (auto *names : {&layout.data, &layout.parameters})
        for (auto &[name, address] : *names) {
            const auto there = moved_variable(other.code, address);
            if (!there)
                return Error{there.failure()}.in(name);
            address = *there;
        }
    for (Capability &capability : layout.capabilities)
        if (!capability.source.empty())
            capability.source =
                fmt::format("same code as {} ({}), by a saved layout of it ({})", other.version,
                            other.build_id.substr(0, BUILD_ID_DIGITS), capability.source);
    if (const auto bpf_layout = bpf_layout_of(layout, 0); !bpf_layout)
        return Error{bpf_layout.failure()};
    return layout;
}

Result<void> CodeComparison::move_probes(const CodeIdentity &code, LibraryLayout &layout) {
    elf::Disassembler disassembler;
    for (ProbedFunction &probe : layout.probes) {
        const auto number = code.entries.find(probe.entry);
        if (number == code.entries.end() || number->second.number >= functions().size())
            return differs(fmt::format("{} is in no function", probe.function));
        const elf::CodeRange &function = functions()[number->second.number];
        const std::uint64_t offset_bytes = probe.address - probe.entry;
        probe.entry = function.begin;
        probe.address = function.begin + offset_bytes;
        const auto file_offset = file_.code().file_offset(probe.address);
        const cs_insn *instruction =
            offset_bytes < function.bytes && file_offset
                ? disassembler.decode(file_.code().bytes_from(probe.address), probe.address)
                : nullptr;
        if (instruction == nullptr)
            return differs(
                fmt::format("no instruction at {:#x} ({})", probe.address, probe.function));
        // Addresses in it may differ, and nothing else.
        if (!probe.instruction.starts_with(instruction->mnemonic))
            return differs(
                fmt::format("another instruction at {:#x} ({})", probe.address, probe.function));
        probe.file_offset = *file_offset;
        probe.instruction = elf::text_of(*instruction);
    }
    return {};
}

Result<void> CodeComparison::move_host_functions(const CodeIdentity &code, LibraryLayout &layout) {
    for (auto &[name, pieces] : layout.host_functions)
        for (CodePiece &piece : pieces) {
            const auto known = code.entries.find(piece.address);
            if (known == code.entries.end() || known->second.number >= functions().size())
                return differs(fmt::format("{} is in no function", name));
            const elf::CodeRange &function = functions()[known->second.number];
            if (piece.bytes > function.bytes)
                return differs(fmt::format("{} is longer than its function", name));
            piece.address = function.begin;
        }
    return {};
}

Result<std::uint64_t> CodeComparison::moved_variable(const CodeIdentity &code,
                                                     std::uint64_t address) {
    if (const auto pointer = code.pointers.find(address); pointer != code.pointers.end())
        if (const auto variable = with_pointer_to(pointer->second))
            return *variable;
    const auto place = code.references.find(address);
    if (place == code.references.end() || place->second.function >= functions().size())
        return differs("no instruction refers to it");
    const elf::CodeRange &function = functions()[place->second.function];
    const auto there =
        place->second.offset_bytes < function.bytes
            ? elf::referenced_address(file_.code(), function.begin + place->second.offset_bytes)
            : std::nullopt;
    if (!there)
        return differs("an instruction refers to it no more");
    return *there;
}

std::optional<std::uint64_t> CodeComparison::with_pointer_to(const CodePlace &place) {
    if (place.function >= functions().size())
        return std::nullopt;
    const auto at = only_pointer_to(pointers(), functions()[place.function].begin);
    return at ? std::optional{*at - place.offset_bytes} : std::nullopt;
}

} // namespace collwire::nccl
