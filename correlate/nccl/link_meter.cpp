// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/link_meter.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "collwire/qp_records.h"
#include "collwire/socket_records.h"

namespace collwire::nccl {

using model::add_saturating;
using model::BytesRung;
using model::Model;
using model::Qp;
using model::subtract_or_zero;

namespace {

constexpr std::uint64_t SIZE_HEADER_BYTES = 4;
// net_socket's greeting on a new socket, at most: a magic number, a type, an index.
constexpr std::uint64_t GREETING_BYTES = 64;
// Samples of a flow's queue pairs within this time count as one.
constexpr std::uint64_t TOGETHER_NS = 100'000'000;
// Of earlier recorders: a counter may be read this long after its time was taken.
constexpr std::uint64_t READ_LATE_NS = 2'000'000;
// No bytes for this long, by the time of the last frame or by unchanged samples.
constexpr std::uint64_t QUIET_NS = 200'000'000;

ByteSource source_of(const Model &model, const Link &link) {
    if (!link.sockets.empty())
        return ByteSource::Wire;
    const auto all_have = [&](auto has) {
        return !link.qps.empty() && std::all_of(link.qps.begin(), link.qps.end(),
                                                [&](Index qp) { return has(model.qps[qp]); });
    };
    if (all_have([](const Qp &qp) { return qp.bytes.rung == BytesRung::Wire; }))
        return ByteSource::Wire;
    if (all_have([](const Qp &qp) { return qp.posted_tx_payload_bytes.has_value(); }))
        return ByteSource::Posted;
    return ByteSource::None;
}

const ByteSeries *series_of(const Model &model, const Link &link, std::size_t i) {
    if (!link.sockets.empty())
        return &model.nccl.gathered.sockets[link.sockets[i]].acked;
    const Qp &qp = model.qps[link.qps[i]];
    return link.source == ByteSource::Wire ? qp.wire_series.get() : qp.post_series.get();
}

Known posted_wire_bytes(const Model &model, const Link &link) {
    Known sum;
    for (const Index index : link.qps) {
        const model::QpBytes &bytes = model.qps[index].bytes;
        if (!bytes.tx_wire_bytes)
            return std::nullopt;
        model::add_known(
            sum, subtract_or_zero(*bytes.tx_wire_bytes, bytes.tx_response_wire_bytes.value_or(0)));
    }
    return sum;
}

bool is_quiet(const model::Session &session, std::uint64_t counted_until_ns,
              const ByteSample &sample) {
    // Some of its queue pairs progressed, and those samples were thinned out.
    if (sample.changed_ns != 0 && sample.changed_ns <= sample.time_ns)
        return false;
    if (sample.last_ns != 0 && sample.time_ns >= add_saturating(sample.last_ns, QUIET_NS))
        return true;
    const std::uint64_t until_ns =
        sample.changed_ns != 0 ? sample.changed_ns : std::min(session.end_ns, counted_until_ns);
    return session.unchanged_ns(sample.time_ns, until_ns) >= QUIET_NS;
}

// The first change of any part.
std::uint64_t changed_ns(const std::vector<ByteSample> &parts) {
    std::uint64_t first_ns = 0;
    for (const ByteSample &part : parts)
        if (part.changed_ns != 0 && (first_ns == 0 || part.changed_ns < first_ns))
            first_ns = part.changed_ns;
    return first_ns;
}

} // namespace

std::uint64_t part_of(std::uint64_t value, std::uint64_t part, std::uint64_t whole,
                      bool to_nearest) {
    __extension__ using Wide = unsigned __int128;
    if (whole == 0)
        return 0;
    const Wide product = static_cast<Wide>(value) * part + (to_nearest ? whole / 2 : 0);
    return static_cast<std::uint64_t>(std::min<Wide>(product / whole, UINT64_MAX));
}

std::uint64_t bytes_on(const Link &link, const ShapeOp &op) {
    return link.has_size_headers
               ? add_saturating(op.payload_bytes,
                                model::multiply_saturating(op.messages, SIZE_HEADER_BYTES))
               : op.payload_bytes;
}

bool is_late(const model::Model &model, const Link &link) {
    if (link.is_assumed)
        return std::ranges::any_of(link.qps,
                                   [&](Index qp) { return model.qps[qp].has(CW_QP_PREEXISTING); });
    const NcclFacts &nccl = model.nccl;
    return link.instances.empty() ||
           std::any_of(link.instances.begin(), link.instances.end(),
                       [&](Index index) { return !nccl.instances[index].from_start; });
}

std::vector<LinkSample> read_samples(const Model &model, Link &link, bool is_late) {
    link.source = source_of(model, link);
    if (link.source == ByteSource::None) {
        // All of its bytes have its one tier; the share of each queue pair is not known.
        const auto same_tier = [&](Index qp) {
            return model.qps[qp].tier == model.qps[link.qps.front()].tier;
        };
        if (!link.qps.empty() && std::all_of(link.qps.begin(), link.qps.end(), same_tier))
            link.tiers = {{model.qps[link.qps.front()].tier, 0}};
        return {};
    }
    struct Step {
        std::uint64_t time_ns;
        std::uint32_t part;
        std::uint32_t sample;
    };
    const std::size_t n = link.sockets.empty() ? link.qps.size() : link.sockets.size();
    std::vector<Step> steps;
    for (std::uint32_t part = 0; part < n; ++part)
        if (const ByteSeries *series = series_of(model, link, part); series != nullptr)
            for (std::uint32_t i = 0; i < series->size(); ++i)
                steps.push_back({series->at(i).time_ns, part, i});
    std::sort(steps.begin(), steps.end(), [](const Step &a, const Step &b) {
        return std::tie(a.time_ns, a.part) < std::tie(b.time_ns, b.part);
    });
    for (const Index socket : link.sockets) {
        const std::uint32_t flags = model.nccl.gathered.sockets[socket].last.flags;
        if ((flags & (CW_TCP_SOCKET_GONE | CW_TCP_SOCKET_FINAL)) == CW_TCP_SOCKET_GONE)
            link.is_cut_short = true;
    }
    std::vector<ByteSample> parts(n);
    for (std::uint32_t part = 0; part < n; ++part)
        if (const ByteSeries *series = series_of(model, link, part);
            series != nullptr && series->size() != 0)
            parts[part].changed_ns = series->at(0).time_ns;
    const model::Session &session = model.sessions[link.session];
    const std::uint64_t counted_until_ns =
        !link.sockets.empty()
            ? UINT64_MAX
            : session.counted_until_ns(link.source == ByteSource::Wire ? "rxe_wire" : "posts");
    link.measured_until_ns = std::min(counted_until_ns, session.counted_until_ns("nccl"));
    std::vector<LinkSample> samples;
    ByteSample sum;
    for (const Step &step : steps) {
        const ByteSample now = series_of(model, link, step.part)->at(step.sample);
        sum.payload_bytes += now.payload_bytes - parts[step.part].payload_bytes;
        sum.wire_bytes += now.wire_bytes - parts[step.part].wire_bytes;
        sum.last_ns = std::max(sum.last_ns, now.last_ns);
        sum.time_ns = now.time_ns;
        parts[step.part] = now;
        sum.changed_ns = changed_ns(parts);
        if (sum.time_ns > link.measured_until_ns)
            continue;
        if (samples.empty() || samples.back().time_ns + TOGETHER_NS <= now.time_ns)
            samples.emplace_back();
        samples.back() = {sum.time_ns, sum.payload_bytes, sum.wire_bytes,
                          is_quiet(session, counted_until_ns, sum)};
    }
    // A socket is counted from its opening: bytes before its first sample are not of this
    // recording.
    if (is_late && !link.sockets.empty() && !samples.empty()) {
        link.measured_from_ns = samples.front().time_ns;
        const std::uint64_t before = samples.front().payload_bytes;
        for (LinkSample &sample : samples)
            sample.payload_bytes -= before;
        sum.payload_bytes -= before;
    }
    link.measured_bytes = sum.payload_bytes;
    if (link.source == ByteSource::Posted)
        link.wire_bytes = posted_wire_bytes(model, link);
    else if (link.sockets.empty())
        link.wire_bytes = sum.wire_bytes;
    for (std::size_t part = 0; part < link.qps.size(); ++part) {
        const topology::Tier tier = model.qps[link.qps[part]].tier;
        const auto known = std::find_if(link.tiers.begin(), link.tiers.end(),
                                        [&](const auto &of) { return of.first == tier; });
        if (known == link.tiers.end())
            link.tiers.emplace_back(tier, parts[part].payload_bytes);
        else
            known->second = add_saturating(known->second, parts[part].payload_bytes);
    }
    return samples;
}

namespace {

const Interval *interval_of(const Link &link, std::uint32_t order) {
    const auto after = std::upper_bound(
        link.intervals.begin(), link.intervals.end(), order,
        [](std::uint32_t wanted, const Interval &interval) { return wanted < interval.begin; });
    if (after == link.intervals.begin() || order >= (after - 1)->end)
        return nullptr;
    return &*(after - 1);
}

// Subtracts net_socket's headers from an operation's bytes.
void split(OpShare &share, const Link &link, const ShapeOp &op, std::uint64_t bytes) {
    share.header_bytes = std::min(bytes, bytes_on(link, op) - op.payload_bytes);
    share.payload_bytes = bytes - share.header_bytes;
}

// Each started message has a size header before it.
void split_first(OpShare &share, const Link &link, const ShapeOp &op, std::uint64_t bytes) {
    const std::uint64_t begun = bytes == 0 || !link.has_size_headers
                                    ? 0
                                    : part_of(op.messages, bytes - 1, bytes_on(link, op)) + 1;
    share.header_bytes = std::min(bytes, model::multiply_saturating(begun, SIZE_HEADER_BYTES));
    share.payload_bytes = bytes - share.header_bytes;
}

} // namespace

namespace {

OpShare assumed_share(const Link &link, const Interval *interval, const ShapeOp &op) {
    if (interval == nullptr || !interval->is_solved)
        return {};
    return {link.bytes_of_kind.at(op.kind), 0, {}, true, true, true, link.source, Rung::Exact};
}

// Without the wire bytes.
OpShare payload_share(const Link &link, const Interval *interval, const ShapeOp &op,
                      std::uint32_t order, std::uint32_t op_index) {
    if (link.is_assumed)
        return assumed_share(link, interval, op);
    OpShare derived;
    if (is_certain(op))
        derived = {op.payload_bytes, 0, {}, true, true, false, ByteSource::Derived, Rung::Exact};
    if (interval == nullptr)
        return derived;
    const std::uint64_t headers = bytes_on(link, op) - op.payload_bytes;
    if (derived.is_known)
        derived.header_bytes =
            part_of(headers, std::min(interval->measured_bytes, interval->derived_bytes),
                    interval->derived_bytes);
    OpShare share{op.payload_bytes, headers, {}, true, true, false, link.source, Rung::Exact};
    switch (interval->kind) {
    case IntervalKind::Checked:
        share.is_agreed = true;
        return share;
    case IntervalKind::Single:
        split(share, link, op, interval->measured_bytes);
        // A bound cannot be checked further; a certain operation would have been checked.
        share.is_agreed = !is_certain(op) && interval->measured_bytes <= bytes_on(link, op);
        if (interval->is_disturbed || (link.has_size_headers && op.has_unknown_messages))
            share.rung = Rung::Inferred;
        return share;
    case IntervalKind::Shortage:
        share.payload_bytes =
            part_of(op.payload_bytes, interval->measured_bytes, interval->derived_bytes);
        share.header_bytes =
            part_of(bytes_on(link, op), interval->measured_bytes, interval->derived_bytes) -
            share.payload_bytes;
        share.rung = Rung::Inferred;
        return share;
    case IntervalKind::Unknown: {
        if (derived.is_known)
            return derived;
        // The remainder, limited by each operation's maximum.
        const std::uint64_t rest =
            subtract_or_zero(interval->measured_bytes, interval->derived_bytes);
        split(share, link, op,
              interval->bound_bytes == 0
                  ? rest / interval->n_unknown
                  : part_of(bytes_on(link, op), rest, interval->bound_bytes));
        share.rung = Rung::Inferred;
        return share;
    }
    case IntervalKind::InFlight: {
        if (interval->is_disturbed)
            share.rung = Rung::Inferred;
        const std::pair here(order, op_index);
        const std::pair last(interval->last_order, interval->last_op);
        if (here < last)
            return share;
        share.is_whole = false;
        split_first(share, link, op, here == last ? interval->last_bytes : 0);
        return share;
    }
    case IntervalKind::Excess:
    case IntervalKind::Derived:
        return derived;
    }
    return derived;
}

} // namespace

OpShare share_of(const Link &link, const ShapeOp &op, std::uint32_t order, std::uint32_t op_index) {
    const Interval *interval = interval_of(link, order);
    OpShare share = payload_share(link, interval, op, order, op_index);
    if (!share.is_known || !link.wire_bytes)
        return share;
    if (share.payload_bytes == 0)
        share.wire_bytes = 0;
    else if (interval != nullptr && interval->wire_bytes != 0)
        share.wire_bytes =
            part_of(share.payload_bytes, interval->wire_bytes, interval->measured_bytes, true);
    else
        share.wire_bytes =
            part_of(share.payload_bytes, *link.wire_bytes, link.measured_bytes, true);
    return share;
}

LinkMeter::LinkMeter(Link &link, const std::vector<LinkSample> &samples, bool is_late,
                     std::uint32_t eager_until)
    : link_(link), samples_(samples), is_late_(is_late), eager_until_(eager_until),
      is_settled_(!is_late) {
    link_.intervals.clear();
}

void LinkMeter::launch(const ShapeOp &op, std::uint64_t time_ns, std::uint32_t order) {
    if (time_ns < link_.measured_from_ns || time_ns >= link_.measured_until_ns)
        return;
    take_samples(subtract_or_zero(time_ns, READ_LATE_NS));
    if (open_.n_ops == 0) {
        // Bytes of no launched operation.
        if (measured_ != closed_)
            close(IntervalKind::Excess, order);
        is_settled_ = is_settled_ || (next_ != 0 && samples_[next_ - 1].is_quiet);
        open_.begin = order;
    } else if (can_close_) {
        // Bytes of known operations may still come.
        close(open_.n_unknown != 0 ? single_or(IntervalKind::Unknown) : IntervalKind::Shortage,
              order);
        is_settled_ = true;
        open_.begin = order;
    }
    can_close_ = false;
    order_ = order;
    ++open_.n_ops;
    open_.most_bytes = std::max(open_.most_bytes, bytes_on(link_, op));
    if (is_certain(op)) {
        open_.derived_bytes = add_saturating(open_.derived_bytes, bytes_on(link_, op));
    } else {
        open_.bound_bytes = add_saturating(open_.bound_bytes, bytes_on(link_, op));
        ++open_.n_unknown;
    }
}

void LinkMeter::take_samples(std::uint64_t until_ns) {
    for (; next_ < samples_.size() && samples_[next_].time_ns <= until_ns; ++next_)
        take_sample(next_);
}

void LinkMeter::take_sample(std::size_t i) {
    measured_ = samples_[i].payload_bytes;
    wire_ = samples_[i].wire_bytes;
    can_close_ = false;
    if (open_.n_ops == 0) {
        if (measured_ == closed_)
            add_empty_frames();
        return;
    }
    const std::uint64_t here = subtract_or_zero(measured_, closed_);
    const bool is_quiet_here = samples_[i].is_quiet;
    if (open_.n_unknown != 0) {
        can_close_ = is_quiet_here && here != 0;
        // Bytes that come then belong to no call.
        if (can_close_ && link_.is_assumed)
            close(IntervalKind::Unknown, order_ + 1);
        return;
    }
    if (here == open_.derived_bytes) {
        close(IntervalKind::Checked, order_ + 1);
    } else if (here > open_.derived_bytes && is_quiet_here) {
        if (leave_out_greeting())
            return close(IntervalKind::Checked, order_ + 1);
        close(IntervalKind::Excess, order_ + 1);
    } else {
        can_close_ = order_ < eager_until_ && is_quiet_here;
    }
}

// A sample may come between an operation's last byte and its last frame, which is empty (NCCL's
// write with the size as immediate data), or before a retransmission.
void LinkMeter::add_empty_frames() {
    if (link_.intervals.empty()) {
        // Of an operation from before the recording.
        if (is_late_)
            wire_closed_ = wire_;
        return;
    }
    Interval &last = link_.intervals.back();
    last.wire_bytes = add_saturating(last.wire_bytes, subtract_or_zero(wire_, wire_closed_));
    wire_closed_ = wire_;
}

// The first bytes of a new socket belong to no operation.
bool LinkMeter::leave_out_greeting() {
    const std::uint64_t excess =
        subtract_or_zero(subtract_or_zero(measured_, closed_), open_.derived_bytes);
    if (is_late_ || !link_.intervals.empty() || excess > GREETING_BYTES * link_.sockets.size())
        return false;
    link_.greeting_bytes = excess;
    closed_ += excess;
    return true;
}

// Bytes of a pre-existing flow may belong to earlier launches, until it was once quiet or carried
// the expected bytes.
IntervalKind LinkMeter::single_or(IntervalKind other) const {
    return open_.n_ops == 1 && is_settled_ ? IntervalKind::Single : other;
}

void LinkMeter::close(IntervalKind kind, std::uint32_t end) {
    is_settled_ = is_settled_ || kind == IntervalKind::Checked;
    open_.kind = kind;
    open_.end = end;
    open_.measured_bytes = subtract_or_zero(measured_, closed_);
    open_.is_first = is_late_ && link_.intervals.empty();
    open_.wire_bytes = subtract_or_zero(wire_, wire_closed_);
    closed_ = measured_;
    wire_closed_ = wire_;
    link_.intervals.push_back(open_);
    open_ = {};
    open_.begin = end;
}

void LinkMeter::finish(std::uint32_t order, bool is_open) {
    take_samples(UINT64_MAX);
    open_.is_under_way = is_open;
    const bool is_cut_short = link_.is_cut_short || link_.measured_until_ns != UINT64_MAX;
    const std::uint64_t here = subtract_or_zero(measured_, closed_);
    // The first that holds. NOLINTNEXTLINE(bugprone-branch-clone)
    if (link_.source == ByteSource::None) {
        close(IntervalKind::Derived, order);
    } else if (open_.n_ops == 0) {
        if (here != 0)
            close(IntervalKind::Excess, order);
    } else if (open_.n_unknown != 0) {
        close(is_open || is_cut_short ? IntervalKind::Unknown : single_or(IntervalKind::Unknown),
              order);
    } else if (here == open_.derived_bytes) {
        close(IntervalKind::Checked, order);
    } else if (here > open_.derived_bytes) {
        close(leave_out_greeting() ? IntervalKind::Checked : IntervalKind::Excess, order);
    } else if (is_cut_short) {
        close(IntervalKind::Derived, order);
    } else if (is_open) {
        close(IntervalKind::InFlight, order);
    } else {
        close(single_or(IntervalKind::Shortage), order);
    }
}

void note_cut_launches(Link &link, const std::vector<std::uint32_t> &orders) {
    std::uint32_t from = 0;
    for (Interval &interval : link.intervals) {
        const auto first = std::lower_bound(orders.begin(), orders.end(), from);
        if (first != orders.end() && *first < interval.end)
            interval.is_disturbed = true;
        // Equal byte counts may be a coincidence, and bytes of no operation may be the first of
        // more.
        if (!interval.is_disturbed ||
            (interval.kind != IntervalKind::Checked && interval.n_ops != 0))
            from = interval.end;
    }
}

} // namespace collwire::nccl
