// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "userspace/nccl/layout/library_layout.h"

namespace collwire::nccl {
namespace {

std::string joined(const std::vector<std::string> &names, std::size_t most) {
    std::string text;
    for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
        text += (i == 0 ? "" : ", ") + names[i];
    if (names.size() > most)
        text += fmt::format(" and {} more", names.size() - most);
    return text;
}

} // namespace

std::string render_text(const Plan &plan) {
    constexpr std::size_t MOST_MISSING = 4;
    std::string text;
    auto out = std::back_inserter(text);
    fmt::format_to(out, "{}\n", plan.file);
    fmt::format_to(out, "  NCCL {}, build-id {}\n", plan.version.empty() ? "?" : plan.version,
                   plan.build_id.empty() ? "-" : plan.build_id);
    fmt::format_to(out, "  symbols: {}; types: {}{}\n\n",
                   plan.has_symbol_table ? ".symtab" : "exported only",
                   plan.has_debug_types ? "DWARF" : "none",
                   plan.debug_file.empty() ? "" : "; made with " + plan.debug_file);
    if (!plan.not_recorded.empty())
        fmt::format_to(out, "  not recorded: {}\n\n", plan.not_recorded);
    if (!plan.calls_only.empty())
        fmt::format_to(out, "  calls alone are recorded: {}\n\n", plan.calls_only);
    for (const Capability &capability : plan.capabilities) {
        fmt::format_to(out, "  {:<15}{:<9}{}\n", capability.name, rung_name(capability.rung),
                       capability.source.empty() ? "-" : capability.source);
        if (!capability.missing.empty())
            fmt::format_to(out, "  {:<24}not here: {}\n", "",
                           joined(capability.missing, MOST_MISSING));
    }
    if (!plan.probes.empty())
        fmt::format_to(out, "\n  {:<34}{:>10}  {:<17}{:<16}{}\n", "probe", "address", "placed", "",
                       "instruction");
    for (const PlannedFunction &probe : plan.probes) {
        const std::string_view placed = placed_name(placed_when(plan, probe));
        fmt::format_to(out, "  {:<34}{:>10x}  {:<17}{:<16}{}\n", probe.function, probe.address,
                       placed.empty() ? "no" : placed,
                       probe.emulated ? "emulated" : "single-stepped", probe.instruction);
    }
    fmt::format_to(out, "\n  {} offsets, {} enumerators: --json\n", plan.offsets.size(),
                   plan.enumerators.size());
    return text;
}

} // namespace collwire::nccl
