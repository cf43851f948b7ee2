// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <memory>
#include <vector>

#include "userspace/source/source.h"

namespace collwire::record {

// What a dry run shows: every probe that would be placed, and what could not work here and why.
void print_probe_list(std::FILE *out, const std::vector<std::unique_ptr<source::Source>> &sources);

} // namespace collwire::record
