// SPDX-License-Identifier: Apache-2.0
// Where the ranks of captures stood, read as a stream: one recording is in memory at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "correlate/model/jobs.h"
#include "correlate/stall/standing.h"
#include "tools/cli/read_captures.h"

namespace collwire::cli {

struct ReadStandings {
    stall::Standings standings;
    std::vector<model::ClusterJob> jobs;
    std::vector<std::string> messages; // about captures that were not used, or not whole
    IngestedCaptures read;
    // Not empty: these captures need the model of the whole, in words. The others are of no use
    // then.
    std::string needs_model;
    std::map<std::string, std::int64_t> ahead_ns; // of the common clock, by host
    bool has_network_signs = false, has_errors = false;
    // As StandingJoiner has them.
    bool may_be_too_short = false;
    std::size_t unknown_ends = 0, unknown_pairs = 0;
};

// `job`: as Selection::job.
[[nodiscard]] ReadStandings read_standings(const ChosenCaptures &chosen, const std::string &job);

// Whether a rank that a verdict names for certain has paused as long before is in all of its calls,
// which a tail does not have: reads them of the captures of its host.
void read_pauses(const ChosenCaptures &chosen, const std::vector<std::string> &hosts,
                 stall::Standings &standings);

} // namespace collwire::cli
