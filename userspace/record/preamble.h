// SPDX-License-Identifier: Apache-2.0
// What a capture starts with: the node, its clock, the probes and what each source can do.
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

// Where sources were not sampled for more than one and a half intervals.
class SampleGaps {
public:
    explicit SampleGaps(std::uint64_t interval_ns) : interval_ns_(interval_ns) {}
    void start(std::uint64_t now_ns) { last_begin_ns_ = now_ns; }
    // They were sampled in this time. A gap is from what was read first the last time to what is
    // read last now. Where one of them did not read all that it has, nothing was read.
    void append(source::RecordSink &sink, const Sources &sources, std::uint64_t begin_ns,
                std::uint64_t end_ns);

private:
    std::uint64_t interval_ns_;
    std::uint64_t last_begin_ns_ = 0;
};

// What each source can do, as last appended: one state for a source and device.
class StateTable {
public:
    // Appends each state that is not as it was last appended, or all of them with `everything`. Of
    // several states of one device it is the worst, with the reasons of all.
    void append(source::RecordSink &sink, const Sources &sources, bool everything);
    // "posts: what is missing", a line for each state that became another since the last call; one
    // whose reason differs in its numbers alone is not said again.
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
    // sources may count the same class on the same CPU: their sum is what was lost.
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
