// SPDX-License-Identifier: Apache-2.0
// Which number the collective has that NCCL counted as its n-th: known where a rank that was placed
// saw it. What NCCL does not count has a number, too, so one that nobody saw has no place here.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "correlate/nccl/call_sequence.h"

namespace collwire::nccl {

class CountPlaces {
public:
    struct Place {
        std::uint64_t position = 0; // by NCCL's count
        std::uint64_t seq = 0;
        std::uint64_t signature = 0;
    };

    // The first `n_items` of a rank, the first of which has number `seq`. Only what nobody before
    // saw is added.
    void add(const CallSequence &of, std::uint32_t n_items, std::uint64_t seq);
    [[nodiscard]] const Place *find(std::uint64_t position) const;
    [[nodiscard]] bool ends_before(std::uint64_t counted) const {
        return places_.empty() || places_.back().position + 1 < counted;
    }
    // The number of the first item, by all that is known of the first `n_items`. Nothing where that
    // is nothing, or does not agree.
    [[nodiscard]] Known seq_of(const CallSequence &of, std::uint32_t n_items) const;

private:
    std::deque<Place> places_; // by position
};

} // namespace collwire::nccl
