// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/shared_incidents.h"

#include <algorithm>
#include <map>
#include <optional>
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
        : model_(model), incidents_(incidents) {
        for (Index i = 0; i < model.ports.size(); ++i)
            for (const Owner &owner : owners_of(i))
                ++known_[owner];
    }

    std::vector<SharedIncident> run() {
        std::vector<std::pair<std::uint64_t, std::size_t>> order;
        for (std::size_t i = 0; i < incidents_.size(); ++i)
            order.emplace_back(realtime_of(incidents_[i]), i);
        std::ranges::sort(order);
        for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
            while (end < order.size() && order[end].first - order[begin].first <= TOGETHER_NS)
                ++end;
            std::vector<std::size_t> together;
            for (std::size_t i = begin; i < end; ++i)
                together.push_back(order[i].second);
            split(std::move(together));
        }
        std::ranges::stable_sort(found_, {}, &SharedIncident::realtime_ns);
        return std::move(found_);
    }

private:
    [[nodiscard]] Index host_of(Index port) const {
        return model_.devices[model_.ports[port].device].host;
    }

    [[nodiscard]] std::uint64_t realtime_of(const PortIncident &incident) const {
        return model_.hosts[host_of(incident.port)].realtime_ns(incident.begin_ns);
    }

    [[nodiscard]] std::vector<Owner> owners_of(Index port) const {
        std::vector<Owner> owners{{std::string(), host_of(port)}};
        if (const std::string &name = model_.ports[port].switch_id; !name.empty())
            owners.emplace_back(name, NONE);
        return owners;
    }

    // Takes the owner with the most ports, as long as there is one with enough.
    void split(std::vector<std::size_t> together) {
        while (const std::optional<Owner> owner = owner_of_most(together)) {
            SharedIncident &shared = found_.emplace_back();
            shared.switch_id = owner->first;
            shared.host = owner->second;
            shared.known_ports = known_.at(*owner);
            std::set<Index> ports;
            std::erase_if(together, [&](std::size_t i) {
                const Index port = incidents_[i].port;
                if (std::ranges::count(owners_of(port), *owner) == 0)
                    return false;
                shared.incidents.push_back(i);
                ports.insert(port);
                return true;
            });
            shared.ports = ports.size();
            shared.realtime_ns = realtime_of(incidents_[shared.incidents.front()]);
            shared.spread_ns =
                realtime_of(incidents_[shared.incidents.back()]) - shared.realtime_ns;
        }
    }

    [[nodiscard]] std::optional<Owner>
    owner_of_most(const std::vector<std::size_t> &together) const {
        std::map<Owner, std::set<Index>> ports;
        for (const std::size_t i : together)
            for (const Owner &owner : owners_of(incidents_[i].port))
                ports[owner].insert(incidents_[i].port);
        std::optional<Owner> most;
        std::size_t most_ports = 1;
        for (const auto &[owner, of] : ports)
            if (of.size() * 2 >= known_.at(owner) &&
                std::tuple(of.size(), !owner.first.empty()) >
                    std::tuple(most_ports, most && !most->first.empty())) {
                most = owner;
                most_ports = of.size();
            }
        return most_ports >= 2 ? most : std::nullopt;
    }

    const Model &model_;
    std::span<const PortIncident> incidents_;
    std::map<Owner, std::uint64_t> known_; // ports
    std::vector<SharedIncident> found_;
};

} // namespace

std::vector<SharedIncident> find_shared_incidents(const Model &model,
                                                  std::span<const PortIncident> incidents) {
    return SharedFinder(model, incidents).run();
}

} // namespace collwire::nccl
