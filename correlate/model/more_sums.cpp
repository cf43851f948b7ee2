// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/more_sums.h"

#include <algorithm>
#include <tuple>

namespace collwire::model {

MoreSums::MoreSums(Model &model) : model_(model) {
    for (Index index = 0; index < model_.node_pairs.size(); ++index) {
        const NodePair &pair = model_.node_pairs[index];
        pairs_[{pair.source, pair.destination}] = index;
    }
    for (Index index = 0; index < model_.processes.size(); ++index) {
        const Process &process = model_.processes[index];
        const auto [found, is_new] = processes_.try_emplace({process.host, process.pid}, index);
        if (!is_new &&
            model_.processes[found->second].start_boottime_ns < process.start_boottime_ns)
            found->second = index;
    }
    for (Index index = 0; index < model_.process_sums.size(); ++index)
        sums_[model_.process_sums[index].process] = index;
}

MoreSums::~MoreSums() {
    std::sort(model_.node_pairs.begin(), model_.node_pairs.end(),
              [](const NodePair &a, const NodePair &b) {
                  return std::tie(a.source, a.destination) < std::tie(b.source, b.destination);
              });
}

NodePair &MoreSums::pair_of(Index host, const std::string &destination, bool is_captured) {
    const std::string &source = model_.hosts[host].name;
    const auto [found, is_new] =
        pairs_.try_emplace({source, destination}, static_cast<Index>(model_.node_pairs.size()));
    if (is_new) {
        NodePair &pair = model_.node_pairs.emplace_back();
        pair.source = source;
        pair.destination = destination;
    }
    NodePair &pair = model_.node_pairs[found->second];
    pair.destination_captured = pair.destination_captured || is_captured;
    return pair;
}

ProcessSums &MoreSums::process_of(Index host, std::uint32_t pid) {
    const auto [found, is_unknown] =
        processes_.try_emplace({host, pid}, static_cast<Index>(model_.processes.size()));
    if (is_unknown) {
        Process &process = model_.processes.emplace_back();
        process.host = host;
        process.pid = pid;
    }
    const auto [sums, is_new] =
        sums_.try_emplace(found->second, static_cast<Index>(model_.process_sums.size()));
    if (is_new)
        model_.process_sums.emplace_back().process = found->second;
    return model_.process_sums[sums->second];
}

} // namespace collwire::model
