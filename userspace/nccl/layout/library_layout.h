// SPDX-License-Identifier: Apache-2.0
// What can be known of the NCCL in one file, where its probes go, and where its data lie. Made from
// the file alone, without running it. docs/nccl-layout.md is the prose; layout_schema_version grows
// when a field changes meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace collwire::nccl {

inline constexpr int layout_schema_version = 1;

// How well something will be known: docs/nccl-layout.md.
enum class Rung {
    Exact,    // read out of NCCL
    Inferred, // follows from order, threads or arithmetic, with a stated confidence
    Process,  // no more than whose it is
};
std::string_view rung_name(Rung rung);

struct Capability {
    std::string name;
    Rung rung = Rung::Process;
    std::string source;               // what the rung rests on; empty for Process
    std::vector<std::string> missing; // names that this build does not have
};

struct ProbedFunction {
    std::string function;
    std::string symbol;      // as in the file
    std::uint64_t entry = 0; // its first instruction, where probes of its return go
    std::uint64_t address = 0;
    std::uint64_t file_offset = 0;
    std::string instruction;                      // under the probe, AT&T syntax
    bool emulated = false;                        // by the kernel; if not, it is single-stepped
    std::map<std::string, std::string> registers; // what the probe reads, and where
};

struct FieldOffset {
    std::uint64_t value = 0;
    std::uint64_t size_bytes = 0; // 0: not known
    std::uint64_t elements = 0;   // of an array; 0: not one
    std::string source;
};

struct LibraryLayout {
    std::string file;
    std::string version;    // 2.28.9; empty if it cannot be told
    std::string build_id;   // hex; empty if the file has none
    std::string debug_link; // the name of its debug file, as it says; empty: it says none
    // Of a file that was stripped: its debug file, or the layout that was kept of it; empty: none.
    std::string debug_file;
    bool has_symbol_table = false;
    bool has_debug_types = false;
    // Why collwire records nothing of it, a sentence with what to do; empty: it does.
    std::string not_recorded;
    // Why of its processes no more is recorded than the calls of the functions that it exports, a
    // sentence with what to do; empty: all is, or nothing.
    std::string calls_only;
    std::vector<Capability> capabilities;
    std::vector<ProbedFunction> probes;
    std::map<std::string, FieldOffset> offsets;      // "type.field"; "type": its size
    std::map<std::string, std::uint64_t> data;       // addresses of variables, in the file
    std::map<std::string, std::uint64_t> parameters; // where their values are kept: IbQpsPerConn
    std::map<std::string, std::int64_t> enumerators;
};

const Capability *find_capability(const LibraryLayout &layout, std::string_view name);
// What the rung of a capability rests on, and the file that the layout was made with where that is
// another: its name alone if the text had more than `most_bytes` else. Empty: nothing.
std::string basis_of(const LibraryLayout &layout, std::string_view capability,
                     std::size_t most_bytes = SIZE_MAX);

// When `collwire record` places the probe on a function of a layout.
enum class Placed {
    Always,
    LocalLaunches, // with --local-launches
    NetworkTimes,  // with --network-times
    Warnings,      // with --warnings
    Never,         // not by this version of collwire
};
Placed placed_when(const LibraryLayout &layout, const ProbedFunction &probe);
// "always", "--local-launches"; empty: never
std::string_view placed_name(Placed placed);

// One JSON document.
std::string render_json(const LibraryLayout &layout, std::string_view tool_version);
// What render_json wrote. BadInput if it is something else.
Result<LibraryLayout> parse_layout(std::string_view json);
// For people, about 100 columns.
std::string render_text(const LibraryLayout &layout);

} // namespace collwire::nccl
