// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>

#include "userspace/calibrate/trap_costs.h"
#include "userspace/record/options.h"
#include "userspace/source/source.h"

namespace collwire::record {

// Cost of a hit of this probe in ns, from what traps cost here. 0: it was not measured.
[[nodiscard]] std::uint32_t cost_here_ns(const source::PlannedProbe &probe,
                                         const calibrate::TrapCosts &costs);

// What an operation of NCCL and a post cost on this machine, with these options.
void print_costs(std::FILE *out, const calibrate::TrapCosts &costs, const RecordOptions &options);

} // namespace collwire::record
