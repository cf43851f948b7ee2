// SPDX-License-Identifier: Apache-2.0
// The interface between the recorder and its sources.
#pragma once

#include <cstdint>
#include <set>
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
    std::string instruction;        // uprobe: disassembly of the instruction under it
    bool emulated = true;           // uprobe: the kernel emulates that instruction, no single-step
    std::uint32_t expected_cost_ns = 0;
    bool placed = false;
    bool taken_off = false; // it was placed, and detached for --budget
};

// What makes the probes of a group run.
enum class ProbeUse {
    Operations, // an operation, a work request, a frame: as often as a job makes them
    Control,    // a queue pair, communicator or socket comes or goes
    Kept,       // a batch of GPU records: counted, and never taken off
    Everywhere, // any process of the machine: no share of the recorded ones
};

// A loaded program that is attached, in one place or in several.
struct ProbeProgram {
    int fd = -1; // the source's, valid until it attaches or detaches something
    cw_probe_kind kind = CW_PROBE_KPROBE;
    bool emulated = true;        // uprobe: in every place
    std::uint32_t stated_ns = 0; // of a hit besides the program, where that is not measured
};

// Probes of a source that are taken off together.
struct ProbeGroup {
    std::string name; // "operations"
    ProbeUse use = ProbeUse::Operations;
    std::vector<ProbeProgram> programs;
};

struct SourceState {
    cw_source_state state = CW_SOURCE_OFF;
    std::string reason;            // why not ON; ends with the fix, if any
    std::uint32_t dev_index = ~0u; // ~0: the whole node
};

struct LossCount {
    cw_loss_class loss_class;
    std::uint16_t cpu;
    std::uint64_t records; // cumulative
};

// A source of records. The recorder calls prepare, attach, baseline and begin once in this order,
// then on_record and sample from one thread, then finish, end and detach. A source that cannot work
// on this machine has a state with the reason, never an error and never silence. An Error from
// prepare or attach stops the recording: only for a source that every recording needs, or that was
// asked for by name.
class Source {
public:
    Source() = default;
    Source(const Source &) = delete;
    Source &operator=(const Source &) = delete;
    virtual ~Source() = default;

    [[nodiscard]] virtual std::string_view name() const = 0;
    // Opens and loads programs, finds functions and files; attaches nothing.
    virtual Result<void> prepare() = 0;
    // Every probe that attach would attach (placed = false before attach, the truth afterwards).
    [[nodiscard]] virtual std::vector<PlannedProbe> probe_list() const = 0;
    // More that the user should know before a recording, a line each; valid after prepare.
    [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }
    virtual Result<void> attach() = 0;
    // All sources are attached, and the gate is still closed: the source reads its own counters
    // now.
    virtual void baseline() {}
    // The gate is open: programs count from now on.
    virtual void begin() {}
    [[nodiscard]] virtual std::vector<SourceState> states() const = 0;

    // Called for every record of the ring buffer, after the writer got it.
    virtual void on_record(const cw_header &) {}
    // Appends the changes since the last call; with `everything`, the whole state (a new segment
    // starts with it).
    virtual void sample(RecordSink &sink, bool everything) = 0;
    // Whether the last sample read all counters of the source: a counter that it did not append is
    // unchanged.
    [[nodiscard]] virtual bool has_read_all() const { return true; }
    // When on_due has to be called, in CLOCK_MONOTONIC ns; 0: never. It is also called earlier.
    [[nodiscard]] virtual std::uint64_t due_ns() const { return 0; }
    virtual void on_due() {}
    // The user asks for something now, with SIGUSR1.
    virtual void on_request() {}
    // The groups with probes in place, for --budget.
    [[nodiscard]] virtual std::vector<ProbeGroup> probe_groups() const { return {}; }
    // Detaches a group for good, without waiting until the kernel has removed its breakpoints.
    // `reason` goes into the source's state, which keeps it. The group places no later probe.
    // NOLINTNEXTLINE(performance-unnecessary-value-param)
    virtual void take_off(std::string_view, std::string) {}
    // The processes that the source's probes on operations record.
    [[nodiscard]] virtual std::set<std::uint32_t> recorded_processes() const { return {}; }
    // Losses that only this source counts (without the shared BPF loss table).
    [[nodiscard]] virtual std::vector<LossCount> losses() const { return {}; }
    // The recording ends soon. A source that makes other processes emit records stops them. False:
    // more of them are on their way. Then it is called again after records were read, for a limited
    // time.
    virtual bool finish() { return true; }
    // The gate closes right after this: the source reads its own counters now, for the last time.
    virtual void end() {}
    // Removes every probe; sample may still be called once afterwards for the last counts.
    virtual void detach() = 0;
};

} // namespace collwire::source
