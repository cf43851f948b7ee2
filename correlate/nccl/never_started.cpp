// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/never_started.h"

#include <algorithm>
#include <array>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {
namespace {

// Since 2.26 NCCL counts per communicator and excludes captured calls.
constexpr std::uint32_t FIRST_WITH_OWN_COUNT = 22600;

} // namespace

std::uint64_t never_started(const NcclFacts &nccl, const Instance &instance) {
    if (instance.version < FIRST_WITH_OWN_COUNT || !instance.created ||
        instance.returned_calls == instance.n_calls)
        return 0;
    const CommStream &stream = nccl.gathered.streams[instance.stream];
    std::uint64_t called = 0;
    std::array<std::uint64_t, 2> missing{UINT64_MAX, UINT64_MAX};
    std::uint32_t call = 0;
    bool is_same_moment = false;
    for (std::uint32_t i = 0; i < instance.n_launches; ++i) {
        const Launch &launch = stream.launches[instance.first_launch + i];
        if ((launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0)
            return 0;
        if ((launch.flags & CW_NCCL_LAUNCH_LAUNCHED) == 0)
            continue;
        for (; call < instance.n_calls &&
               stream.calls[instance.first_call + call].time_ns <= launch.time_ns;
             ++call) {
            const std::uint32_t index = instance.first_call + call;
            called += is_counted_by_nccl(stream.calls[index]) &&
                              !is_grouped_broadcast(nccl, instance, index)
                          ? 1
                          : 0;
            is_same_moment = false;
        }
        if (!is_same_moment)
            missing[0] = missing[1];
        missing[1] = model::subtract_or_zero(called, launch.launched);
        is_same_moment = true;
    }
    return missing[0] == UINT64_MAX ? 0 : std::min(missing[0], missing[1]);
}

} // namespace collwire::nccl
