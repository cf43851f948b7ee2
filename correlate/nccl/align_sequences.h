// SPDX-License-Identifier: Apache-2.0
// Matches two ranks' calls if only their order and times are known.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace collwire::nccl {

struct SequenceItem {
    std::uint64_t signature = 0; // equal for one operation on all ranks
    std::uint64_t time_ns = 0;   // of one clock; 0: not known
};

struct Alignment {
    std::int64_t offset = 0; // b[i] is a[i + offset]
    double confidence = 0;   // 1: no other offset fits
};

// Absent if no offset fits, or if several do and none is clearly nearest in time.
[[nodiscard]] std::optional<Alignment> align_sequences(std::span<const SequenceItem> a,
                                                       std::span<const SequenceItem> b);

} // namespace collwire::nccl
