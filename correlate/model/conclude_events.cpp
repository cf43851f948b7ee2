// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "correlate/model/join.h"
#include "correlate/model/meaning.h"

namespace collwire::model {

namespace {

// Effects within this time on one port are one event.
constexpr std::uint64_t SAME_EVENT_NS = 2'500'000'000;
// A link change this long before or after explains an effect: RDMA detects loss by timeouts of up
// to some seconds.
constexpr std::uint64_t BEFORE_NS = 10'000'000'000;
constexpr std::uint64_t AFTER_NS = 2'000'000'000;
constexpr std::uint64_t NS_PER_MS = 1'000'000;

bool is_edge(const Event &event) {
    return event.kind == "carrier_down" || event.kind == "carrier_up" || event.kind == "port_err" ||
           event.kind == "port_active" || event.kind == "port_state" ||
           event.kind == "device_gone" || event.kind == "device_fatal";
}

// One sign of a problem beyond a port.
struct Sign {
    Index port;
    std::uint64_t from_ns;
    std::uint64_t to_ns;
    std::string name; // of the counter; empty: retransmissions of a queue pair
    std::uint64_t count;
    std::uint64_t rx_frames = 0;
    Index qp = NONE;
};

class Concluder {
public:
    explicit Concluder(Model &model) : model_(model) {
        for (Index index = 0; index < model_.ports.size(); ++index)
            port_by_number_[{model_.ports[index].device, model_.ports[index].number}] = index;
        for (const ClockDifference &clock : model_.clock_differences) {
            const auto b_minus_a_ns = static_cast<std::uint64_t>(clock.b_minus_a_ns);
            clocks_[{clock.host_a, clock.host_b}] = b_minus_a_ns;
            clocks_[{clock.host_b, clock.host_a}] = 0 - b_minus_a_ns;
        }
    }

    void run() {
        resolve();
        index_edges();
        add_counter_events();
        index_edges();
        add_path_events();
        order();
    }

private:
    void resolve();
    void index_edges();
    void add_counter_events();
    void add_path_events();
    void add_path_event(const std::vector<Sign> &signs);
    [[nodiscard]] std::vector<Sign> signs() const;
    [[nodiscard]] bool edge_near(Index port, std::uint64_t from_ns, std::uint64_t to_ns) const;
    [[nodiscard]] bool carrier_watched(Index port) const { return watched_.contains(port); }
    [[nodiscard]] Event on_port(Index port, std::uint64_t from_ns, std::uint64_t to_ns) const;
    [[nodiscard]] Index find_port(Index device, std::uint32_t number) const;
    void order();

    Model &model_;
    std::unordered_map<Index, std::vector<std::uint64_t>> edges_; // port: realtimes
    std::set<Index> watched_;
    std::map<std::pair<Index, std::uint32_t>, Index> port_by_number_; // by device
    // Offset from the first host's realtime to the second's, modulo 2^64.
    std::map<std::pair<Index, Index>, std::uint64_t> clocks_;
};

Index Concluder::find_port(Index device, std::uint32_t number) const {
    const auto found = port_by_number_.find(std::pair{device, number});
    return found == port_by_number_.end() ? NONE : found->second;
}

void Concluder::resolve() {
    std::map<std::pair<Index, std::string_view>, Index> by_netdev;
    std::map<std::pair<Index, std::string_view>, Index> by_pci_address;
    for (Index index = 0; index < model_.ports.size(); ++index)
        if (const Port &port = model_.ports[index]; !port.netdev.empty())
            by_netdev[{model_.devices[port.device].host, port.netdev}] = index;
    for (Index index = 0; index < model_.devices.size(); ++index)
        if (const Device &device = model_.devices[index]; !device.pci_address.empty())
            by_pci_address[{device.host, device.pci_address}] = index;

    for (Event &event : model_.events) {
        event.realtime_ns = model_.hosts[event.host].realtime_ns(event.time_ns);
        if (!event.netdev.empty()) {
            const auto found = by_netdev.find({event.host, event.netdev});
            if (found != by_netdev.end()) {
                event.port = found->second;
                event.device = model_.ports[event.port].device;
                event.port_number = model_.ports[event.port].number;
            }
        }
        if (!event.pci_address.empty())
            if (const auto found = by_pci_address.find({event.host, event.pci_address});
                found != by_pci_address.end())
                event.device = found->second;
        if (event.qp != NONE) {
            const Qp &qp = model_.qps[event.qp];
            event.device = qp.device;
            event.port = qp.port;
            event.port_number = qp.port_number;
            event.process = qp.process;
            if (!qp.remote_host.empty())
                event.peers = {qp.remote_host};
        }
        // Device-wide events, and those of devices with one port.
        if (event.port == NONE && event.device != NONE &&
            model_.devices[event.device].ports.size() == 1)
            event.port = model_.devices[event.device].ports.front();
        if (event.port != NONE && event.netdev.empty())
            event.netdev = model_.ports[event.port].netdev;
    }
}

void Concluder::index_edges() {
    edges_.clear();
    for (const Event &event : model_.events)
        if (event.port != NONE && is_edge(event))
            edges_[event.port].push_back(event.realtime_ns);
    for (auto &[port, times] : edges_)
        std::sort(times.begin(), times.end());
}

bool Concluder::edge_near(Index port, std::uint64_t from_ns, std::uint64_t to_ns) const {
    const auto found = edges_.find(port);
    if (found == edges_.end())
        return false;
    const auto &times = found->second;
    const auto first =
        std::lower_bound(times.begin(), times.end(), subtract_or_zero(from_ns, BEFORE_NS));
    return first != times.end() && *first <= add_saturating(to_ns, AFTER_NS);
}

Event Concluder::on_port(Index port, std::uint64_t from_ns, std::uint64_t to_ns) const {
    Event event;
    event.time_ns = from_ns;
    event.end_ns = to_ns;
    event.port = port;
    event.port_number = model_.ports[port].number;
    event.device = model_.ports[port].device;
    event.netdev = model_.ports[port].netdev;
    event.host = model_.devices[event.device].host;
    event.realtime_ns = model_.hosts[event.host].realtime_ns(from_ns);
    event.derived = true;
    return event;
}

void Concluder::add_counter_events() {
    for (const Session &session : model_.sessions) {
        if (session.excluded)
            continue;
        for (const Counter &counter : session.counters) {
            const Index port = find_port(counter.device, counter.port);
            if (port == NONE)
                continue;
            if (counter.series.points() >= 2 &&
                (counter.name == "carrier_changes" || counter.name == "carrier_down_count"))
                watched_.insert(port);
            const CounterMeaning meaning = meaning_of(counter.name);
            if (meaning != CounterMeaning::PortErrors && meaning != CounterMeaning::CarrierDown)
                continue;
            for (const Growth &growth : counter.series.growths()) {
                Event event = on_port(port, growth.from_ns, growth.to_ns);
                event.evidence[counter.name] = growth.delta;
                if (meaning == CounterMeaning::CarrierDown) {
                    if (edge_near(port, event.realtime_ns,
                                  event.realtime_ns + (growth.to_ns - growth.from_ns)))
                        continue; // its changes are recorded
                    event.kind = "carrier_down";
                    event.what = fmt::format("carrier went down {} time(s) between two samples; "
                                             "the single changes were not recorded",
                                             growth.delta);
                } else {
                    event.kind = "port_errors";
                    event.what = fmt::format("{} grew by {}", counter.name, growth.delta);
                }
                model_.events.push_back(std::move(event));
            }
        }
    }
}

std::vector<Sign> Concluder::signs() const {
    std::vector<Sign> signs;
    for (const Session &session : model_.sessions) {
        if (session.excluded)
            continue;
        for (const Counter &counter : session.counters) {
            if (meaning_of(counter.name) != CounterMeaning::PathLoss)
                continue;
            const Index port = find_port(counter.device, counter.port);
            if (port == NONE)
                continue;
            for (const Growth &growth : counter.series.growths())
                signs.push_back(
                    {port, growth.from_ns, growth.to_ns, counter.name, growth.delta, 0, NONE});
        }
    }
    for (Index index = 0; index < model_.qps.size(); ++index) {
        const Qp &qp = model_.qps[index];
        if (qp.port == NONE)
            continue;
        for (const Retransmission &stretch : qp.retransmissions)
            signs.push_back({qp.port,
                             stretch.from_ns,
                             stretch.to_ns,
                             {},
                             stretch.frames,
                             stretch.rx_frames,
                             index});
    }
    std::sort(signs.begin(), signs.end(), [](const Sign &a, const Sign &b) {
        return std::tie(a.port, a.from_ns, a.to_ns, a.name, a.qp) <
               std::tie(b.port, b.from_ns, b.to_ns, b.name, b.qp);
    });
    return signs;
}

void Concluder::add_path_events() {
    std::vector<Sign> together;
    std::uint64_t until_ns = 0;
    for (Sign &sign : signs()) {
        if (!together.empty() && (sign.port != together.front().port ||
                                  sign.from_ns > add_saturating(until_ns, SAME_EVENT_NS))) {
            add_path_event(together);
            together.clear();
        }
        until_ns = together.empty() ? sign.to_ns : std::max(until_ns, sign.to_ns);
        together.push_back(std::move(sign));
    }
    if (!together.empty())
        add_path_event(together);
}

void Concluder::add_path_event(const std::vector<Sign> &signs) {
    std::uint64_t from_ns = signs.front().from_ns;
    std::uint64_t to_ns = signs.front().to_ns;
    std::uint64_t frames = 0;
    std::set<Index> qps;
    std::set<Index> silent;
    std::set<Index> far_ports;
    std::set<std::string> peers;
    Event event = on_port(signs.front().port, from_ns, to_ns);
    for (const Sign &sign : signs) {
        to_ns = std::max(to_ns, sign.to_ns);
        if (sign.qp == NONE) {
            std::uint64_t &sum = event.evidence[sign.name];
            sum = add_saturating(sum, sign.count);
            continue;
        }
        const Qp &qp = model_.qps[sign.qp];
        frames = add_saturating(frames, sign.count);
        qps.insert(sign.qp);
        if (sign.rx_frames == 0)
            silent.insert(sign.qp);
        if (qp.remote_port != NONE)
            far_ports.insert(qp.remote_port);
        if (!qp.remote_host.empty())
            peers.insert(qp.remote_host);
    }
    event.end_ns = to_ns;
    event.peers.assign(peers.begin(), peers.end());
    if (!qps.empty()) {
        event.evidence["retransmitted_frames"] = frames;
        event.evidence["qps_retransmitting"] = qps.size();
        event.evidence["qps_without_any_answer"] = silent.size();
    }
    const std::uint64_t realtime_end_ns = event.realtime_ns + (to_ns - from_ns);
    const std::uint64_t took_ms = (to_ns - from_ns) / NS_PER_MS;
    const std::string took = fmt::format("{:.1f} s", static_cast<double>(took_ms) / 1000.0);
    std::string effect;
    if (qps.empty()) {
        effect = fmt::format("within {}", took);
        for (const auto &[name, growth] : event.evidence)
            effect += fmt::format(", {} +{}", name, growth);
    } else {
        std::string answers = "with answers in between";
        if (!silent.empty())
            answers = silent.size() == qps.size()
                          ? "with no answer"
                          : fmt::format("{} of them with no answer", silent.size());
        effect = fmt::format("{} frames retransmitted by {} queue pair(s) within {}, {}", frames,
                             qps.size(), took, answers);
    }
    const Index far_edge = [&] {
        for (const Index port : far_ports) {
            const auto clock =
                clocks_.find({event.host, model_.devices[model_.ports[port].device].host});
            const std::uint64_t shift_ns = clock == clocks_.end() ? 0 : clock->second;
            if (edge_near(port, event.realtime_ns + shift_ns, realtime_end_ns + shift_ns))
                return port;
        }
        return NONE;
    }();
    if (edge_near(event.port, event.realtime_ns, realtime_end_ns)) {
        event.kind = "retransmissions";
        event.what = effect + "; the port's own link changed at that time";
    } else if (far_edge != NONE) {
        const Device &device = model_.devices[model_.ports[far_edge].device];
        event.kind = "retransmissions";
        event.what = fmt::format("{}; the link of the peer's port {} {} changed at that time",
                                 effect, model_.hosts[device.host].name, device.name);
    } else {
        event.kind = "suspected_path_loss";
        event.what = fmt::format("{}; {}: {} beyond this port", effect,
                                 carrier_watched(event.port) ? "this port's carrier did not change"
                                                             : "no link change was recorded",
                                 !silent.empty() && silent.size() == qps.size()
                                     ? "probably the path is cut or the peer is down, somewhere"
                                     : "probably frames are lost (cut, bad link, congestion) or a "
                                       "peer does not answer, somewhere");
    }
    model_.events.push_back(std::move(event));
}

void Concluder::order() {
    const auto key = [](const Event &event) {
        return std::tie(event.realtime_ns, event.host, event.time_ns, event.kind, event.device,
                        event.port_number, event.qpn, event.qp, event.what);
    };
    std::sort(model_.events.begin(), model_.events.end(),
              [&](const Event &a, const Event &b) { return key(a) < key(b); });
    // One segment was given twice.
    const auto same = std::unique(model_.events.begin(), model_.events.end(),
                                  [&](const Event &a, const Event &b) { return key(a) == key(b); });
    model_.events.erase(same, model_.events.end());
}

} // namespace

void conclude_events(Model &model) {
    Concluder(model).run();
}

} // namespace collwire::model
