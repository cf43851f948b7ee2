// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/model.h"

#include <algorithm>
#include <cstring>

#include "collwire/loss_records.h"
#include "collwire/post_records.h"

namespace collwire::model {

namespace {
// enum ib_qp_type
constexpr std::uint8_t QPT_SMI = 0, QPT_GSI = 1, QPT_RC = 2, QPT_UC = 3, QPT_UD = 4,
                       QPT_XRC_INI = 9, QPT_XRC_TGT = 10;

// A counter that is not re-emitted was sampled and is unchanged.
bool records_every_change(const Session &session) {
    return session.sample_interval_ns != 0 &&
           std::none_of(session.loss.begin(), session.loss.end(), [](const auto &of) {
               return of.first.first == CW_LOSS_RECORD_WRITE && of.second != 0;
           });
}

// Any interval of this length without a gap contains a reading.
std::uint64_t most_between_readings_ns(const Session &session) {
    return add_saturating(session.sample_interval_ns, session.sample_interval_ns / 2);
}

} // namespace

void add_known(Known &sum, const Known &value) {
    if (value)
        sum = add_saturating(sum.value_or(0), *value);
}

std::uint64_t Host::realtime_ns(std::uint64_t monotonic_ns) const {
    if (anchors.empty())
        return 0;
    const auto after = std::upper_bound(anchors.begin(), anchors.end(), monotonic_ns,
                                        [](std::uint64_t time_ns, const ClockAnchor &anchor) {
                                            return time_ns < anchor.monotonic_ns;
                                        });
    const ClockAnchor &anchor = after == anchors.begin() ? *after : *(after - 1);
    return anchor.realtime_ns +
           (monotonic_ns - anchor.monotonic_ns); // modulo 2^64, so backwards, too
}

std::uint64_t Session::counted_until_ns(const std::string &source) const {
    const auto found = taken_off_ns.find(source);
    return found == taken_off_ns.end() ? UINT64_MAX : found->second;
}

bool Session::counted_posts(std::uint32_t tgid, std::uint64_t from_ns,
                            std::uint64_t until_ns) const {
    bool is_paused = false;
    for (const PostSlice &slice : post_slices) {
        if (slice.tgid != 0 && slice.tgid != tgid)
            continue;
        if (slice.time_ns >= until_ns)
            break;
        // It was paused until now.
        if (is_paused && slice.time_ns > from_ns)
            return false;
        is_paused = slice.counted == CW_POSTS_PAUSED;
    }
    return !is_paused;
}

bool Session::watched_queue_pairs() const {
    const auto is_on = [this](const char *name) {
        const auto found = sources.find({name, DEV_INDEX_NODE});
        return found != sources.end() && found->second.state == CW_SOURCE_ON;
    };
    return is_on("qp") || is_on("verbs");
}

std::uint64_t Session::unchanged_ns(std::uint64_t from_ns, std::uint64_t until_ns) const {
    if (!records_every_change(*this) || until_ns <= from_ns)
        return 0;
    std::uint64_t known_ns = until_ns - from_ns;
    auto gap = std::upper_bound(
        sample_gaps.begin(), sample_gaps.end(), from_ns,
        [](std::uint64_t time_ns, const auto &each) { return time_ns < each.second; });
    for (; gap != sample_gaps.end() && gap->first < until_ns; ++gap)
        known_ns -= std::min(gap->second, until_ns) - std::max(gap->first, from_ns);
    // It was read once more in the last of these intervals.
    return subtract_or_zero(known_ns, most_between_readings_ns(*this));
}

std::uint64_t Session::read_last_ns(std::uint64_t from_ns, std::uint64_t until_ns) const {
    if (!records_every_change(*this))
        return from_ns;
    std::uint64_t last_ns = subtract_or_zero(until_ns, most_between_readings_ns(*this));
    // A gap starts with a reading; after a gap between segments all counters are re-emitted.
    for (auto gap = sample_gaps.rbegin(); gap != sample_gaps.rend(); ++gap)
        if (gap->first < until_ns && gap->second > last_ns)
            last_ns = std::min(last_ns, gap->first);
    return std::max(from_ns, last_ns);
}

bool Model::watched_queue_pairs() const {
    const auto is_used = [](const Session &session) { return !session.excluded; };
    return std::any_of(sessions.begin(), sessions.end(), is_used) &&
           std::all_of(sessions.begin(), sessions.end(), [&](const Session &session) {
               return !is_used(session) || session.watched_queue_pairs();
           });
}

Gid Qp::sgid() const {
    Gid gid{};
    std::memcpy(gid.data(), address.sgid, gid.size());
    return gid;
}

Gid Qp::dgid() const {
    Gid gid{};
    std::memcpy(gid.data(), address.dgid, gid.size());
    return gid;
}

bool Qp::is_connected_type() const {
    return type == QPT_RC || type == QPT_UC || type == QPT_XRC_INI || type == QPT_XRC_TGT;
}

bool Qp::is_datagram() const {
    return type == QPT_UD || type == QPT_GSI || type == QPT_SMI;
}

std::uint32_t Qp::path_mtu_bytes() const {
    if (!has(CW_QP_PATH_MTU) || address.path_mtu < 1 || address.path_mtu > 5)
        return 0;
    return 128U << address.path_mtu;
}

} // namespace collwire::model
