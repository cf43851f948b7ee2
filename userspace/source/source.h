// SPDX-License-Identifier: Apache-2.0
// What the recorder asks of everything that it can record from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "collwire/record.h"

namespace collwire::source {

// Takes finished records: record.length_bytes bytes from its address, copied before append returns.
class RecordSink {
public:
    RecordSink() = default;
    RecordSink(const RecordSink &) = delete;
    RecordSink &operator=(const RecordSink &) = delete;
    virtual ~RecordSink() = default;
    virtual void append(const cw_header &record) = 0;
};

struct PlannedProbe {
    cw_probe_kind kind = CW_PROBE_KPROBE;
    std::string source;
    std::string function;
    std::string module_or_file;
    std::uint64_t offset_bytes = 0; // from the function's start; for uprobes from the file's start
    std::string instruction;        // uprobe: disassembly of what lies under it
    bool emulated = true;           // uprobe: the kernel emulates that instruction, no single-step
    std::uint32_t expected_cost_ns = 0;
    bool placed = false;
};

struct SourceState {
    cw_source_state state = CW_SOURCE_OFF;
    std::string reason;            // why not ON; ends with the fix where there is one
    std::uint32_t dev_index = ~0u; // ~0: the whole node
};

struct LossCount {
    cw_loss_class loss_class;
    std::uint16_t cpu;
    std::uint64_t records; // cumulative
};

// A source of records. The recorder calls prepare, attach, baseline and begin once in this order,
// then on_record and sample from one thread, then end and detach. What cannot work on this machine
// is a state with its reason, never an error and never silent; an Error from prepare or attach
// stops the recording: a source that nothing is worth recording without, or that was asked for by
// name.
class Source {
public:
    Source() = default;
    Source(const Source &) = delete;
    Source &operator=(const Source &) = delete;
    virtual ~Source() = default;

    [[nodiscard]] virtual std::string_view name() const = 0;
    // Opens and loads programs, finds functions and files; places nothing.
    virtual Result<void> prepare() = 0;
    // Every probe that attach would place (placed = false before attach, the truth afterwards).
    [[nodiscard]] virtual std::vector<PlannedProbe> probe_list() const = 0;
    virtual Result<void> attach() = 0;
    // All sources are attached, and nothing counts before this is over: what a source reads by
    // itself it reads now.
    virtual void baseline() {}
    // What programs count counts from now on.
    virtual void begin() {}
    [[nodiscard]] virtual std::vector<SourceState> states() const = 0;

    // Every record that came through the ring buffer, after the writer got it.
    virtual void on_record(const cw_header &) {}
    // Appends what changed since the last call; with `everything`, the whole state (a new segment
    // starts with it).
    virtual void sample(RecordSink &sink, bool everything) = 0;
    // Whether the last sample read all counters that it has: one that it did not append is as
    // before.
    [[nodiscard]] virtual bool has_read_all() const { return true; }
    // Losses that only this source knows of (not those in the shared BPF loss table).
    [[nodiscard]] virtual std::vector<LossCount> losses() const { return {}; }
    // Programs stop counting right behind this: what a source reads by itself it reads now, for the
    // last time.
    virtual void end() {}
    // Removes every probe; sample may still be called once afterwards for the last counts.
    virtual void detach() = 0;
};

} // namespace collwire::source
