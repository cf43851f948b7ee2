// SPDX-License-Identifier: Apache-2.0
// What NVML counted on the NVLinks of one GPU, over a recording. A counter may be absent, wrap or
// restart; none of these is an increase of 0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collwire/nvlink_records.h"

namespace collwire::gpu {

// One cumulative counter.
class NvlinkCounter {
public:
    struct Step {
        std::uint64_t delta = 0;
        bool is_restart = false; // the counter began again: what it counted before that is unknown
    };
    // Of the first value: a step of 0. `is_32_bit`: NVML gave an unsigned int, which wraps: a value
    // from the last quarter of its range is followed by one of the first, with no restart of NVML
    // in between. Any other decrease is a restart.
    Step add(std::uint64_t value, bool is_32_bit, std::uint32_t epoch);

    [[nodiscard]] std::uint64_t increase() const { return increase_; }
    [[nodiscard]] std::uint64_t last() const { return last_; }
    [[nodiscard]] std::uint64_t restarts() const { return restarts_; }
    [[nodiscard]] std::uint64_t wraps() const { return wraps_; }

private:
    bool has_value_ = false;
    std::uint32_t epoch_ = 0;
    std::uint64_t last_ = 0, increase_ = 0, restarts_ = 0, wraps_ = 0;
};

// What a byte counter includes.
enum class NvlinkExtent : std::uint8_t {
    Payload,      // NVML: data
    WithOverhead, // NVML: data and protocol overhead
    Undocumented, // NVLink 5: "total bytes on the link"
};

// The counters that the bytes of a GPU were taken from.
struct NvlinkByteSource {
    std::uint16_t tx_field = 0, rx_field = 0;
    bool is_sum_of_links = false; // else NVML's own sum
    std::uint64_t unit_bytes = 0;
    NvlinkExtent extent = NvlinkExtent::Payload;
};

// Bytes between the reading before and this one.
struct NvlinkReading {
    std::uint64_t begin_ns = 0, time_ns = 0; // it was read between both
    std::uint64_t tx_bytes = 0, rx_bytes = 0;
    bool is_lower_bound = false; // a counter restarted
};

struct NvlinkGrowth {
    std::uint64_t time_ns = 0;
    std::uint64_t delta = 0;
};

struct NvlinkLinkCounter {
    NvlinkCounter counter;
    std::vector<NvlinkGrowth> growths; // at most MAX_GROWTHS; older neighbours are added up
};

// The answer to a field at last.
struct NvlinkAnswer {
    std::uint16_t type = 0, result = 0;
    std::uint64_t value = 0;
};

class NvlinkHistory {
public:
    static constexpr std::size_t MAX_GROWTHS = 1024;
    static constexpr std::size_t MAX_LINKS = 64; // records of others are not used

    // Samples in time order; one that is not newer is ignored.
    void add(const cw_nvlink_sample &head, std::span<const cw_nvlink_value> values);

    [[nodiscard]] const std::optional<NvlinkByteSource> &byte_source() const { return source_; }
    // The first one is where counting starts: its bytes are 0.
    [[nodiscard]] const std::vector<NvlinkReading> &readings() const { return readings_; }
    [[nodiscard]] std::uint64_t samples() const { return samples_; }
    [[nodiscard]] std::uint64_t first_ns() const { return first_ns_; }
    [[nodiscard]] std::uint64_t last_ns() const { return last_ns_; }
    // By link and field: counters of errors and recoveries that were measured at least once.
    [[nodiscard]] const std::map<std::pair<std::uint16_t, std::uint16_t>, NvlinkLinkCounter> &
    link_counters() const {
        return link_counters_;
    }
    // Null: never asked.
    [[nodiscard]] const NvlinkAnswer *answer(std::uint16_t field, std::uint16_t link) const;
    // Answered and measured.
    [[nodiscard]] std::optional<std::uint64_t> value(std::uint16_t field, std::uint16_t link) const;

private:
    void choose_source();
    void add_reading(const cw_nvlink_sample &head);
    // Of all links or of the sum; empty: not measured this time.
    std::optional<NvlinkCounter::Step> step(std::uint16_t field, std::uint32_t epoch);
    void count_errors(const cw_nvlink_sample &head);

    std::map<std::pair<std::uint16_t, std::uint16_t>, NvlinkAnswer> answers_; // field, link
    std::optional<NvlinkByteSource> source_;
    std::map<std::pair<std::uint16_t, std::uint16_t>, NvlinkCounter> bytes_; // field, link
    std::vector<NvlinkReading> readings_;
    std::map<std::pair<std::uint16_t, std::uint16_t>, NvlinkLinkCounter> link_counters_;
    std::uint64_t samples_ = 0, first_ns_ = 0, last_ns_ = 0;
};

// Whether a field of a link counts errors or recoveries; those that FEC corrects are not.
[[nodiscard]] bool is_nvlink_error(std::uint16_t field);
[[nodiscard]] bool is_nvlink_recovery(std::uint16_t field);

// The growths in `n` equal parts of a time.
[[nodiscard]] std::vector<std::uint64_t> nvlink_trend(std::span<const NvlinkGrowth> growths,
                                                      std::uint64_t begin_ns, std::uint64_t end_ns,
                                                      std::size_t n);
// More than half of all, and 3 or more, in the last third of the parts, and more than in each third
// before.
[[nodiscard]] bool is_rising(std::span<const std::uint64_t> parts);

} // namespace collwire::gpu
