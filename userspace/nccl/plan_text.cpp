// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "userspace/nccl/plan.h"

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
    fmt::format_to(out, "  symbols: {}; types: {}\n\n",
                   plan.has_symbol_table ? ".symtab" : "exported only",
                   plan.has_debug_types ? "DWARF" : "none");
    for (const Capability &capability : plan.capabilities) {
        fmt::format_to(out, "  {:<15}{:<9}{}\n", capability.name, rung_name(capability.rung),
                       capability.source);
        if (!capability.missing.empty())
            fmt::format_to(out, "  {:<24}not here: {}\n", "",
                           joined(capability.missing, MOST_MISSING));
    }
    fmt::format_to(out, "\n  {:<30}{:>10}  {:<16}{}\n", "probe", "address", "", "instruction");
    for (const PlannedFunction &probe : plan.probes)
        fmt::format_to(out, "  {:<30}{:>10x}  {:<16}{}\n", probe.function, probe.address,
                       probe.emulated ? "emulated" : "single-stepped", probe.instruction);
    fmt::format_to(out, "\n  {} offsets, {} enumerators: --json\n", plan.offsets.size(),
                   plan.enumerators.size());
    return text;
}

} // namespace collwire::nccl
