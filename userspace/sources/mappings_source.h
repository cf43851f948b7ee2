// SPDX-License-Identifier: Apache-2.0
// Tells the other sources of files that a process maps for the first time (bpf/mappings.bpf.c).
#pragma once

#include "userspace/sources/probed_source.h"

struct mappings; // the skeleton of bpf/mappings.bpf.c

namespace collwire {

class MappingsSource : public ProbedSource<mappings> {
public:
    // Smaller files are not told of.
    MappingsSource(const SharedMaps &maps, std::uint64_t least_file_bytes,
                   HookMode mode = default_hook_mode());
    ~MappingsSource() override;

private:
    bool applicable() override { return true; }
    bool configure() override;
    std::uint64_t least_file_bytes_;
};

} // namespace collwire
