// SPDX-License-Identifier: Apache-2.0
// Errors, and what speaks for and against the network: read again from the captures, without calls
// and launches, as they are few and their judgement needs all hosts.
#pragma once

#include <string>

#include "tools/cli/read_captures.h"
#include "tools/cli/read_standings.h"

namespace collwire::cli {

// Puts them into `read.standings`. Sets `read.needs_model` if that is not enough.
void read_signs(const ChosenCaptures &chosen, const std::string &job, ReadStandings &read);

} // namespace collwire::cli
