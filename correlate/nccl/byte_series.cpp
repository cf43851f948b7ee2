// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/byte_series.h"

#include <algorithm>

#include "correlate/model/counters.h"

namespace collwire::nccl {

using model::subtract_or_zero;

void ByteSeries::add(const ByteSample &read) {
    ByteSample sample = read;
    // Samples of one poll have its start time, but each may be read later: bytes launched in
    // between would seem to be on the wire too early.
    sample.time_ns = std::max(read.time_ns, read.last_ns);
    if (!samples_.empty()) {
        ByteSample &last = samples_.back();
        if (sample.time_ns <= last.time_ns ||
            (sample.payload_bytes == last.payload_bytes && sample.wire_bytes == last.wire_bytes))
            return;
        last.changed_ns = sample.time_ns;
    }
    if (samples_.size() == MAX_SAMPLES) {
        // Every second one, including the last.
        for (std::size_t i = 0; i < MAX_SAMPLES / 2; ++i)
            samples_[i] = samples_[2 * i + 1];
        samples_.resize(MAX_SAMPLES / 2);
    }
    samples_.push_back(sample);
}

ByteSample ByteSeries::at(std::size_t i) const {
    ByteSample sample = samples_[i];
    sample.payload_bytes = subtract_or_zero(sample.payload_bytes, baseline_.payload_bytes);
    sample.wire_bytes = subtract_or_zero(sample.wire_bytes, baseline_.wire_bytes);
    return sample;
}

} // namespace collwire::nccl
