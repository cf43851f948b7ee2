// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/count_places.h"

#include <algorithm>
#include <vector>

namespace collwire::nccl {

void CountPlaces::add(const CallSequence &of, std::uint32_t n_items, std::uint64_t seq) {
    std::vector<Place> seen;
    const CountedAt *before = nullptr;
    for (const CountedAt &at : of.counted_at) {
        if (at.items > n_items)
            break;
        const bool is_consistent = before != nullptr && of.is_consistent(*before, at);
        std::uint64_t position = is_consistent ? before->counted : at.counted - 1;
        for (std::uint32_t i = is_consistent ? before->items : at.items - 1;
             at.items != 0 && i < at.items; ++i)
            if (of.items[i].is_counted)
                seen.push_back({position++, seq + i, of.items[i].signature});
        before = &at;
    }
    // Sorted by both, unless there are no counts.
    const auto less = [](const Place &a, const Place &b) { return a.position < b.position; };
    const auto is_in_order = [](const Place &a, const Place &b) {
        return a.position >= b.position || a.seq >= b.seq;
    };
    if (seen.empty() || std::adjacent_find(seen.begin(), seen.end(), is_in_order) != seen.end())
        return;
    if (places_.empty()) {
        places_.assign(seen.begin(), seen.end());
        return;
    }
    const auto earlier = std::lower_bound(seen.begin(), seen.end(), places_.front(), less);
    const auto later = std::upper_bound(seen.begin(), seen.end(), places_.back(), less);
    places_.insert(places_.end(), later, seen.end());
    places_.insert(places_.begin(), seen.begin(), earlier);
}

const CountPlaces::Place *CountPlaces::find(std::uint64_t position) const {
    const auto found = std::lower_bound(
        places_.begin(), places_.end(), position,
        [](const Place &place, std::uint64_t wanted) { return place.position < wanted; });
    return found != places_.end() && found->position == position ? &*found : nullptr;
}

Known CountPlaces::seq_of(const CallSequence &of, std::uint32_t n_items) const {
    Known seq;
    for (const CountedAt &at : of.counted_at) {
        if (at.items == 0)
            continue;
        if (at.items > n_items)
            break;
        const std::uint32_t item = at.items - 1;
        const Place *place = find(CallSequence::position(at));
        if (place == nullptr)
            continue;
        if (place->signature != of.items[item].signature || place->seq < item ||
            (seq && *seq != place->seq - item))
            return std::nullopt;
        seq = place->seq - item;
    }
    return seq;
}

} // namespace collwire::nccl
