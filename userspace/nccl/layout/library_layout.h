// SPDX-License-Identifier: Apache-2.0
// What collwire reads in one NCCL library: functions and their probes, offsets, variables, and how
// certain each capability is. Made from the file, without running it. See docs/nccl-layout.md;
// layout_schema_version grows when a field changes its meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "userspace/nccl/layout/code_identity.h"

namespace collwire::nccl {

inline constexpr int layout_schema_version = 1;

// The certainty of a capability: docs/nccl-layout.md.
enum class Certainty {
    Exact,    // read from NCCL
    Inferred, // follows from order, threads or arithmetic, with a stated confidence
    Process,  // only the process is known
};
std::string_view certainty_name(Certainty rung);

struct Capability {
    std::string name;
    Certainty rung = Certainty::Process;
    std::string source;               // the evidence; empty for Process
    std::vector<std::string> missing; // names that this build does not have
};

struct ProbedFunction {
    std::string function;
    std::string symbol;      // as in the file
    std::uint64_t entry = 0; // its first instruction: return probes go there
    std::uint64_t address = 0;
    std::uint64_t file_offset = 0;
    std::string instruction;                      // under the probe, AT&T syntax
    bool emulated = false;                        // by the kernel; if not, it is single-stepped
    std::map<std::string, std::string> registers; // where the probe's arguments are
};

// A piece of a function's code; compilers split functions.
struct CodePiece {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    friend auto operator<=>(const CodePiece &, const CodePiece &) = default;
};

struct FieldOffset {
    std::uint64_t value = 0;
    std::uint64_t size_bytes = 0; // 0: not known
    std::uint64_t elements = 0;   // of an array; 0: not one
    std::string source;
};

struct LibraryLayout {
    std::string file;
    std::string version;    // 2.28.9; empty: unknown
    std::string build_id;   // hex; empty if the file has none
    std::string debug_link; // its .gnu_debuglink; empty if it has none
    // Of a stripped file: its debug file, its saved layout, or the build that lent its offsets;
    // empty: none.
    std::string debug_file;
    // Of a stripped file: how `debug_file` was found to fit; empty: the file's own data, or none.
    std::string fits_by;
    bool has_symbol_table = false;
    bool has_debug_types = false;
    // Why collwire does not record this library, with the fix; empty: it does.
    std::string not_recorded;
    // Why the library is recorded API-only, with the fix; empty: it is not API-only.
    std::string calls_only;
    std::vector<Capability> capabilities;
    std::vector<ProbedFunction> probes;
    std::map<std::string, FieldOffset> offsets; // "type.field"; "type": its size
    std::map<std::string, std::uint64_t> data;  // addresses of variables in the file
    std::map<std::string, std::uint64_t>
        parameters; // addresses of their values, by name: IbQpsPerConn
    std::map<std::string, std::int64_t> enumerators;
    // Where threads may wait, by name (recipe.h). Layouts that were saved before it existed have
    // none.
    std::map<std::string, std::vector<CodePiece>> host_functions;
    // Only of saved layouts, and of those that other files are compared with.
    CodeIdentity code;
};

const Capability *find_capability(const LibraryLayout &layout, std::string_view name);
// The evidence of a capability, and the path of `debug_file`: its name alone if the text is longer
// than `most_bytes`. Empty if there is no evidence.
std::string basis_of(const LibraryLayout &layout, std::string_view capability,
                     std::size_t most_bytes = SIZE_MAX);

// When `collwire record` places the probe of a function.
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
// Reads what render_json wrote. BadInput for any other text.
Result<LibraryLayout> parse_layout(std::string_view json);
// For people, about 100 columns.
std::string render_text(const LibraryLayout &layout);

} // namespace collwire::nccl
