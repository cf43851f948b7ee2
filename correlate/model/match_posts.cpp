// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "correlate/model/join.h"
#include "correlate/model/post_counters.h"

namespace collwire::model {

namespace {

void add(cw_post_counters &sum, const cw_post_counters &more) {
    sum.first_ns = sum.first_ns == 0 ? more.first_ns : std::min(sum.first_ns, more.first_ns);
    sum.last_ns = std::max(sum.last_ns, more.last_ns);
    combine(sum, more, add_saturating);
}

// More RDMA devices than any host has: hostile input must not make this quadratic.
constexpr std::size_t MAX_DEVICES = 64;

class QpsByNumber {
public:
    explicit QpsByNumber(const Model &model) : model_(model) {
        for (Index index = 0; index < model.qps.size(); ++index) {
            const Qp &qp = model.qps[index];
            if (qp.device != NONE)
                by_number_[key(qp.session, qp.device, qp.key.qpn)].push_back(index);
        }
        // Queue pairs with one number are already in generation order.
        for (Index index = 0; index < model.devices.size(); ++index)
            if (auto &of_host = devices_[model.devices[index].host]; of_host.size() < MAX_DEVICES)
                of_host.push_back(index);
    }

    // The queue pair with this number that lived then and belongs, or may belong, to the process.
    // NONE: not found.
    [[nodiscard]] Index find(Index session, Index device, const cw_verbs_key &wanted,
                             std::uint64_t time_ns) const {
        const auto found = by_number_.find(key(session, device, wanted.qpn));
        if (found == by_number_.end())
            return NONE;
        const std::vector<Index> &qps = found->second;
        const auto after =
            std::upper_bound(qps.begin(), qps.end(), time_ns, [&](std::uint64_t time, Index index) {
                return time < model_.qps[index].key.generation_ns;
            });
        if (after != qps.begin() && fits(*(after - 1), wanted, time_ns))
            return *(after - 1);
        // A pre-existing queue pair has the time of its discovery, which may be after its first
        // post.
        if (after == qps.begin() && model_.qps[*after].has(CW_QP_PREEXISTING) &&
            fits(*after, wanted, time_ns))
            return *after;
        return NONE;
    }

    [[nodiscard]] const std::vector<Index> &devices_of(Index host) const {
        static const std::vector<Index> none;
        const auto found = devices_.find(host);
        return found == devices_.end() ? none : found->second;
    }

private:
    struct Key {
        std::uint64_t session_device;
        std::uint32_t qpn;
        friend bool operator==(const Key &, const Key &) = default;
    };
    struct Hash {
        std::size_t operator()(const Key &key) const {
            return mix(mix(key.session_device) ^ key.qpn);
        }
    };
    static Key key(Index session, Index device, std::uint32_t qpn) {
        return {std::uint64_t{session} << 32U | device, qpn};
    }
    [[nodiscard]] bool fits(Index index, const cw_verbs_key &wanted, std::uint64_t time_ns) const {
        const Qp &qp = model_.qps[index];
        if (qp.has(CW_QP_KERNEL) || (qp.tgid != 0 && qp.tgid != wanted.tgid))
            return false;
        return qp.destroyed_ns == 0 || qp.destroyed_ns >= time_ns;
    }

    const Model &model_;
    std::unordered_map<Key, std::vector<Index>, Hash> by_number_;
    std::unordered_map<Index, std::vector<Index>> devices_;
};

} // namespace

void match_posts(Model &model) {
    if (model.posts.empty())
        return;
    const QpsByNumber qps(model);
    std::unordered_map<std::string, Index> devices;
    for (Index index = 0; index < model.devices.size(); ++index)
        devices.try_emplace(
            fmt::format("{}\n{}", model.devices[index].host, model.devices[index].name), index);

    // One that is matched is freed at once: with many queue pairs both copies are large.
    for (; !model.posts.empty(); model.posts.pop_front()) {
        Posts &posts = model.posts.front();
        const Index host = model.sessions[posts.session].host;
        const cw_post_counters &counters = posts.counters.last;
        if (posts.counters.last_ns == 0)
            continue; // a first post was recorded but nothing counted yet
        const std::uint64_t time_ns =
            posts.first_seen_ns != 0 ? posts.first_seen_ns : counters.first_ns;
        Index match = NONE;
        std::string reason;
        if (!posts.device.empty()) {
            const auto device = devices.find(fmt::format("{}\n{}", host, posts.device));
            if (device != devices.end())
                match = qps.find(posts.session, device->second, posts.key, time_ns);
            if (match == NONE)
                reason = "no queue pair of this device, number, process and time is in the capture";
        } else {
            std::size_t matches = 0;
            for (const Index device : qps.devices_of(host)) {
                const Index found = qps.find(posts.session, device, posts.key, time_ns);
                if (found == NONE)
                    continue;
                match = found;
                ++matches;
            }
            reason = matches == 0
                         ? "the device is not known, and no queue pair of this number and process "
                           "is in the capture"
                         : "the device is not known, and several queue pairs have this number";
            if (matches != 1)
                match = NONE;
        }
        if (match != NONE) {
            Qp &qp = model.qps[match];
            if (!qp.posts)
                qp.posts = std::make_unique<cw_post_counters>();
            add(*qp.posts, counters);
            if (posts.series && !qp.post_series)
                qp.post_series = std::move(posts.series);
            continue;
        }
        UnmatchedPosts unmatched;
        unmatched.host = host;
        unmatched.pid = posts.key.tgid;
        unmatched.qpn = posts.key.qpn;
        unmatched.device = posts.device;
        for (const cw_post_class_counters &of_class : counters.classes) {
            unmatched.wrs = add_saturating(unmatched.wrs, of_class.wrs);
            unmatched.bytes = add_saturating(unmatched.bytes, of_class.bytes);
        }
        unmatched.reason = std::move(reason);
        model.unmatched_posts.push_back(std::move(unmatched));
    }
}

} // namespace collwire::model
