// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <memory>
#include <vector>

#include "userspace/calibrate/trap_costs.h"
#include "userspace/source/source.h"

namespace collwire::record {

// Prints the probe list of a dry run: every probe that would be attached, and every source that
// cannot work here, with the reason. With `costs`, a hit costs what was measured here.
void print_probe_list(std::FILE *out, const std::vector<std::unique_ptr<source::Source>> &sources,
                      const calibrate::TrapCosts *costs);

} // namespace collwire::record
