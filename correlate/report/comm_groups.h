// SPDX-License-Identifier: Apache-2.0
// Communicators that a table shows as one: those of one name (or one guessed role), as the data
// parallel groups of a job, one for each GPU of a node.
#pragma once

#include <string>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/roles/facts.h"

namespace collwire::report {

class CommGroups {
public:
    CommGroups(const nccl::NcclFacts &nccl, const std::vector<roles::RoleGuess> &guesses);

    // The first communicator of its group.
    [[nodiscard]] model::Index first_of(model::Index comm) const { return first_[comm]; }
    // "3 data" for one communicator, "data x 8" for a group, by its first.
    [[nodiscard]] std::string title_of(model::Index first) const;
    [[nodiscard]] bool is_group(model::Index first) const { return n_[first] > 1; }
    // For a line under the table: what a group is.
    [[nodiscard]] std::string note_on(model::Index first) const;

private:
    std::vector<std::string> labels_;
    std::vector<model::Index> first_; // by communicator
    std::vector<std::size_t> n_;      // by the first of a group
};

} // namespace collwire::report
