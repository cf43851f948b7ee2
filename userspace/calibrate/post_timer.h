// SPDX-License-Identifier: Apache-2.0
// Times the functions of stand_ins.h in this thread, without a probe and with one of ours.
#pragma once

#include <cstdint>
#include <string>

#include <bpf/libbpf.h>

#include "base/result.h"
#include "userspace/calibrate/stand_ins.h"

namespace collwire::calibrate {

// Where a probe goes in the file of this program.
struct OwnPoint {
    std::uint64_t entry_offset = 0;
    std::uint64_t file_offset = 0;
    std::string instruction;
    bool emulated = false;
};

// Where collwire places its probe in such a function.
[[nodiscard]] Result<OwnPoint> point_of(const StandIn &site);

// An attached uprobe, in this process alone.
class OwnProbe {
public:
    // `at_return`: a return probe on the function's entry.
    OwnProbe(bpf_program *program, const OwnPoint &point, bool at_return = false);
    OwnProbe(const OwnProbe &) = delete;
    OwnProbe &operator=(const OwnProbe &) = delete;
    ~OwnProbe();
    [[nodiscard]] bool is_attached() const { return link_ != nullptr; } // else errno says why

private:
    bpf_link *link_ = nullptr;
};

// CPU time of this thread for a post of `chain_length` work requests, in ns: the least of some
// measurements that take `measure_ns` each, about, since noise only adds.
[[nodiscard]] double best_post_ns(const StandIn &site, int chain_length, double measure_ns);

} // namespace collwire::calibrate
