// SPDX-License-Identifier: Apache-2.0
// Emits to the other sources the files that a process maps for the first time (bpf/mappings.bpf.c).
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "userspace/sources/probed_source.h"

struct mappings; // the skeleton of bpf/mappings.bpf.c

namespace collwire::sources {

class MappingsSource : public ProbedSource<mappings> {
public:
    // Smaller files are not emitted, except with `guest_library` the guest library of CUDA
    // processes, and with `libibverbs` that one.
    MappingsSource(const loader::SharedMaps &maps, std::uint64_t least_file_bytes,
                   bool filter_by_tgid, loader::HookMode mode = loader::default_hook_mode(),
                   bool guest_library = false, bool libibverbs = false);
    ~MappingsSource() override;

    // The next mapping of a file with one of these numbers is emitted again.
    void emit_again(const std::set<std::uint64_t> &inodes);

    // Whether records of mappings may be missing since the last tick: then processes are to be
    // polled once.
    [[nodiscard]] bool missed_lately() const { return missed_lately_; }

    void sample(source::RecordSink &sink, bool everything) override;

    // What it missed is found by polling.
    [[nodiscard]] std::vector<source::LossCount> losses() const override { return {}; }

private:
    bool applicable() override { return true; }
    bool configure() override;
    [[nodiscard]] std::uint64_t missed() const override;
    std::uint64_t least_file_bytes_;
    bool filter_by_tgid_;
    bool guest_library_;
    bool libibverbs_;
    std::uint64_t missed_before_ = 0;
    bool missed_lately_ = false;
};

} // namespace collwire::sources
