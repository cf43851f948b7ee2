// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/port_incidents.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "correlate/model/counters.h"
#include "correlate/nccl/resolve.h"
#include "correlate/nccl/time_operations.h"

namespace collwire::nccl {

using model::Event;
using model::Model;

namespace {

constexpr std::uint64_t SAME_INCIDENT_NS = 10'000'000'000;
// Queue pairs give up after their retries, which take up to half a minute.
constexpr std::uint64_t ERRORS_AFTER_NS = 60'000'000'000;

enum class Sign : std::uint8_t {
    None,
    Trouble, // by itself an incident
    Effect,  // of one
    Down,
    Up,
};

bool is_edge(const Event &event) {
    return event.kind == "carrier_down" || event.kind == "port_err" || event.kind == "carrier_up" ||
           event.kind == "port_active";
}

// `has_edges`: of the port. Else its sampled state shows when it went down.
Sign sign_of(const Event &event, bool has_edges) {
    constexpr std::uint32_t ACTIVE = 4; // enum ib_port_state
    if (event.port == NONE)
        return Sign::None;
    if (event.kind == "carrier_down" || event.kind == "port_err")
        return Sign::Down;
    if (event.kind == "carrier_up" || event.kind == "port_active")
        return Sign::Up;
    if (event.kind == "port_state" && !has_edges)
        return event.port_state == ACTIVE ? Sign::Up : Sign::Down;
    if (event.kind == "retransmissions" || event.kind == "port_state")
        return Sign::Effect;
    return event.kind == "port_errors" || event.kind == "suspected_path_loss" ||
                   event.kind == "device_gone" || event.kind == "device_fatal"
               ? Sign::Trouble
               : Sign::None;
}

std::uint64_t end_of(const Event &event) {
    return std::max(event.time_ns, event.end_ns);
}

class IncidentFinder {
public:
    explicit IncidentFinder(const Model &model) : model_(model), nccl_(model.nccl) {}

    std::vector<PortIncident> run() {
        find_incidents();
        if (incidents_.empty())
            return {};
        find_users();
        if (!ports_of_link_.empty())
            find_operations();
        find_errors();
        std::stable_sort(incidents_.begin(), incidents_.end(),
                         [&](const PortIncident &a, const PortIncident &b) {
                             return realtime_of(a) < realtime_of(b);
                         });
        return std::move(incidents_);
    }

private:
    // Of an operation at one incident.
    struct Seen {
        bool is_running = false;
        std::uint64_t launch_ns = 0;
    };
    // An operation on a connection.
    struct LinkOperation {
        Index comm = NONE;
        bool is_pair = false;
        Index index = NONE;
        std::uint64_t launch_ns = 0;
        bool has_unknown_end = false;
    };
    using UseKey = std::tuple<std::size_t, Index, bool>; // incident, communicator, is_pair

    [[nodiscard]] std::uint64_t recording_end_ns(const PortIncident &incident) const;
    [[nodiscard]] Index host_of(Index port) const {
        return model_.devices[model_.ports[port].device].host;
    }
    [[nodiscard]] std::uint64_t realtime_of(const PortIncident &incident) const {
        return model_.hosts[host_of(incident.port)].realtime_ns(incident.begin_ns);
    }

    void find_incidents();
    void finish(PortIncident &incident, bool has_edges) const;
    void find_users();
    void add_process(Index port, std::uint64_t from_ns, std::uint64_t until_ns, Index process);
    void add_instance(Index port, const Instance &instance);
    void find_operations();
    void see(const std::vector<std::size_t> &incidents, const LinkOperation &one,
             const OpTime &time);
    void pass_begins(Index link, std::uint64_t until_ns);
    void add_use(const UseKey &key, const std::map<Index, Seen> &operations);
    [[nodiscard]] const std::vector<Index> &operations_of(Index comm, bool is_pair);
    void find_usual(IncidentUse &use);
    void find_errors();

    const Model &model_;
    const NcclFacts &nccl_;
    std::vector<PortIncident> incidents_;
    std::unordered_map<Index, std::vector<std::size_t>> at_port_; // incidents
    std::vector<std::set<Index>> ports_of_link_;
    std::map<std::pair<std::size_t, Index>, std::set<std::int32_t>> users_; // communicator: ranks
    std::map<UseKey, std::map<Index, Seen>> seen_;
    std::vector<LinkOperation> last_of_link_;                  // launched
    std::unordered_map<Index, std::vector<Index>> by_comm_[2]; // collectives, pairs
};

void IncidentFinder::find_incidents() {
    std::map<Index, std::vector<Index>> by_port;
    for (Index i = 0; i < model_.events.size(); ++i)
        if (sign_of(model_.events[i], true) != Sign::None)
            by_port[model_.events[i].port].push_back(i);
    for (auto &[port, events] : by_port) {
        std::stable_sort(events.begin(), events.end(), [&](Index a, Index b) {
            return model_.events[a].time_ns < model_.events[b].time_ns;
        });
        const bool has_edges = std::any_of(events.begin(), events.end(),
                                           [&](Index i) { return is_edge(model_.events[i]); });
        PortIncident open;
        bool is_down = false;
        const auto close = [&] {
            if (open.port != NONE) {
                finish(open, has_edges);
                incidents_.push_back(std::move(open));
            }
            open = {};
        };
        for (const Index i : events) {
            const Event &event = model_.events[i];
            const Sign sign = sign_of(event, has_edges);
            if (open.port != NONE && !is_down &&
                event.time_ns > model::add_saturating(open.end_ns, SAME_INCIDENT_NS))
                close();
            if (open.port == NONE && sign != Sign::Down && sign != Sign::Trouble)
                continue;
            if (open.port == NONE) {
                open.port = port;
                open.begin_ns = event.time_ns;
            }
            open.events.push_back(i);
            open.end_ns = std::max(open.end_ns, end_of(event));
            // A derived one is over: the counter of edges grew between two samples.
            if (!event.derived)
                is_down = sign == Sign::Down || (sign != Sign::Up && is_down);
        }
        close();
    }
    for (std::size_t i = 0; i < incidents_.size(); ++i)
        at_port_[incidents_[i].port].push_back(i);
}

// Of the host's recordings that had begun.
std::uint64_t IncidentFinder::recording_end_ns(const PortIncident &incident) const {
    std::uint64_t end_ns = 0;
    for (const model::Session &session : model_.sessions)
        if (session.host == host_of(incident.port) && session.begin_ns <= incident.end_ns)
            end_ns = std::max(end_ns, session.end_ns);
    return end_ns;
}

void IncidentFinder::finish(PortIncident &incident, bool has_edges) const {
    std::uint64_t down_since_ns = 0;
    for (const Index i : incident.events) {
        const Event &event = model_.events[i];
        const Sign sign = sign_of(event, has_edges);
        if (sign == Sign::Down && down_since_ns == 0) {
            ++incident.times_down;
            down_since_ns = event.derived ? 0 : event.time_ns;
        } else if (sign == Sign::Up && down_since_ns != 0) {
            incident.down_ns += event.time_ns - down_since_ns;
            down_since_ns = 0;
        }
    }
    if (down_since_ns == 0)
        return;
    incident.is_down_at_end = true;
    incident.end_ns = std::max(incident.end_ns, recording_end_ns(incident));
    incident.down_ns += incident.end_ns - down_since_ns;
}

void IncidentFinder::add_process(Index port, std::uint64_t from_ns, std::uint64_t until_ns,
                                 Index process) {
    const auto found = at_port_.find(port);
    if (found == at_port_.end() || process == NONE)
        return;
    for (const std::size_t i : found->second)
        if (PortIncident &incident = incidents_[i];
            from_ns <= incident.end_ns && until_ns >= incident.begin_ns)
            incident.processes.push_back(process);
}

void IncidentFinder::add_instance(Index port, const Instance &instance) {
    const std::uint64_t until_ns = instance.end_ns == 0 ? UINT64_MAX : instance.end_ns;
    add_process(port, instance.begin_ns, until_ns, instance.process);
    for (const std::size_t i : at_port_[port])
        if (instance.comm != NONE && instance.begin_ns <= incidents_[i].end_ns &&
            until_ns >= incidents_[i].begin_ns)
            users_[{i, instance.comm}].insert(instance.record.rank);
}

void IncidentFinder::find_users() {
    for (const model::Qp &qp : model_.qps)
        add_process(qp.port, qp.has(CW_QP_PREEXISTING) ? 0 : qp.key.generation_ns,
                    qp.destroyed_ns == 0 ? UINT64_MAX : qp.destroyed_ns, qp.process);
    std::unordered_map<Index, std::uint64_t> unplaced; // by host
    for (Index i = 0; i < nccl_.links.size(); ++i) {
        const Link &link = nccl_.links[i];
        std::set<Index> ports;
        for (const Index qp : link.qps)
            ports.insert(model_.qps[qp].port);
        for (const Index socket : link.sockets)
            ports.insert(nccl_.sockets[socket].port);
        ports.erase(NONE);
        if (ports.empty() && link.is_followed() && !link.is_mirrored)
            ++unplaced[model_.sessions[link.session].host];
        std::erase_if(ports, [&](Index port) { return !at_port_.contains(port); });
        if (ports.empty())
            continue;
        ports_of_link_.resize(nccl_.links.size());
        for (const Index port : ports)
            for (const Index instance : link.instances)
                add_instance(port, nccl_.instances[instance]);
        ports_of_link_[i] = std::move(ports);
    }
    for (PortIncident &incident : incidents_) {
        std::sort(incident.processes.begin(), incident.processes.end());
        incident.processes.erase(std::unique(incident.processes.begin(), incident.processes.end()),
                                 incident.processes.end());
        const auto found = unplaced.find(host_of(incident.port));
        incident.unplaced_connections = found == unplaced.end() ? 0 : found->second;
    }
}

void IncidentFinder::find_operations() {
    last_of_link_.resize(nccl_.links.size());
    OperationTimer(model_).for_each([&](const OpVisit &of, const OpTime &time) {
        if (of.op.link == NONE || ports_of_link_[of.op.link].empty())
            return;
        const Instance &instance = nccl_.instances[of.at.instance];
        const auto [is_pair, index] = operation_of(nccl_, instance, of.launch, of.op.task);
        const LinkOperation one{instance.comm, is_pair, index, of.launch.time_ns,
                                time.known == EndKnown::No};
        pass_begins(of.op.link, one.launch_ns);
        last_of_link_[of.op.link] = one;
        if (index == NONE)
            return;
        for (const Index port : ports_of_link_[of.op.link])
            see(at_port_[port], one, time);
    });
    for (Index link = 0; link < last_of_link_.size(); ++link)
        pass_begins(link, UINT64_MAX);
    // Of those that were idle, too.
    for (const auto &[user, ranks] : users_)
        if (!seen_.contains({user.first, user.second, true}))
            seen_.try_emplace({user.first, user.second, false});
    for (const auto &[key, operations] : seen_)
        add_use(key, operations);
}

// The incidents of one port come one after the other.
void IncidentFinder::see(const std::vector<std::size_t> &incidents, const LinkOperation &one,
                         const OpTime &time) {
    const bool is_measured = time.known == EndKnown::Measured;
    const std::uint64_t after_ns = is_measured ? time.end_ns : time.after_ns;
    const std::uint64_t before_ns = is_measured ? time.end_ns : time.before_ns;
    const std::uint64_t until_ns = std::max({one.launch_ns, after_ns, before_ns});
    const auto first =
        std::partition_point(incidents.begin(), incidents.end(), [&](std::size_t index) {
            return incidents_[index].end_ns < one.launch_ns;
        });
    for (auto at = first; at != incidents.end() && incidents_[*at].begin_ns <= until_ns; ++at) {
        Seen &seen = seen_[{*at, one.comm, one.is_pair}][one.index];
        seen.is_running =
            seen.is_running || std::max(one.launch_ns, after_ns) >= incidents_[*at].begin_ns;
        seen.launch_ns =
            seen.launch_ns == 0 ? one.launch_ns : std::min(seen.launch_ns, one.launch_ns);
    }
}

// Incidents that begin after the connection's last launch, and not after `until_ns`: if its end is
// not known it may have run on.
void IncidentFinder::pass_begins(Index link, std::uint64_t until_ns) {
    const LinkOperation &last = last_of_link_[link];
    if (!last.has_unknown_end || last.index == NONE)
        return;
    for (const Index port : ports_of_link_[link]) {
        const std::vector<std::size_t> &incidents = at_port_[port];
        auto at = std::partition_point(incidents.begin(), incidents.end(), [&](std::size_t index) {
            return incidents_[index].begin_ns <= last.launch_ns;
        });
        for (; at != incidents.end() && incidents_[*at].begin_ns <= until_ns; ++at)
            seen_[{*at, last.comm, last.is_pair}].try_emplace(last.index,
                                                              Seen{false, last.launch_ns});
    }
}

void IncidentFinder::add_use(const UseKey &key, const std::map<Index, Seen> &operations) {
    IncidentUse use;
    use.comm = std::get<1>(key);
    use.is_pair = std::get<2>(key);
    std::vector<std::pair<std::uint64_t, Index>> running, perhaps;
    const std::vector<Operation> &all = use.is_pair ? nccl_.p2p : nccl_.collectives;
    for (const auto &[operation, seen] : operations) {
        (seen.is_running ? running : perhaps).emplace_back(seen.launch_ns, operation);
        if (seen.is_running && (use.longest == NONE || all[operation].least_duration_ns >
                                                           all[use.longest].least_duration_ns))
            use.longest = operation;
    }
    const auto in_order = [](std::vector<std::pair<std::uint64_t, Index>> &timed) {
        std::sort(timed.begin(), timed.end());
        std::vector<Index> found;
        found.reserve(timed.size());
        for (const auto &[launch_ns, operation] : timed)
            found.push_back(operation);
        return found;
    };
    use.running = in_order(running);
    use.perhaps = in_order(perhaps);
    const std::set<std::int32_t> &ranks = users_[{std::get<0>(key), use.comm}];
    use.ranks.assign(ranks.begin(), ranks.end());
    if (use.longest != NONE)
        find_usual(use);
    incidents_[std::get<0>(key)].uses.push_back(std::move(use));
}

const std::vector<Index> &IncidentFinder::operations_of(Index comm, bool is_pair) {
    std::unordered_map<Index, std::vector<Index>> &by_comm = by_comm_[is_pair ? 1 : 0];
    if (const std::vector<Operation> &all = is_pair ? nccl_.p2p : nccl_.collectives;
        by_comm.empty())
        for (Index i = 0; i < all.size(); ++i)
            by_comm[all[i].comm].push_back(i);
    return by_comm[comm];
}

void IncidentFinder::find_usual(IncidentUse &use) {
    const std::vector<Operation> &all = use.is_pair ? nccl_.p2p : nccl_.collectives;
    const Operation &like = all[use.longest];
    std::vector<Index> seen = use.running;
    seen.insert(seen.end(), use.perhaps.begin(), use.perhaps.end());
    std::sort(seen.begin(), seen.end());
    std::vector<std::uint64_t> durations_ns;
    for (const Index i : operations_of(use.comm, use.is_pair)) {
        const Operation &one = all[i];
        if (one.func == like.func && one.count == like.count && one.datatype == like.datatype &&
            one.source == like.source && one.destination == like.destination &&
            one.end_known != EndKnown::No && !std::binary_search(seen.begin(), seen.end(), i))
            durations_ns.push_back(one.most_duration_ns);
    }
    use.usual_of = durations_ns.size();
    if (durations_ns.empty())
        return;
    const auto middle = durations_ns.begin() + static_cast<std::ptrdiff_t>(durations_ns.size() / 2);
    std::nth_element(durations_ns.begin(), middle, durations_ns.end());
    use.usual_ns = *middle;
}

void IncidentFinder::find_errors() {
    for (Index i = 0; i < nccl_.errors.size(); ++i) {
        const NcclError &error = nccl_.errors[i];
        if (error.kind == ErrorKind::Warning)
            continue;
        std::set<Index> ports;
        for (const Index qp : error.qps)
            ports.insert(model_.qps[qp].port);
        if (error.link != NONE && error.link < ports_of_link_.size())
            ports.insert(ports_of_link_[error.link].begin(), ports_of_link_[error.link].end());
        for (const Index port : ports)
            if (const auto found = at_port_.find(port); found != at_port_.end())
                for (const std::size_t index : found->second)
                    if (PortIncident &incident = incidents_[index];
                        error.time_ns >= incident.begin_ns &&
                        error.after_ns <= model::add_saturating(incident.end_ns, ERRORS_AFTER_NS))
                        incident.errors.push_back(i);
    }
}

} // namespace

std::vector<PortIncident> find_port_incidents(const Model &model) {
    return IncidentFinder(model).run();
}

} // namespace collwire::nccl
