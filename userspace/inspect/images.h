// SPDX-License-Identifier: Apache-2.0
// Which files with NCCL in them processes have mapped, and what can be read with them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collwire/nccl_layout.h"
#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::inspect {

struct Image {
    process::FileIdentity identity;
    nccl::LibraryLayout layout;
    std::optional<cw_nccl_layout> bpf_layout;
    std::string problem; // empty: its layout can be used
};

struct UsedImage {
    std::size_t image = 0; // index
    std::string path;      // as the process sees it
    std::uint64_t bias = 0;
};

struct Images {
    std::vector<Image> images;
    // For each process, in the order of `pids`.
    std::vector<std::vector<UsedImage>> used;
    std::vector<std::string> problems; // of processes: empty: it could be looked at
};

// Each file is read once, in a process without privileges, for all processes. `symbols`: places
// of debug files, as in nccl::DebugPlaces.
Images find_images(std::span<const pid_t> pids, const std::vector<std::string> &symbols);

} // namespace collwire::inspect
