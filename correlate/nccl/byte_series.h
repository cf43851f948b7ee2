// SPDX-License-Identifier: Apache-2.0
// How the bytes of a queue pair or socket grew over a recording: cumulative samples. More than
// MAX_SAMPLES are thinned out, which costs resolution and no bytes.
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
    std::uint64_t changed_ns = 0; // when they were others; 0: never
};

class ByteSeries {
public:
    static constexpr std::size_t MAX_SAMPLES = 8192;

    // One that is not newer than the last, or tells the same, is left out: a capture read twice
    // changes nothing.
    void add(const ByteSample &read);
    // What was counted before counts no more.
    void set_baseline(const ByteSample &baseline) { baseline_ = baseline; }

    [[nodiscard]] std::size_t size() const { return samples_.size(); }
    // Less the baseline.
    [[nodiscard]] ByteSample at(std::size_t i) const;

private:
    std::vector<ByteSample> samples_;
    ByteSample baseline_;
};

} // namespace collwire::nccl
