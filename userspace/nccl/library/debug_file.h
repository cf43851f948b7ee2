// SPDX-License-Identifier: Apache-2.0
// Where the symbols and types of a library may be that was stripped, or a layout that was made of
// it before.
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

// The same of layouts (`collwire doctor --export-plan`): in `symbols`, and those that come with
// collwire: in /usr/share/collwire/nccl-plans, and in ../share/collwire/nccl-plans and nccl-plans
// beside the program, if they are root's, of whoever runs this, or of the program's owner.
[[nodiscard]] std::vector<std::string> layout_paths(std::string_view build_id,
                                                    const DebugPlaces &places);

// Files in the same places that may tell of another build: layouts, and libraries. No more than 64
// of a place.
[[nodiscard]] std::vector<std::string> other_build_paths(const DebugPlaces &places);

// As what a layout is kept: BUILD-ID.nccl-plan.json
[[nodiscard]] std::string layout_file_name(std::string_view build_id);

} // namespace collwire::nccl
