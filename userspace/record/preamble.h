// SPDX-License-Identifier: Apache-2.0
// The first records of a capture: the node, its clock, the probes and the state of each source.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collwire/node_records.h"
#include "userspace/record/options.h"
#include "userspace/source/source.h"

namespace collwire::record {

class NodeIdentity {
public:
    // Reads the node and draws a session id.
    explicit NodeIdentity(std::uint64_t sample_interval_ns);
    [[nodiscard]] std::string hostname() const;
    void set_record_start(std::uint64_t monotonic_ns) { node_.record_start_ns = monotonic_ns; }
    void append(source::RecordSink &sink, std::uint32_t segment, std::uint32_t flags) const;

private:
    cw_node node_{};
};

using Sources = std::vector<std::unique_ptr<source::Source>>;

void append_clock(source::RecordSink &sink);
void append_probes(source::RecordSink &sink, const Sources &sources);

// Gaps in which sources were not sampled for more than one and a half intervals.
class SampleGaps {
public:
    explicit SampleGaps(std::uint64_t interval_ns) : interval_ns_(interval_ns) {}
    void start(std::uint64_t now_ns) { last_begin_ns_ = now_ns; }
    // Records a sampling in this time. A gap is from the first read of the last sampling to the
    // last read of this one. If a source did not read all its counters, the sampling does not
    // count.
    void append(source::RecordSink &sink, const Sources &sources, std::uint64_t begin_ns,
                std::uint64_t end_ns);

private:
    std::uint64_t interval_ns_;
    std::uint64_t last_begin_ns_ = 0;
};

// The state of each source and device, as last appended.
class StateTable {
public:
    // Appends each changed state, or all of them with `everything`. Of several states of one device
    // the worst, with the reasons of all.
    void append(source::RecordSink &sink, const Sources &sources, bool everything);
    // "posts: reason", a line for each state that changed since the last call; a change of numbers
    // in the reason is not reported again.
    [[nodiscard]] std::vector<std::string> take_news();

private:
    using Key = std::pair<std::string, std::uint32_t>; // source, dev_index
    void note(const std::string &name, const source::SourceState &before,
              const source::SourceState &now);

    std::map<Key, source::SourceState> appended_;
    std::vector<std::string> news_;
};

// All losses by class and CPU, as last appended.
class LossTable {
public:
    // Appends each count that grew since the last time, or all of them with `everything`. Several
    // sources may count the same class on the same CPU: their sum is the loss.
    void append(source::RecordSink &sink, const std::vector<source::LossCount> &now,
                bool everything);
    [[nodiscard]] std::uint64_t total() const;
    // "12 QP events, 3 frames": empty without loss.
    [[nodiscard]] std::string describe() const;

private:
    using Key = std::pair<std::uint32_t, std::uint16_t>; // class, CPU
    std::map<Key, std::uint64_t> counts_;
};

} // namespace collwire::record
