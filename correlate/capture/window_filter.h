// SPDX-License-Identifier: Apache-2.0
// Chooses what a reader of one time window needs of a capture. What it lets through reads like a
// segment that starts with the window: the state of that moment, the last sample of each counter
// before it, what happened inside, and the first sample of each counter after it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "collwire/record.h"
#include "correlate/capture/format.h"
#include "correlate/capture/reader.h"

namespace collwire::capture {

// CLOCK_REALTIME of each node; half open.
struct Window {
    std::uint64_t from_ns = 0;
    std::uint64_t to_ns = UINT64_MAX;
    // Of windows that follow each other: they share no record and no counted byte, and miss none.
    // Counters end with their last sample inside; what was counted shortly before the window and
    // not sampled until then is inside. The clock is that of the capture's first reading, and does
    // not step.
    bool is_one_of_many = false;
    [[nodiscard]] bool contains(std::uint64_t realtime_ns) const {
        return from_ns <= realtime_ns && realtime_ns < to_ns;
    }
};

// Counters are sampled at an interval, and written where they changed. So many intervals before a
// window are searched for the last sample of each.
inline constexpr std::uint64_t INTERVALS_BEFORE = 10;
// And so many after it for the first sample of each: it has the last bytes of the window.
inline constexpr std::uint64_t INTERVALS_AFTER = 2;
inline constexpr std::uint64_t DEFAULT_INTERVAL_NS = 1'000'000'000;

// Of one capture. The node's clock is taken by the newest reading of CLOCK_REALTIME in the file,
// or, of one of many windows, by the first.
class WindowFilter {
public:
    explicit WindowFilter(const Window &window) : window_(window) {}

    // Whether the records of the block are needed.
    [[nodiscard]] bool needs(const BlockHeader &block);
    // Gives `visit` the record, an older one that is due now, or nothing.
    void add(const cw_header &header, std::span<const std::byte> record,
             const RecordVisitor &visit);
    // At the end of the capture: what is still held back.
    void finish(const RecordVisitor &visit);
    // The summary of a capture that ends with the window.
    void clip(ReadSummary &summary) const;

    // Events and samples inside the window.
    [[nodiscard]] std::uint64_t records_inside() const { return records_inside_; }
    // Counters that have a sample in the window and none before it: what they counted up to that
    // sample is not known.
    [[nodiscard]] std::uint64_t counters_without_start() const { return without_start_; }

private:
    using Key = std::string; // kind and identity
    using Stored = std::vector<std::uint64_t>;
    struct Held { // of an object that may end before the window
        std::vector<Stored> records;
    };

    [[nodiscard]] std::uint64_t monotonic_ns(std::uint64_t realtime_ns) const;
    [[nodiscard]] std::uint64_t from_ns() const { return monotonic_ns(window_.from_ns); }
    [[nodiscard]] std::uint64_t to_ns() const { return monotonic_ns(window_.to_ns); }
    void add_node(std::span<const std::byte> record, const RecordVisitor &visit);
    void add_state(const cw_header &header, std::span<const std::byte> record,
                   const RecordVisitor &visit);
    void add_counter(const cw_header &header, std::span<const std::byte> record,
                     const RecordVisitor &visit);
    [[nodiscard]] bool is_shortly_after(std::uint64_t time_ns) const;
    [[nodiscard]] bool starts_inside(const cw_header &header,
                                     std::span<const std::byte> record) const;
    void move_start(std::vector<std::uint64_t> &record, std::size_t offset) const;
    void move_starts(std::vector<std::uint64_t> &record) const;
    [[nodiscard]] bool is_new_socket(const cw_header &header,
                                     std::span<const std::byte> record) const;
    void forget_counters(const Key &prefix);
    void release(const RecordVisitor &visit);

    Window window_;
    bool has_clock_ = false;
    std::int64_t realtime_minus_monotonic_ns_ = 0;
    std::uint64_t node_ns_ = 0;  // monotonic; the capture starts there
    std::uint64_t begin_ns_ = 0; // likewise, for who reads the window; 0: there, too
    std::uint64_t interval_ns_ = DEFAULT_INTERVAL_NS;
    bool is_released_ = false;
    std::map<Key, Held> held_;            // communicators and queue pairs
    std::map<Key, Stored> before_;        // the newest sample of each counter, up to the window
    std::set<Key> after_;                 // counters with a sample after the window
    std::set<Key> seen_;                  // counters with a sample up to the window's end
    std::set<std::uint32_t> joined_late_; // processes with communicators from before the recording
    std::set<Key> without_sample_;        // those with none before it; if counters end inside
    std::uint64_t records_inside_ = 0, without_start_ = 0;
};

} // namespace collwire::capture
