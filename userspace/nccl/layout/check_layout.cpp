// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/layout/check_layout.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "userspace/elf/disassembler.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/library/code_facts.h"

namespace collwire::nccl {
namespace {

Error not_of_this(std::string_view what) {
    return error(ErrorKind::BadInput, fmt::format("not a layout of this file: {}", what));
}

std::optional<LibrarySymbol> exported(const LibraryFile &file, std::string_view name) {
    const std::array<std::string_view, 1> names{name};
    for (const auto &[base, symbol] : file.find(names))
        if (symbol.function && symbol.bytes != 0 && symbol.form == SymbolForm::Standard)
            return symbol;
    return std::nullopt;
}

} // namespace

Result<void> check_getters(const LibraryLayout &layout, const LibraryFile &file) {
    for (const Getter &getter : GETTERS) {
        const auto field = layout.offsets.find(std::string{getter.field});
        const auto symbol = exported(file, getter.function);
        if (field == layout.offsets.end() || !symbol ||
            !reads_int_at(file.code(), *symbol, field->second.value))
            return not_of_this(fmt::format("{} reads {} elsewhere", getter.function, getter.field));
    }
    return {};
}

Result<void> check_entries(const LibraryLayout &layout, const LibraryFile &file) {
    const std::vector<std::uint64_t> starts = file.function_starts();
    for (const ProbedFunction &probe : layout.probes)
        if (!starts.empty() && !std::ranges::binary_search(starts, probe.entry))
            return not_of_this(
                fmt::format("no function begins at {:#x} ({})", probe.entry, probe.function));
    return {};
}

Result<void> check_layout(const LibraryLayout &layout, const LibraryFile &file) {
    if (layout.build_id.empty() || layout.build_id != file.build_id())
        return not_of_this("another build-id");
    if (!layout.not_recorded.empty())
        return not_of_this("it says that nothing is recorded with it");
    if (!layout.calls_only.empty())
        return not_of_this("it is API-only");
    if (auto checked = check_getters(layout, file); !checked)
        return checked;
    if (auto checked = check_entries(layout, file); !checked)
        return checked;
    elf::Disassembler disassembler;
    for (const ProbedFunction &probe : layout.probes) {
        const cs_insn *instruction =
            file.code().is_code(probe.address)
                ? disassembler.decode(file.code().bytes_from(probe.address), probe.address)
                : nullptr;
        if (instruction == nullptr || elf::text_of(*instruction) != probe.instruction ||
            file.code().file_offset(probe.address) != probe.file_offset)
            return not_of_this(
                fmt::format("another instruction at {:#x} ({})", probe.address, probe.function));
    }
    if (const auto bpf_layout = bpf_layout_of(layout, 0); !bpf_layout)
        return Error{bpf_layout.failure()};
    return {};
}

} // namespace collwire::nccl
