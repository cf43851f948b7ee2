// SPDX-License-Identifier: Apache-2.0
// Where the symbols and types of a stripped library may be, or its saved layout.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace collwire::nccl {

struct DebugPlaces {
    // Its path in the process that mapped it; empty: the path that it is opened by.
    std::string library;
    std::vector<std::string> symbols; // --symbols: directories, or files
};

// Paths where the debug file of a library may be, the most likely first: in `symbols` by build-id
// and by name, where distributions put it by build-id, and by `link`, the library's .gnu_debuglink.
// `build_id` is in hex. GDB searches the same places: "Separate Debug Files" in its manual. All
// paths are below this process's root, never below the root of the process that mapped the library:
// probes go where the debug file says, and other processes may have mapped the library, too.
[[nodiscard]] std::vector<std::string>
debug_file_paths(std::string_view build_id, std::string_view link, const DebugPlaces &places);

// Paths of saved layouts of this build (`collwire doctor --export-plan`): in `symbols`, and of
// those that come with collwire: in /usr/share/collwire/nccl-layouts, and, from the program, in
// ../share/collwire/nccl-layouts and nccl-layouts, if these belong to root, to this process's user,
// or to the program's owner. Files are found by the build-id that ends their names: see
// layout_file_name(). Layouts that were saved as BUILD-ID.nccl-plan.json are found as well.
[[nodiscard]] std::vector<std::string> layout_paths(std::string_view build_id,
                                                    const DebugPlaces &places);

// Layouts and libraries of any build in the same places: at most 64 of a place, ordered by name.
[[nodiscard]] std::vector<std::string> other_build_paths(const DebugPlaces &places);

// VERSION-BUILD-ID.json; BUILD-ID.json where the version is not known.
[[nodiscard]] std::string layout_file_name(std::string_view version, std::string_view build_id);

} // namespace collwire::nccl
