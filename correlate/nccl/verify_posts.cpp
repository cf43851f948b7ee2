// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/verify_posts.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "collwire/nccl_connection_records.h"
#include "collwire/post_records.h"
#include "correlate/model/counters.h"
#include "correlate/nccl/link_meter.h"

namespace collwire::nccl {

using model::add_saturating;
using model::Model;

namespace {

// Enough to read.
constexpr std::size_t MAX_DIFFERENCES = 1000;

} // namespace

PostVerifier::PostVerifier(Model &model) : model_(model), nccl_(model.nccl) {
    for (const auto &[key, posted] : nccl_.gathered.post_operations) {
        if (model_.sessions[key.session].excluded)
            continue;
        std::vector<PostOperations> in_order = posted;
        std::sort(in_order.begin(), in_order.end());
        in_order.erase(std::unique(in_order.begin(), in_order.end()), in_order.end());
        Connection &connection = connections_[key];
        for (const PostOperations &of_slice : in_order)
            connection.ranges.push_back({.posted = of_slice});
    }
}

// Its bytes are computed, because its posts were not counted all the time.
bool PostVerifier::is_sliced(const Link &link) const {
    return link.transport == CW_NCCL_TRANSPORT_IB && link.is_send() &&
           link.source == ByteSource::None && !model_.sessions[link.session].post_slices.empty();
}

void PostVerifier::add(const OpVisit &of_op, const OpTime &time) {
    if (connections_.empty())
        return;
    const ShapeOp &op = of_op.op;
    if (op.link == NONE || op.connection == NONE || !is_sliced(nccl_.links[op.link]))
        return;
    if (is_certain(op))
        nccl_.verified.derived_bytes =
            add_saturating(nccl_.verified.derived_bytes, op.payload_bytes);
    const GatheredConnection &of = nccl_.gathered.connections[op.connection];
    const auto found = connections_.find({of.head.connection, of.session, of.head.tgid});
    if (found == connections_.end())
        return;
    Connection &connection = found->second;
    connection.link = op.link;
    // Slices that were over when it was launched have no byte of it. A step count starts again with
    // another connection at the same address, so the first slice that can have it is the one.
    const auto after =
        std::ranges::lower_bound(connection.ranges, of_op.launch.time_ns, {},
                                 [](const Range &range) { return range.posted.end_ns; });
    for (auto range = after; range != connection.ranges.end(); ++range) {
        if (time.end_steps < range->posted.from_steps)
            break;
        if (time.end_steps <= range->posted.to_steps)
            add(*range, op, time);
    }
}

void PostVerifier::add(Range &range, const ShapeOp &op, const OpTime &time) const {
    if (time.end_steps == 0)
        return; // its place is not certain: a gap
    if (time.end_steps == range.posted.from_steps) {
        const PostOperations posted = range.posted;
        range = {.posted = posted, .reached = posted.from_steps, .has_begun = true};
        return;
    }
    if (!range.has_begun)
        return;
    if (!op.is_continued) {
        const std::uint64_t chunk = std::max<std::uint32_t>(op.chunk_steps, 1);
        range.has_gap = range.has_gap || time.base_steps < range.reached ||
                        time.base_steps - range.reached >= chunk;
        range.reached = time.end_steps;
        ++range.operations;
    }
    range.derived_bytes = add_saturating(range.derived_bytes, op.payload_bytes);
    range.has_unknown = range.has_unknown || !is_certain(op);
    range.ended_before =
        range.ended_before || (time.before_ns != 0 && time.before_ns < range.posted.begin_ns);
    range.is_whole = time.end_steps == range.posted.to_steps;
}

std::string_view PostVerifier::obstacle(const Connection &connection, const Range &range) const {
    if (range.posted.is_fault)
        return "unreadable";
    if (range.posted.from_steps == range.posted.to_steps)
        return "no_whole_operation";
    if (connection.link == NONE || !range.has_begun || !range.is_whole || range.has_gap ||
        range.ended_before)
        return "position_unknown";
    if (range.has_unknown)
        return "bytes_unknown";
    std::set<std::uint64_t> addresses;
    for (const Index index : nccl_.links[connection.link].connections)
        addresses.insert(nccl_.gathered.connections[index].head.connection);
    // The posts of the others are in the same queue pairs, at other counts of steps.
    return addresses.size() == 1 ? "" : "shared_queue_pairs";
}

void PostVerifier::finish() {
    PostVerification &verified = nccl_.verified;
    count_slices();
    for (auto &[key, connection] : connections_)
        for (const Range &range : connection.ranges) {
            if (const std::string_view why = obstacle(connection, range); !why.empty()) {
                ++verified.not_compared[std::string(why)];
            } else if (range.derived_bytes == range.posted.bytes) {
                ++verified.connections_equal;
                verified.operations += range.operations;
                verified.verified_bytes =
                    add_saturating(verified.verified_bytes, range.derived_bytes);
            } else if (verified.differences.size() < MAX_DIFFERENCES) {
                verified.differences.push_back({connection.link, range.posted.begin_ns,
                                                range.posted.end_ns, range.operations,
                                                range.posted.bytes, range.derived_bytes});
            }
        }
    std::ranges::sort(verified.differences, {},
                      [](const PostDifference &of) { return std::pair(of.end_ns, of.link); });
    count_other_queue_pairs();
}

void PostVerifier::count_slices() {
    PostVerification &verified = nccl_.verified;
    for (const model::Session &session : model_.sessions) {
        if (session.excluded)
            continue;
        for (std::size_t i = 0; i < session.post_slices.size(); ++i) {
            const model::PostSlice &slice = session.post_slices[i];
            verified.on_ns = slice.on_ns;
            verified.period_ns = slice.period_ns;
            if (slice.counted != CW_POSTS_SLICE)
                continue;
            const std::uint64_t end_ns = i + 1 < session.post_slices.size()
                                             ? session.post_slices[i + 1].time_ns
                                             : session.end_ns;
            ++verified.slices;
            verified.slices_ns += model::subtract_or_zero(end_ns, slice.time_ns);
        }
    }
}

// A connection without any operation is in no record. Its queue pairs were made by a thread that
// made NCCL's others.
void PostVerifier::count_other_queue_pairs() {
    std::set<std::tuple<Index, std::uint32_t, std::uint32_t>> makers;
    for (Index index = 0; index < model_.qps.size(); ++index)
        if (const model::Qp &qp = model_.qps[index];
            nccl_.qps[index].link != NONE && qp.maker_tid != 0)
            makers.insert({qp.session, qp.tgid, qp.maker_tid});
    for (Index index = 0; index < model_.qps.size(); ++index) {
        const model::Qp &qp = model_.qps[index];
        const model::Session &session = model_.sessions[qp.session];
        const bool is_counted = session.counted_posts(
            qp.tgid, std::max<std::uint64_t>(qp.key.generation_ns, qp.connected_ns),
            qp.destroyed_ns != 0 ? qp.destroyed_ns : session.end_ns);
        if (!session.excluded && !is_counted && qp.tgid != 0 &&
            !makers.contains({qp.session, qp.tgid, qp.maker_tid}) &&
            qp.bytes.rung == model::BytesRung::None &&
            (nccl_.qps[index].role == Role::Other || nccl_.qps[index].role == Role::None))
            ++nccl_.verified.queue_pairs_not_counted;
    }
}

} // namespace collwire::nccl
