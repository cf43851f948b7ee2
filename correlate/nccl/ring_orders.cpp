// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/ring_orders.h"

#include <algorithm>
#include <utility>

namespace collwire::nccl {

RingOrder RingOrders::keep(std::vector<std::int32_t> order) {
    if (order.empty())
        return {};
    const auto least = std::min_element(order.begin(), order.end());
    const auto before = static_cast<std::size_t>(least - order.begin());
    std::rotate(order.begin(), least, order.end());
    const std::size_t first = before == 0 ? 0 : order.size() - before;
    std::uint64_t hash = order.size();
    for (const std::int32_t rank : order)
        hash = (hash ^ static_cast<std::uint32_t>(rank)) * 0x9e3779b97f4a7c15U;
    const auto [begin, end] = kept_.equal_range(hash);
    for (auto at = begin; at != end; ++at)
        if (*at->second == order)
            return {at->second, first};
    order.shrink_to_fit();
    const auto kept = std::make_shared<const std::vector<std::int32_t>>(std::move(order));
    kept_.emplace(hash, kept);
    return {kept, first};
}

} // namespace collwire::nccl
