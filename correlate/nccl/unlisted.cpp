// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/unlisted.h"

#include <algorithm>

#include "collwire/nccl_launch_records.h"
#include "correlate/model/counters.h"

namespace collwire::nccl {

void UnlistedSums::add(Index instance, const Launch &launch, std::uint8_t func,
                       const OpShare &share) {
    const bool is_captured = (launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0;
    auto &[entry, last] = sums_[{instance, func, is_captured}];
    entry.instance = instance;
    entry.func = func;
    entry.captured = is_captured;
    if (entry.launches == 0 || last != launch.order)
        ++entry.launches;
    last = launch.order;
    entry.rung = std::min(entry.rung, share.rung);
    if (!share.is_known)
        entry.payload_bytes.reset();
    else if (entry.payload_bytes)
        entry.payload_bytes = model::add_saturating(*entry.payload_bytes, share.payload_bytes);
}

void UnlistedSums::append_to(std::vector<UnlistedLaunches> &list) const {
    for (const auto &[key, sum] : sums_)
        list.push_back(sum.first);
}

} // namespace collwire::nccl
