// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <memory>
#include <vector>

#include "userspace/source/source.h"

namespace collwire::record {

// Prints the probe list of a dry run: every probe that would be attached, and every source that
// cannot work here, with the reason.
void print_probe_list(std::FILE *out, const std::vector<std::unique_ptr<source::Source>> &sources);

} // namespace collwire::record
