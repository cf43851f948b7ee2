// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/shared_incidents.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

namespace collwire::nccl {

using model::Model;

namespace {

constexpr std::uint64_t TOGETHER_NS = 3'000'000'000;

// A switch by its name, or a host by its index and no name.
using Owner = std::pair<std::string, Index>;

class SharedFinder {
public:
    SharedFinder(const Model &model, std::span<const PortIncident> incidents)
        : model_(model), incidents_(incidents), is_taken_(incidents.size()) {
        for (Index i = 0; i < model.ports.size(); ++i)
            for (const Owner &owner : owners_of(i))
                ++members_[owner].known_ports;
        std::vector<std::pair<std::uint64_t, std::size_t>> order;
        for (std::size_t i = 0; i < incidents.size(); ++i)
            order.emplace_back(realtime_of(incidents[i]), i);
        std::ranges::sort(order);
        for (const auto &[time_ns, i] : order)
            for (const Owner &owner : owners_of(incidents[i].port))
                members_.at(owner).incidents.emplace_back(time_ns, i);
    }

    // The window with the most ports first, of equal ones the later one. What it takes is missing
    // in others that overlap: these are counted again when it is their turn.
    std::vector<SharedIncident> run() {
        for (const auto &[owner, of] : members_)
            for (std::size_t begin = 0, end = 0; begin < of.incidents.size(); ++begin) {
                while (end < of.incidents.size() && is_together(of, begin, end))
                    ++end;
                push({end - begin, &owner, &of, begin});
            }
        while (!windows_.empty()) {
            const Window window = windows_.top();
            windows_.pop();
            if (is_taken_[window.of->incidents[window.begin].second])
                continue;
            const SharedIncident shared = read(window);
            if (shared.ports < window.ports)
                push({shared.ports, window.owner, window.of, window.begin});
            else
                take(shared);
        }
        std::ranges::stable_sort(found_, {}, &SharedIncident::realtime_ns);
        return std::move(found_);
    }

private:
    struct Members {
        std::uint64_t known_ports = 0;
        std::vector<std::pair<std::uint64_t, std::size_t>> incidents; // by time
    };
    struct Window {
        std::uint64_t ports = 0; // at most
        const Owner *owner = nullptr;
        const Members *of = nullptr;
        std::size_t begin = 0;

        [[nodiscard]] auto rank() const {
            return std::tuple(ports, !owner->first.empty(), of->incidents[begin].first);
        }
        friend bool operator<(const Window &a, const Window &b) { return a.rank() < b.rank(); }
    };

    static bool is_together(const Members &of, std::size_t begin, std::size_t i) {
        return of.incidents[i].first - of.incidents[begin].first <= TOGETHER_NS;
    }

    [[nodiscard]] std::uint64_t realtime_of(const PortIncident &incident) const {
        return model_.hosts[host_of(incident.port)].realtime_ns(incident.begin_ns);
    }

    [[nodiscard]] Index host_of(Index port) const {
        return model_.devices[model_.ports[port].device].host;
    }

    [[nodiscard]] std::vector<Owner> owners_of(Index port) const {
        std::vector<Owner> owners{{std::string(), host_of(port)}};
        if (const std::string &name = model_.ports[port].switch_id; !name.empty())
            owners.emplace_back(name, NONE);
        return owners;
    }

    void push(const Window &window) {
        if (window.ports >= 2 && window.ports * 2 >= window.of->known_ports)
            windows_.push(window);
    }

    // Without what other windows took.
    [[nodiscard]] SharedIncident read(const Window &window) const {
        SharedIncident shared{.switch_id = window.owner->first,
                              .host = window.owner->second,
                              .incidents = {},
                              .known_ports = window.of->known_ports,
                              .realtime_ns = window.of->incidents[window.begin].first};
        std::set<Index> ports;
        for (std::size_t i = window.begin;
             i < window.of->incidents.size() && is_together(*window.of, window.begin, i); ++i) {
            const auto &[time_ns, incident] = window.of->incidents[i];
            if (is_taken_[incident])
                continue;
            shared.incidents.push_back(incident);
            shared.spread_ns = time_ns - shared.realtime_ns;
            ports.insert(incidents_[incident].port);
        }
        shared.ports = ports.size();
        return shared;
    }

    void take(const SharedIncident &shared) {
        for (const std::size_t incident : shared.incidents)
            is_taken_[incident] = true;
        found_.push_back(shared);
    }

    const Model &model_;
    std::span<const PortIncident> incidents_;
    std::vector<bool> is_taken_;
    std::map<Owner, Members> members_;
    std::priority_queue<Window> windows_;
    std::vector<SharedIncident> found_;
};

} // namespace

std::vector<SharedIncident> find_shared_incidents(const Model &model,
                                                  std::span<const PortIncident> incidents) {
    return SharedFinder(model, incidents).run();
}

} // namespace collwire::nccl
