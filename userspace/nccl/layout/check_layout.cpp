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
    return error(ErrorKind::BadInput, fmt::format("not a plan of this file: {}", what));
}

std::optional<LibrarySymbol> exported(const LibraryFile &file, std::string_view name) {
    const std::array<std::string_view, 1> names{name};
    for (const auto &[base, symbol] : file.find(names))
        if (symbol.function && symbol.bytes != 0)
            return symbol;
    return std::nullopt;
}

} // namespace

Result<void> check_getters(const Plan &plan, const LibraryFile &file) {
    for (const Getter &getter : GETTERS) {
        const auto field = plan.offsets.find(std::string{getter.field});
        const auto symbol = exported(file, getter.function);
        if (field == plan.offsets.end() || !symbol ||
            !reads_int_at(file.code(), *symbol, field->second.value))
            return not_of_this(fmt::format("{} reads {} elsewhere", getter.function, getter.field));
    }
    return {};
}

Result<void> check_entries(const Plan &plan, const LibraryFile &file) {
    const std::vector<std::uint64_t> starts = file.function_starts();
    for (const PlannedFunction &probe : plan.probes)
        if (!starts.empty() && !std::ranges::binary_search(starts, probe.entry))
            return not_of_this(
                fmt::format("no function begins at {:#x} ({})", probe.entry, probe.function));
    return {};
}

Result<void> check_plan(const Plan &plan, const LibraryFile &file) {
    if (plan.build_id.empty() || plan.build_id != file.build_id())
        return not_of_this("another build-id");
    if (!plan.not_recorded.empty())
        return not_of_this("it says that nothing is recorded with it");
    if (!plan.calls_only.empty())
        return not_of_this("it says that calls alone are recorded with it");
    if (auto checked = check_getters(plan, file); !checked)
        return checked;
    if (auto checked = check_entries(plan, file); !checked)
        return checked;
    Disassembler disassembler;
    for (const PlannedFunction &probe : plan.probes) {
        const cs_insn *instruction =
            file.code().is_code(probe.address)
                ? disassembler.decode(file.code().bytes_from(probe.address), probe.address)
                : nullptr;
        if (instruction == nullptr || text_of(*instruction) != probe.instruction ||
            file.code().file_offset(probe.address) != probe.file_offset)
            return not_of_this(
                fmt::format("another instruction at {:#x} ({})", probe.address, probe.function));
    }
    if (const auto layout = layout_of_plan(plan, 0); !layout)
        return Error{layout.failure()};
    return {};
}

} // namespace collwire::nccl
