// SPDX-License-Identifier: Apache-2.0
// Cumulative byte samples of a queue pair or socket over a recording. More than MAX_SAMPLES are
// thinned out, which costs resolution but no bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace collwire::nccl {

struct ByteSample {
    std::uint64_t time_ns = 0;
    std::uint64_t last_ns = 0; // of the last byte before it; 0: not known
    std::uint64_t payload_bytes = 0;
    std::uint64_t wire_bytes = 0;
    std::uint64_t changed_ns = 0; // time of the previous, different values; 0: never
};

class ByteSeries {
public:
    static constexpr std::size_t MAX_SAMPLES = 8192;

    // Ignores a sample that is not newer than the last or has equal values: reading a capture twice
    // changes nothing.
    void add(const ByteSample &read);
    // Bytes counted before the baseline are excluded.
    void set_baseline(const ByteSample &baseline) { baseline_ = baseline; }

    [[nodiscard]] std::size_t size() const { return samples_.size(); }
    // Minus the baseline.
    [[nodiscard]] ByteSample at(std::size_t i) const;

private:
    std::vector<ByteSample> samples_;
    ByteSample baseline_;
};

} // namespace collwire::nccl
