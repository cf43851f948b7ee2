// SPDX-License-Identifier: Apache-2.0
// A probe as a record.
#pragma once

#include <cstdint>

#include "base/set_text.h"
#include "collwire/node_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/source/source.h"

namespace collwire::source {

// `time_ns`: CLOCK_MONOTONIC, when it was attached, or is reported.
inline cw_probe probe_record(const PlannedProbe &planned, std::uint64_t time_ns) {
    cw_probe record = {};
    record.header = {sizeof(record), CW_KIND_PROBE, CW_CPU_USERSPACE, time_ns};
    record.probe_kind = planned.kind;
    if (planned.placed)
        record.flags |= CW_PROBE_PLACED;
    if (planned.taken_off)
        record.flags |= CW_PROBE_TAKEN_OFF;
    const bool is_uprobe = planned.kind == CW_PROBE_UPROBE || planned.kind == CW_PROBE_URETPROBE;
    if (is_uprobe && planned.emulated)
        record.flags |= CW_PROBE_EMULATED;
    record.offset_bytes = planned.offset_bytes;
    record.expected_cost_ns = planned.expected_cost_ns;
    set_text(record.source, planned.source);
    set_text(record.function, planned.function);
    set_text(record.module_or_file, planned.module_or_file);
    set_text(record.instruction, planned.instruction);
    return record;
}

} // namespace collwire::source
