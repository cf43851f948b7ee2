// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/cut_launches.h"

#include <algorithm>
#include <iterator>

#include "collwire/nccl_launch_records.h"

namespace collwire::nccl {

CutLaunches::CutLaunches(const model::Model &model) : groups_(model.nccl.instances.size()) {
    for (Index index = 0; index < groups_.size(); ++index) {
        const Instance &instance = model.nccl.instances[index];
        const CommStream &stream = model.nccl.gathered.streams[instance.stream];
        const auto begin = stream.launches.begin() + instance.first_launch;
        const auto end = begin + instance.n_launches;
        const auto by_time = [](const auto &one, std::uint64_t time_ns) {
            return one.time_ns < time_ns;
        };
        for (auto at = begin; at != end; ++at) {
            const Launch launch = *at;
            if ((launch.flags & CW_NCCL_LAUNCH_TRUNCATED) == 0)
                continue;
            // A group is launched in parts: its calls precede the first of them.
            const auto next_call =
                std::lower_bound(stream.calls.begin(), stream.calls.end(), launch.time_ns, by_time);
            if (next_call == stream.calls.begin())
                continue;
            const auto first = std::lower_bound(begin, end, std::prev(next_call)->time_ns, by_time);
            const std::uint64_t after_ns = first == begin ? 0 : std::prev(first)->time_ns;
            groups_[index].emplace_back(after_ns, launch.time_ns);
        }
    }
}

bool CutLaunches::may_hold(Index instance, const Call &call) const {
    const auto &groups = groups_[instance];
    const auto group = std::lower_bound(
        groups.begin(), groups.end(), call.time_ns,
        [](const auto &one, std::uint64_t time_ns) { return one.second < time_ns; });
    return group != groups.end() && call.time_ns > group->first;
}

} // namespace collwire::nccl
