// SPDX-License-Identifier: Apache-2.0
#include "correlate/gpu/nvlink_history.h"

#include <algorithm>
#include <numeric>

namespace collwire::gpu {
namespace {

// Numbers of nvml.h.
constexpr std::uint16_t DATA_TX = 138, DATA_RX = 139, RAW_TX = 140, RAW_RX = 141;
constexpr std::uint16_t GET_SPEED = 164, GET_VERSION = 166;
constexpr std::uint16_t XMIT_BYTES = 202, RCV_BYTES = 204;
constexpr std::uint16_t DL_REPLAY = 161, DL_RECOVERY = 162, DL_CRC = 163;
constexpr std::uint16_t FIRST_ERROR_5 = 206, LAST_ERROR_5 = 212, FIRST_RECOVERY_5 = 213,
                        LAST_RECOVERY_5 = 215, EFFECTIVE_ERRORS = 219;
constexpr std::uint16_t TYPE_UNSIGNED_INT = 1, TYPE_UNSIGNED_LONG = 2, TYPE_UNSIGNED_LONG_LONG = 3;
constexpr std::uint64_t KIB = 1024;

constexpr std::uint64_t RANGE_32 = 1ULL << 32U;
constexpr std::uint64_t FIRST_QUARTER = RANGE_32 / 4, LAST_QUARTER = RANGE_32 / 4 * 3;

// Payload first: it is what operations are made of.
constexpr std::array<NvlinkByteSource, 5> SOURCES{{
    {DATA_TX, DATA_RX, false, KIB, NvlinkExtent::Payload},
    {DATA_TX, DATA_RX, true, KIB, NvlinkExtent::Payload},
    {XMIT_BYTES, RCV_BYTES, true, 1, NvlinkExtent::Undocumented},
    {RAW_TX, RAW_RX, false, KIB, NvlinkExtent::WithOverhead},
    {RAW_TX, RAW_RX, true, KIB, NvlinkExtent::WithOverhead},
}};

// Counters are unsigned in every version of NVML; another type is no counter.
bool is_measured(const NvlinkAnswer &answer) {
    return answer.result == 0 &&
           (answer.type == TYPE_UNSIGNED_INT || answer.type == TYPE_UNSIGNED_LONG ||
            answer.type == TYPE_UNSIGNED_LONG_LONG);
}

bool is_used(std::uint16_t field) {
    return (field >= DATA_TX && field <= RAW_RX) || field == XMIT_BYTES || field == RCV_BYTES ||
           (field >= GET_SPEED && field <= GET_VERSION) || is_nvlink_error(field) ||
           is_nvlink_recovery(field);
}

std::uint64_t times(std::uint64_t value, std::uint64_t unit) {
    return value > UINT64_MAX / unit ? UINT64_MAX : value * unit;
}

std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

} // namespace

bool is_nvlink_error(std::uint16_t field) {
    return field == DL_REPLAY || field == DL_CRC || field == EFFECTIVE_ERRORS ||
           (field >= FIRST_ERROR_5 && field <= LAST_ERROR_5);
}

bool is_nvlink_recovery(std::uint16_t field) {
    return field == DL_RECOVERY || (field >= FIRST_RECOVERY_5 && field <= LAST_RECOVERY_5);
}

NvlinkCounter::Step NvlinkCounter::add(std::uint64_t value, bool is_32_bit, std::uint32_t epoch) {
    Step step;
    if (has_value_ && value >= last_) {
        step.delta = value - last_;
    } else if (has_value_) {
        const bool is_wrap = is_32_bit && epoch == epoch_ && last_ >= LAST_QUARTER &&
                             last_ < RANGE_32 && value < FIRST_QUARTER;
        step.delta = is_wrap ? value + (RANGE_32 - last_) : value;
        step.is_restart = !is_wrap;
        (is_wrap ? wraps_ : restarts_) += 1;
    }
    has_value_ = true;
    epoch_ = epoch;
    last_ = value;
    increase_ = plus(increase_, step.delta);
    return step;
}

void NvlinkHistory::add(const cw_nvlink_sample &head, std::span<const cw_nvlink_value> values) {
    if (samples_ != 0 && head.header.time_ns <= last_ns_)
        return;
    for (const cw_nvlink_value &value : values)
        if (is_used(value.field) && (value.link == CW_NVLINK_ALL_LINKS || value.link < MAX_LINKS))
            answers_[{value.field, value.link}] = {value.type, value.result, value.value};
    first_ns_ = samples_ == 0 ? head.header.time_ns : first_ns_;
    last_ns_ = head.header.time_ns;
    ++samples_;
    if (!source_)
        choose_source();
    if (source_)
        add_reading(head);
    count_errors(head);
}

void NvlinkHistory::choose_source() {
    const auto is_there = [this](std::uint16_t field, bool is_sum) {
        return std::ranges::any_of(answers_, [&](const auto &entry) {
            const auto [of_field, link] = entry.first;
            return of_field == field && (link == CW_NVLINK_ALL_LINKS) != is_sum &&
                   is_measured(entry.second);
        });
    };
    for (const NvlinkByteSource &source : SOURCES)
        if (is_there(source.tx_field, source.is_sum_of_links) &&
            is_there(source.rx_field, source.is_sum_of_links)) {
            source_ = source;
            return;
        }
}

std::optional<NvlinkCounter::Step> NvlinkHistory::step(std::uint16_t field, std::uint32_t epoch) {
    // All of them first: a link that is not measured this time makes the sum unknown.
    std::vector<std::pair<NvlinkCounter *, const NvlinkAnswer *>> counters;
    for (auto entry = answers_.lower_bound({field, 0});
         entry != answers_.end() && entry->first.first == field; ++entry) {
        const bool is_sum = entry->first.second == CW_NVLINK_ALL_LINKS;
        if (is_sum == source_->is_sum_of_links)
            continue;
        const auto known = bytes_.find(entry->first);
        if (!is_measured(entry->second)) {
            if (known != bytes_.end())
                return std::nullopt;
            continue;
        }
        counters.emplace_back(&bytes_[entry->first], &entry->second);
    }
    if (counters.empty())
        return std::nullopt;
    NvlinkCounter::Step sum;
    for (const auto &[counter, answer] : counters) {
        const NvlinkCounter::Step one =
            counter->add(answer->value, answer->type == TYPE_UNSIGNED_INT, epoch);
        sum.delta = plus(sum.delta, times(one.delta, source_->unit_bytes));
        sum.is_restart = sum.is_restart || one.is_restart;
    }
    return sum;
}

void NvlinkHistory::add_reading(const cw_nvlink_sample &head) {
    const auto tx = step(source_->tx_field, head.epoch);
    const auto rx = step(source_->rx_field, head.epoch);
    if (!tx && !rx)
        return;
    NvlinkReading reading;
    reading.begin_ns = std::min<std::uint64_t>(head.read_begin_ns, head.header.time_ns);
    reading.time_ns = head.header.time_ns;
    reading.tx_bytes = tx ? tx->delta : 0;
    reading.rx_bytes = rx ? rx->delta : 0;
    reading.is_lower_bound = !tx || !rx || tx->is_restart || rx->is_restart;
    readings_.push_back(reading);
}

void NvlinkHistory::count_errors(const cw_nvlink_sample &head) {
    for (const auto &[place, answer] : answers_) {
        const auto [field, link] = place;
        if (link == CW_NVLINK_ALL_LINKS || !is_measured(answer) ||
            !(is_nvlink_error(field) || is_nvlink_recovery(field)))
            continue;
        NvlinkLinkCounter &counter = link_counters_[{link, field}];
        const NvlinkCounter::Step step =
            counter.counter.add(answer.value, answer.type == TYPE_UNSIGNED_INT, head.epoch);
        if (step.delta == 0)
            continue;
        counter.growths.push_back({head.header.time_ns, step.delta});
        if (counter.growths.size() <= MAX_GROWTHS)
            continue;
        std::vector<NvlinkGrowth> fewer;
        for (std::size_t i = 0; i + 1 < counter.growths.size(); i += 2)
            fewer.push_back({counter.growths[i + 1].time_ns,
                             plus(counter.growths[i].delta, counter.growths[i + 1].delta)});
        if (counter.growths.size() % 2 != 0)
            fewer.push_back(counter.growths.back());
        counter.growths = std::move(fewer);
    }
}

const NvlinkAnswer *NvlinkHistory::answer(std::uint16_t field, std::uint16_t link) const {
    const auto found = answers_.find({field, link});
    return found == answers_.end() ? nullptr : &found->second;
}

std::optional<std::uint64_t> NvlinkHistory::value(std::uint16_t field, std::uint16_t link) const {
    const NvlinkAnswer *found = answer(field, link);
    return found == nullptr || found->result != 0 ? std::nullopt : std::optional(found->value);
}

std::vector<std::uint64_t> nvlink_trend(std::span<const NvlinkGrowth> growths,
                                        std::uint64_t begin_ns, std::uint64_t end_ns,
                                        std::size_t n) {
    std::vector<std::uint64_t> parts(n);
    if (n == 0)
        return parts;
    const std::uint64_t part_ns =
        std::max<std::uint64_t>(1, (end_ns - std::min(begin_ns, end_ns)) / n);
    for (const NvlinkGrowth &growth : growths) {
        const std::uint64_t since_ns = growth.time_ns - std::min(growth.time_ns, begin_ns);
        // A reading at the end of a part counts what happened in it.
        const std::uint64_t part = since_ns == 0 ? 0 : (since_ns - 1) / part_ns;
        std::uint64_t &sum = parts[std::min<std::uint64_t>(part, n - 1)];
        sum = plus(sum, growth.delta);
    }
    return parts;
}

bool is_rising(std::span<const std::uint64_t> parts) {
    if (parts.size() < 3)
        return false;
    const std::size_t third = parts.size() / 3;
    const auto sum = [&](std::size_t from, std::size_t to) {
        return std::accumulate(parts.begin() + static_cast<std::ptrdiff_t>(from),
                               parts.begin() + static_cast<std::ptrdiff_t>(to), std::uint64_t{0},
                               plus);
    };
    const std::uint64_t first = sum(0, third), last = sum(parts.size() - third, parts.size());
    const std::uint64_t middle = sum(third, parts.size() - third);
    return last >= 3 && last > first && last > middle && last > first + middle;
}

} // namespace collwire::gpu
