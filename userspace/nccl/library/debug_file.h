// SPDX-License-Identifier: Apache-2.0
// Where the symbols and types of a stripped library may be, or its saved layout.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace collwire::nccl {

struct DebugPlaces {
    // Its path, as the process sees it that has mapped it; empty: as it is named.
    std::string library;
    std::vector<std::string> symbols; // --symbols: directories, or files
};

// Paths at which the debug file of a library may be, the most likely first: in `symbols`, by
// build-id and by name, where distributions put it, by build-id, and by the library's own
// .gnu_debuglink, which `link` is. `build_id` in hex. Where GDB looks: "Separate Debug Files" in
// its manual. All of it is below this process's root, whatever root the process has that mapped the
// library: others may have mapped it, too, and probes go where the debug file says.
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
