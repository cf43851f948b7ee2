// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/probe_list_printer.h"

#include <fmt/format.h>

#include "base/foreign_text.h"
#include "collwire/node_records.h"
#include "correlate/capture/kinds.h"
#include "userspace/record/cost_printer.h"

namespace collwire::record {
namespace {

void print_probe(std::FILE *out, const source::PlannedProbe &probe,
                 const calibrate::TrapCosts *costs) {
    std::string where = fmt::format("{}:{}", probe.module_or_file, probe.function);
    std::string how;
    if (probe.kind == CW_PROBE_UPROBE || probe.kind == CW_PROBE_URETPROBE) {
        // Offsets from the start of the file, as for uprobes.
        where =
            fmt::format("{}+{:#x} ({})", probe.module_or_file, probe.offset_bytes, probe.function);
        how = fmt::format("`{}`, {}", probe.instruction,
                          probe.emulated ? "emulated" : "single-stepped");
        if (probe.kind == CW_PROBE_URETPROBE)
            how = "return probe";
    }
    const std::uint32_t here_ns = costs == nullptr ? 0 : cost_here_ns(probe, *costs);
    fmt::print(out, "  {:<10} {:<60} {:>6} ns/hit{}  {}\n", capture::probe_kind_name(probe.kind),
               escaped(where), here_ns != 0 ? here_ns : probe.expected_cost_ns,
               here_ns != 0 ? " here" : "", how);
}

} // namespace

void print_probe_list(std::FILE *out, const std::vector<std::unique_ptr<source::Source>> &sources,
                      const calibrate::TrapCosts *costs) {
    std::size_t n_probes = 0;
    for (const auto &source : sources) {
        fmt::print(out, "{}\n", source->name());
        for (const source::SourceState &state : source->states()) {
            fmt::print(out, "  {}{}{}\n", capture::source_state_name(state.state),
                       state.reason.empty() ? "" : ": ", escaped(state.reason));
        }
        for (const source::PlannedProbe &probe : source->probe_list()) {
            print_probe(out, probe, costs);
            ++n_probes;
        }
        for (const std::string &note : source->notes())
            fmt::print(out, "  {}\n", escaped(note));
    }
    fmt::print(out, "{} probes would be attached; this dry run attached none\n", n_probes);
}

} // namespace collwire::record
