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

std::string render_text(const LibraryLayout &layout) {
    constexpr std::size_t MOST_MISSING = 4;
    std::string text;
    auto out = std::back_inserter(text);
    fmt::format_to(out, "{}\n", layout.file);
    fmt::format_to(out, "  NCCL {}, build-id {}\n", layout.version.empty() ? "?" : layout.version,
                   layout.build_id.empty() ? "-" : layout.build_id);
    fmt::format_to(out, "  symbols: {}; types: {}{}\n",
                   layout.has_symbol_table ? ".symtab" : "exported only",
                   layout.has_debug_types ? "DWARF" : "none",
                   layout.debug_file.empty() ? "" : "; made with " + layout.debug_file);
    if (!layout.fits_by.empty())
        fmt::format_to(out, "  the layout fits by: {}\n", layout.fits_by);
    text += '\n';
    if (!layout.not_recorded.empty())
        fmt::format_to(out, "  not recorded: {}\n\n", layout.not_recorded);
    if (!layout.calls_only.empty())
        fmt::format_to(out, "  API-only: {}\n\n", layout.calls_only);
    for (const Capability &capability : layout.capabilities) {
        fmt::format_to(out, "  {:<15}{:<9}{}\n", capability.name, certainty_name(capability.rung),
                       capability.source.empty() ? "-" : capability.source);
        if (!capability.missing.empty())
            fmt::format_to(out, "  {:<24}missing: {}\n", "",
                           joined(capability.missing, MOST_MISSING));
    }
    if (!layout.probes.empty())
        fmt::format_to(out, "\n  {:<34}{:>10}  {:<17}{:<16}{}\n", "probe", "address", "placed", "",
                       "instruction");
    for (const ProbedFunction &probe : layout.probes) {
        const std::string_view placed = placed_name(placed_when(layout, probe));
        fmt::format_to(out, "  {:<34}{:>10x}  {:<17}{:<16}{}\n", probe.function, probe.address,
                       placed.empty() ? "no" : placed,
                       probe.emulated ? "emulated" : "single-stepped", probe.instruction);
    }
    fmt::format_to(out, "\n  {} offsets, {} enumerators: --json\n", layout.offsets.size(),
                   layout.enumerators.size());
    return text;
}

} // namespace collwire::nccl
