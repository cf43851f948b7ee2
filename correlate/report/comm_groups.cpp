// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/comm_groups.h"

#include <map>

#include <fmt/format.h>

#include "correlate/report/comm_label.h"
#include "correlate/roles/guess_roles.h"

namespace collwire::report {

using model::Index;

CommGroups::CommGroups(const nccl::NcclFacts &nccl, const std::vector<roles::RoleGuess> &guesses)
    : n_(nccl.communicators.size(), 0) {
    std::map<std::string, Index> by_label;
    for (Index i = 0; i < nccl.communicators.size(); ++i) {
        const nccl::Communicator &comm = nccl.communicators[i];
        labels_.push_back(short_comm_label(comm, guesses[i]));
        Index first = i;
        if (!comm.name.empty() || !roles::guess_mark(guesses[i]).empty())
            first = by_label.try_emplace(labels_[i], i).first->second;
        first_.push_back(first);
        ++n_[first];
    }
}

std::string CommGroups::title_of(Index first) const {
    return is_group(first) ? fmt::format("{} x {}", labels_[first], n_[first])
                           : fmt::format("{} {}", first, labels_[first]);
}

std::string CommGroups::note_on(Index first) const {
    return fmt::format("{}: the {} communicators of that name, together. One by one: "
                       "--json, --sqlite",
                       title_of(first), n_[first]);
}

} // namespace collwire::report
