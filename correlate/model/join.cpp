// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "collwire/qp_records.h"
#include "correlate/nccl/resolve.h"

namespace collwire::model {

void join(Model &model, const topology::Topology *topology) {
    select_recordings(model);
    find_rough_clocks(model);
    find_owners(model);
    match_posts(model);
    find_remote_ports(model);
    pair_ends(model);
    find_tiers(model, topology);
    measure(model);
    account(model);
    nccl::resolve(model, topology);
    conclude_events(model);
    collect_warnings(model);
}

namespace {

void name_hosts(Model &model) {
    std::map<std::string, std::vector<Index>> by_name;
    for (Index index = 0; index < model.hosts.size(); ++index)
        by_name[model.hosts[index].hostname].push_back(index);
    for (const auto &[name, hosts] : by_name) {
        if (hosts.size() < 2)
            continue;
        for (const Index index : hosts) {
            Host &host = model.hosts[index];
            host.name += fmt::format(" (boot {})", host.boot_id.substr(0, 8));
        }
    }
}

void exclude_overlaps(Model &model) {
    std::vector<Index> order(model.sessions.size());
    for (Index index = 0; index < order.size(); ++index)
        order[index] = index;
    const auto &sessions = model.sessions;
    // The longest first: an excluded recording excludes no other.
    const auto length_ns = [&](Index index) {
        return sessions[index].end_ns - sessions[index].begin_ns;
    };
    std::sort(order.begin(), order.end(), [&](Index a, Index b) {
        return std::tuple(sessions[a].host, length_ns(b), sessions[a].begin_ns, a) <
               std::tuple(sessions[b].host, length_ns(a), sessions[b].begin_ns, b);
    });
    std::map<std::pair<Index, std::uint64_t>, std::uint64_t> kept; // host, begin: end
    for (const Index index : order) {
        Session &session = model.sessions[index];
        const auto after = kept.lower_bound({session.host, session.end_ns});
        bool overlaps = kept.contains({session.host, session.begin_ns});
        if (after != kept.begin()) {
            const auto &[key, end_ns] = *std::prev(after);
            overlaps = overlaps || (key.first == session.host && end_ns > session.begin_ns);
        }
        if (overlaps)
            session.excluded = true;
        else
            kept[{session.host, session.begin_ns}] = session.end_ns;
    }
}

// Orders the queue pairs for every output, and drops those of excluded recordings.
void order_qps(Model &model) {
    std::vector<Index> order;
    order.reserve(model.qps.size());
    for (Index index = 0; index < model.qps.size(); ++index)
        if (!model.sessions[model.qps[index].session].excluded)
            order.push_back(index);
    const auto device_name = [&](const Qp &qp) -> std::string_view {
        return qp.device == NONE ? std::string_view{} : model.devices[qp.device].name;
    };
    std::sort(order.begin(), order.end(), [&](Index a_index, Index b_index) {
        const Qp &a = model.qps[a_index];
        const Qp &b = model.qps[b_index];
        if (a.host != b.host)
            return std::tie(model.hosts[a.host].name, a.host) <
                   std::tie(model.hosts[b.host].name, b.host);
        const auto a_device = device_name(a);
        const auto b_device = device_name(b);
        return std::tie(a_device, a.key.qpn, a.key.generation_ns, a_index) <
               std::tie(b_device, b.key.qpn, b.key.generation_ns, b_index);
    });
    std::vector<Index> new_index(model.qps.size(), NONE);
    std::vector<Qp> ordered;
    ordered.reserve(order.size());
    for (const Index index : order) {
        new_index[index] = static_cast<Index>(ordered.size());
        ordered.push_back(std::move(model.qps[index]));
    }
    model.qps = std::move(ordered);
    for (Event &event : model.events)
        if (event.qp != NONE)
            event.qp = new_index[event.qp];
}

} // namespace

void select_recordings(Model &model) {
    name_hosts(model);
    exclude_overlaps(model);
    order_qps(model);
    const auto of_excluded = [&](const auto &item) {
        return model.sessions[item.session].excluded;
    };
    std::erase_if(model.events, of_excluded);
    std::erase_if(model.posts, of_excluded);
}

void find_owners(Model &model) {
    // The kernel gives a start time in nanoseconds, /proc in clock ticks of 10 ms.
    constexpr std::uint64_t START_TOLERANCE_NS = 20'000'000;
    std::map<std::tuple<Index, std::uint32_t, std::uint64_t>, Index> by_start;
    for (Index index = 0; index < model.processes.size(); ++index) {
        const Process &process = model.processes[index];
        by_start.try_emplace({process.host, process.pid, process.start_boottime_ns}, index);
    }
    for (Qp &qp : model.qps) {
        if (qp.tgid == 0 || qp.has(CW_QP_KERNEL))
            continue;
        // If its start is unknown: the youngest process with that number.
        const std::uint64_t latest = qp.start_boottime_ns == 0
                                         ? UINT64_MAX
                                         : add_saturating(qp.start_boottime_ns, START_TOLERANCE_NS);
        auto after = by_start.upper_bound({qp.host, qp.tgid, latest});
        if (after != by_start.begin()) {
            const auto &[key, index] = *std::prev(after);
            const auto &[host, pid, start_ns] = key;
            const bool near =
                qp.start_boottime_ns == 0 ||
                add_saturating(start_ns, START_TOLERANCE_NS) >= qp.start_boottime_ns ||
                start_ns == 0;
            if (host == qp.host && pid == qp.tgid && near) {
                qp.process = index;
                continue;
            }
        }
        Process process;
        process.host = qp.host;
        process.pid = qp.tgid;
        process.start_boottime_ns = qp.start_boottime_ns;
        process.comm = qp.comm;
        qp.process = static_cast<Index>(model.processes.size());
        by_start.try_emplace({qp.host, qp.tgid, qp.start_boottime_ns}, qp.process);
        model.processes.push_back(std::move(process));
    }
}

} // namespace collwire::model
