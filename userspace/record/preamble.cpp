// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/preamble.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/set_text.h"
#include "collwire/loss_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/inventory/node.h"
#include "userspace/source/probe_record.h"

namespace collwire::record {
namespace {

template <typename Record> Record made_now(cw_kind kind) {
    Record record{};
    record.header.length_bytes = sizeof(Record);
    record.header.kind = static_cast<__u16>(kind);
    record.header.cpu = CW_CPU_USERSPACE;
    record.header.time_ns = monotonic_ns();
    return record;
}

constexpr auto LOSS_NAMES = std::to_array<std::string_view>({
    "queue pair events (ring buffer full)",
    "port events (ring buffer full)",
    "posts that cannot be matched to a queue pair (ring buffer full)",
    "queue pairs (table full)",
    "packets (counter table full)",
    "packets that could not be read",
    "posts (counter table full)",
    "posts with too many work requests in one chain",
    "posts whose work requests could not be read",
    "calls in flight (table full)",
    "calls missed by a probe",
    "records that could not be written",
    "packets without their destination (UD peer table full)",
    "NCCL communicators",
    "NCCL calls (ring buffer full)",
    "NCCL launches (ring buffer full)",
    "NCCL launch descriptors",
    "NCCL connections",
    "NCCL launches with too many operations",
    "failed reads of NCCL memory",
    "start and completion times of NCCL operations",
    "sockets closed by NCCL",
    "records stuck in a ring buffer",
    "NCCL warnings",
    "GPU records (ring buffer full, or not readable)",
    "hand-overs of GPU records (unknown form)",
    "standstills of the recorder (ring buffers not read for more than 3 s)",
});
static_assert(LOSS_NAMES.size() == CW_LOSS_CLASSES);

// One state for each device: the worst, with the reasons of all.
std::map<std::uint32_t, source::SourceState>
by_device(const std::vector<source::SourceState> &states) {
    std::map<std::uint32_t, source::SourceState> all;
    for (const source::SourceState &state : states) {
        const auto [entry, is_new] = all.try_emplace(state.dev_index, state);
        if (is_new)
            continue;
        source::SourceState &joined = entry->second;
        joined.state = std::max(joined.state, state.state);
        if (!joined.reason.empty() && !state.reason.empty())
            joined.reason += "; ";
        joined.reason += state.reason;
    }
    return all;
}

std::string without_digits(std::string_view text) {
    std::string rest;
    std::copy_if(text.begin(), text.end(), std::back_inserter(rest),
                 [](char c) { return c < '0' || c > '9'; });
    return rest;
}

} // namespace

NodeIdentity::NodeIdentity(std::uint64_t sample_interval_ns) : node_(inventory::read_node("")) {
    node_.sample_interval_ns = sample_interval_ns;
    set_text(node_.tool_version, COLLWIRE_VERSION);
    if (getrandom(&node_.session_id, sizeof node_.session_id, 0) !=
        static_cast<ssize_t>(sizeof node_.session_id))
        node_.session_id = monotonic_ns();
}

std::string NodeIdentity::hostname() const {
    return node_.hostname;
}

void NodeIdentity::append(source::RecordSink &sink, std::uint32_t segment,
                          std::uint32_t flags) const {
    cw_node node = node_;
    node.segment = segment;
    node.flags = flags | (segment == 0 ? static_cast<std::uint32_t>(CW_NODE_FIRST_SEGMENT) : 0U);
    const cw_clock clock = inventory::read_clock();
    node.header.time_ns = clock.header.time_ns;
    node.realtime_ns = clock.realtime_ns;
    node.boottime_ns = clock.boottime_ns;
    sink.append(node.header);
}

void append_clock(source::RecordSink &sink) {
    const cw_clock clock = inventory::read_clock();
    sink.append(clock.header);
}

void SampleGaps::append(source::RecordSink &sink, const Sources &sources, std::uint64_t begin_ns,
                        std::uint64_t end_ns) {
    if (!std::ranges::all_of(sources, [](const auto &source) { return source->has_read_all(); }))
        return;
    if (end_ns - last_begin_ns_ > interval_ns_ + interval_ns_ / 2) {
        auto gap = made_now<cw_sample_gap>(CW_KIND_SAMPLE_GAP);
        gap.header.time_ns = end_ns;
        gap.begin_ns = last_begin_ns_;
        sink.append(gap.header);
    }
    last_begin_ns_ = begin_ns;
}

void append_probes(source::RecordSink &sink, const Sources &sources) {
    for (const auto &source : sources) {
        for (const source::PlannedProbe &planned : source->probe_list()) {
            const cw_probe probe = probe_record(planned, monotonic_ns());
            sink.append(probe.header);
        }
    }
}

void StateTable::append(source::RecordSink &sink, const Sources &sources, bool everything) {
    for (const auto &source : sources) {
        const std::string name(source->name());
        auto now = by_device(source->states());
        // A state that is no longer reported for a device has ended.
        for (const auto &[key, before] : appended_)
            if (key.first == name && !now.contains(key.second) && before.state != CW_SOURCE_ON)
                now[key.second] = {CW_SOURCE_ON, {}, key.second};
        for (const auto &[dev_index, state] : now) {
            const auto [known, is_new] = appended_.try_emplace({name, dev_index});
            source::SourceState &before = known->second;
            const bool same =
                !is_new && before.state == state.state && before.reason == state.reason;
            if (same && !everything)
                continue;
            if (!same)
                note(name, is_new ? source::SourceState{CW_SOURCE_ON, {}, dev_index} : before,
                     state);
            before = state;
            auto record = made_now<cw_source>(CW_KIND_SOURCE);
            record.state = state.state;
            record.dev_index = dev_index;
            set_text(record.name, name);
            set_text(record.reason, state.reason);
            sink.append(record.header);
        }
    }
}

void StateTable::note(const std::string &name, const source::SourceState &before,
                      const source::SourceState &now) {
    if (before.state == now.state && without_digits(before.reason) == without_digits(now.reason))
        return;
    if (now.state > CW_SOURCE_ON)
        news_.push_back(fmt::format("{}: {}", name, now.reason));
    else if (before.state > CW_SOURCE_ON)
        news_.push_back(fmt::format("{}: resolved: {}", name, before.reason));
}

std::vector<std::string> StateTable::take_news() {
    return std::exchange(news_, {});
}

void LossTable::append(source::RecordSink &sink, const std::vector<source::LossCount> &now,
                       bool everything) {
    std::map<Key, std::uint64_t> sums;
    for (const source::LossCount &count : now)
        sums[{count.loss_class, count.cpu}] += count.records;
    for (const auto &[key, records] : sums) {
        std::uint64_t &known = counts_[key];
        if (records == 0 || (records == known && !everything))
            continue;
        known = records;
        auto record = made_now<cw_loss>(CW_KIND_LOSS);
        record.header.cpu = key.second;
        record.loss_class = key.first;
        record.records = records;
        sink.append(record.header);
    }
}

std::uint64_t LossTable::total() const {
    std::uint64_t sum = 0;
    for (const auto &[key, records] : counts_)
        sum += records;
    return sum;
}

std::string LossTable::describe() const {
    std::map<std::uint32_t, std::uint64_t> by_class;
    for (const auto &[key, records] : counts_)
        by_class[key.first] += records;
    std::string text;
    for (const auto &[loss_class, records] : by_class) {
        if (records == 0)
            continue;
        if (!text.empty())
            text += ", ";
        text += fmt::format("{} {}", records,
                            loss_class < LOSS_NAMES.size() ? LOSS_NAMES[loss_class] : "others");
    }
    return text;
}

} // namespace collwire::record
