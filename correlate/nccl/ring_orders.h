// SPDX-License-Identifier: Apache-2.0
// The order of the ranks on rings. Every rank of a communicator records each ring, from itself on:
// with 8,192 ranks and 16 channels that is 4 GiB. One copy of each ring is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace collwire::nccl {

// A ring from one of its ranks on. Copies share the ring.
class RingOrder {
public:
    RingOrder() = default;
    RingOrder(std::shared_ptr<const std::vector<std::int32_t>> ring, std::size_t first)
        : ring_(std::move(ring)), first_(first) {}

    [[nodiscard]] std::size_t size() const { return ring_ ? ring_->size() : 0; }
    [[nodiscard]] bool empty() const { return size() == 0; }
    // The rank that comes `i` after the first one.
    [[nodiscard]] std::int32_t operator[](std::size_t i) const {
        return (*ring_)[(first_ + i) % ring_->size()];
    }
    // From its least rank on. Not of an empty one.
    [[nodiscard]] const std::vector<std::int32_t> &from_least() const { return *ring_; }

private:
    std::shared_ptr<const std::vector<std::int32_t>> ring_; // from its least rank on
    std::size_t first_ = 0;
};

class RingOrders {
public:
    [[nodiscard]] RingOrder keep(std::vector<std::int32_t> order);

private:
    std::unordered_multimap<std::uint64_t, std::shared_ptr<const std::vector<std::int32_t>>> kept_;
};

} // namespace collwire::nccl
