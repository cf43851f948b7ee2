// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/far_nics.h"

#include <fmt/format.h>

#include "collwire/nccl_connection_records.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::Distance;
using model::PciPlace;

FarNics::FarNics(const model::Model &model, const std::map<Index, std::set<Index>> &active)
    : model_(model) {
    for (const auto &[host, devices] : active)
        for (const Index index : devices) {
            const model::Device &device = model_.devices[index];
            if (device.numa_node >= 0)
                nodes_[host].insert(device.numa_node);
            if (device.is_software())
                continue;
            const PciPlace place = place_of(device);
            Places &places = places_[host];
            if (!place.root_port.empty())
                places.root_ports.insert(place.root_port);
            if (!place.host_bridge.empty())
                places.host_bridges.insert(place.host_bridge);
            if (place.numa_node >= 0)
                places.nodes.insert(place.numa_node);
        }
    for (const Instance &instance : model_.nccl.instances)
        gpus_[{instance.session, instance.record.tgid}].insert(instance.record.bus_id);
}

// GPU of the rank whose proxy posts. 0: not known. Absent: several are possible.
std::optional<std::uint64_t> FarNics::gpu_of(const Link &link) const {
    std::set<std::uint64_t> bus_ids;
    for (const Index index : link.connections) {
        const cw_nccl_connection &head = model_.nccl.gathered.connections[index].head;
        // A record read from outside has a named rank or none; the proxy may be another rank's of
        // the same process (PXN).
        const bool has_rank = (head.flags & CW_NCCL_CONNECTION_OUTSIDE) == 0 && head.comm != 0;
        const Index instance = has_rank ? instance_at(model_.nccl, link.session, head.tgid,
                                                      head.comm, head.header.time_ns)
                                        : NONE;
        if (instance != NONE)
            bus_ids.insert(model_.nccl.instances[instance].record.bus_id);
    }
    if (const auto process = gpus_.find({link.session, link.tgid});
        bus_ids.empty() && process != gpus_.end())
        bus_ids = process->second;
    if (bus_ids.empty() || bus_ids.contains(0))
        return 0;
    return bus_ids.size() == 1 ? std::optional(*bus_ids.begin()) : std::nullopt;
}

const PciPlace *FarNics::place_of_gpu(const Link &link, std::uint64_t bus_id) const {
    const auto &places = model_.hosts[model_.sessions[link.session].host].pci_places;
    const auto found = bus_id == 0 ? places.end() : places.find(bus_id_text(bus_id));
    return found == places.end() ? nullptr : &found->second;
}

PciPlace FarNics::place_of(const model::Device &device) const {
    const auto &places = model_.hosts[device.host].pci_places;
    const auto found = places.find(device.pci_address);
    return found == places.end() ? model::pci_place("", device.numa_node) : found->second;
}

// How near an active device certainly is.
Distance FarNics::nearest(Index host, const PciPlace &gpu) const {
    const auto found = places_.find(host);
    if (found == places_.end())
        return Distance::Far;
    const Places &places = found->second;
    if (places.root_ports.contains(gpu.root_port))
        return Distance::SameSwitch;
    return places.host_bridges.contains(gpu.host_bridge) || places.nodes.contains(gpu.numa_node)
               ? Distance::SameNode
               : Distance::Far;
}

bool FarNics::is_far_by_gpu(const Link &link, std::set<std::string> &names) const {
    if (!link.is_send() || link.qps.empty())
        return false;
    const auto bus_id = gpu_of(link);
    const PciPlace *gpu = bus_id ? place_of_gpu(link, *bus_id) : nullptr;
    if (gpu == nullptr)
        return false;
    const Index host = model_.sessions[link.session].host;
    const Distance least = nearest(host, *gpu);
    bool is_far = false;
    for (const Index qp : link.qps) {
        const Index index = model_.qps[qp].device;
        if (index == NONE || model_.devices[index].is_software() ||
            least_distance(*gpu, place_of(model_.devices[index])) <= least)
            continue;
        names.insert(fmt::format("{} {} (GPU {})", model_.hosts[host].name,
                                 model_.devices[index].name, bus_id_text(*bus_id)));
        is_far = true;
    }
    return is_far;
}

bool FarNics::is_far_by_cpus(const Link &link, std::set<std::string> &names) const {
    if (!link.is_send() || link.qps.empty())
        return false;
    const model::Qp &qp = model_.qps[link.qps.front()];
    if (qp.process == NONE || qp.device == NONE)
        return false;
    const std::int32_t node = model_.processes[qp.process].numa_node;
    const model::Device &device = model_.devices[qp.device];
    const auto nodes = nodes_.find(qp.host);
    if (node < 0 || device.numa_node < 0 || device.numa_node == node || nodes == nodes_.end() ||
        !nodes->second.contains(node))
        return false;
    const auto bus_id = gpu_of(link);
    if (!bus_id || place_of_gpu(link, *bus_id) != nullptr)
        return false;
    names.insert(fmt::format("{} {}", model_.hosts[qp.host].name, device.name));
    return true;
}

} // namespace collwire::nccl
