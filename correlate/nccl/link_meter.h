// SPDX-License-Identifier: Apache-2.0
// Compares a flow's measured bytes with the operations launched on it. Operations on a flow are
// first-in, first-out, so at a moment when all launched ones are complete, the flow's bytes are
// those of the earlier operations. Such moments cut its time into intervals, each of which is
// accounted for separately: a mistake in one does not spread.
#pragma once

#include <cstdint>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

// An operation's bytes in its flow's counters, net_socket's headers included. If unknown, an upper
// bound.
[[nodiscard]] std::uint64_t bytes_on(const Link &link, const ShapeOp &op);
[[nodiscard]] inline bool is_certain(const ShapeOp &op) {
    return op.is_known && !op.is_bound;
}

struct LinkSample {
    std::uint64_t time_ns = 0;
    std::uint64_t payload_bytes = 0;
    std::uint64_t wire_bytes = 0;
    bool is_quiet = false; // no bytes for a while before or after it
};

// It may have carried bytes of launches before the recording.
[[nodiscard]] bool is_late(const model::Model &model, const Link &link);

// Its queue pairs or sockets together. Fills source, measured_bytes, wire_bytes, tiers and, if it
// is later than the start of the recording, the start of the measurement. `is_late`: it may be
// pre-existing.
[[nodiscard]] std::vector<LinkSample> read_samples(const model::Model &model, Link &link,
                                                   bool is_late);

// Marks intervals that may contain bytes of incompletely recorded launches, in order: of those
// since the end of the previous interval.
void note_cut_launches(Link &link, const std::vector<std::uint32_t> &orders);

// Bytes of one operation, from its interval.
struct OpShare {
    std::uint64_t payload_bytes = 0;
    std::uint64_t header_bytes = 0; // net_socket's, of the measured bytes
    Known wire_bytes;               // its share of the wire bytes
    bool is_known = false;
    bool is_whole = true;   // false: the recording ended before it was complete
    bool is_agreed = false; // the measured bytes equal the operations' bytes, or are possible
    ByteSource source = ByteSource::None;
    Rung rung = Rung::Process;
};
[[nodiscard]] OpShare share_of(const Link &link, const ShapeOp &op, std::uint32_t order,
                               std::uint32_t op_index);

// value * part / whole, rounded down or to the nearest; 0 if whole is 0.
[[nodiscard]] std::uint64_t part_of(std::uint64_t value, std::uint64_t part, std::uint64_t whole,
                                    bool to_nearest = false);

class LinkMeter {
public:
    // A pause after the launches before `eager_until` (an order) counts as completion, even if
    // bytes are missing.
    LinkMeter(Link &link, const std::vector<LinkSample> &samples, bool is_late,
              std::uint32_t eager_until = 0);

    // Operations in launch order.
    void launch(const ShapeOp &op, std::uint64_t time_ns, std::uint32_t order);
    // `is_open`: the last launch may still be in flight.
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
    bool is_settled_;      // its bytes belong to launches in the recording
    std::size_t next_ = 0; // sample
    std::uint64_t measured_ = 0;
    std::uint64_t closed_ = 0; // of measured_, in closed intervals
    std::uint64_t wire_ = 0;
    std::uint64_t wire_closed_ = 0;
    bool can_close_ = false;  // the last sample may be a moment of completion
    std::uint32_t order_ = 0; // of the last launch
    Interval open_;
};

} // namespace collwire::nccl
