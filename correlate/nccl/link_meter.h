// SPDX-License-Identifier: Apache-2.0
// What a link carried, against what was launched on it. Operations on a link are first-in,
// first-out, so at a moment at which all that was launched is done its bytes are those of the
// operations before. Such moments cut its time into intervals, each of which is accounted for by
// itself: a mistake in one does not spread.
#pragma once

#include <cstdint>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

// What an operation adds to the counters of its link, net_socket's headers included. Of one that is
// not known: a bound of it.
[[nodiscard]] std::uint64_t bytes_on(const Link &link, const ShapeOp &op);
[[nodiscard]] inline bool is_certain(const ShapeOp &op) {
    return op.is_known && !op.is_bound;
}

struct LinkSample {
    std::uint64_t time_ns = 0;
    std::uint64_t payload_bytes = 0;
    std::uint64_t wire_bytes = 0;
    bool is_quiet = false; // nothing moved for a while, before it or behind it
};

// It may have carried bytes of what was launched before the recording.
[[nodiscard]] bool is_late(const model::Model &model, const Link &link);

// Its queue pairs or sockets together. Fills source, measured_bytes, wire_bytes, tiers and, where
// it is not the start of the recording, since when it is measured. `is_late`: it may have been
// there before.
[[nodiscard]] std::vector<LinkSample> read_samples(const model::Model &model, Link &link,
                                                   bool is_late);

// Intervals that may have bytes of launches that were not seen whole, in order: of those since the
// end of the interval before.
void note_cut_launches(Link &link, const std::vector<std::uint32_t> &orders);

// What one operation carried, by the interval that it is in.
struct OpShare {
    std::uint64_t payload_bytes = 0;
    std::uint64_t header_bytes = 0; // net_socket's, of what was measured
    Known wire_bytes;               // its share of the frames
    bool is_known = false;
    bool is_whole = true;   // false: the recording ended before
    bool is_agreed = false; // what was measured is what the operations come to, or can be
    ByteSource source = ByteSource::None;
    Rung rung = Rung::Process;
};
[[nodiscard]] OpShare share_of(const Link &link, const ShapeOp &op, std::uint32_t order,
                               std::uint32_t op_index);

// value * part / whole, rounded down or to the nearest; 0 of nothing.
[[nodiscard]] std::uint64_t part_of(std::uint64_t value, std::uint64_t part, std::uint64_t whole,
                                    bool to_nearest = false);

class LinkMeter {
public:
    // A pause after the launch of what is before `eager_until` (an order) counts as a moment at
    // which all is done, even if bytes are missing.
    LinkMeter(Link &link, const std::vector<LinkSample> &samples, bool is_late,
              std::uint32_t eager_until = 0);

    // Operations in the order of their launches.
    void launch(const ShapeOp &op, std::uint64_t time_ns, std::uint32_t order);
    // `is_open`: what was launched last may still be under way.
    void finish(std::uint32_t order, bool is_open);

private:
    void take_samples(std::uint64_t until_ns);
    void take_sample(std::size_t i);
    [[nodiscard]] IntervalKind single_or(IntervalKind other) const;
    void close(IntervalKind kind, std::uint32_t end);
    void add_empty_frames();
    [[nodiscard]] bool leave_out_greeting();

    Link &link_;
    const std::vector<LinkSample> &samples_;
    bool is_late_;
    std::uint32_t eager_until_;
    bool is_settled_;      // what it carries is of what was launched in the recording
    std::size_t next_ = 0; // sample
    std::uint64_t measured_ = 0;
    std::uint64_t closed_ = 0; // of measured_, in closed intervals
    std::uint64_t wire_ = 0;
    std::uint64_t wire_closed_ = 0;
    bool can_close_ = false;  // the last sample may be such a moment
    std::uint32_t order_ = 0; // of the last launch
    Interval open_;
};

} // namespace collwire::nccl
