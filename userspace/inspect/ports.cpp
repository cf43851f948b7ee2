// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/ports.h"

#include <optional>
#include <string_view>
#include <utility>

#include "collwire/port_records.h"
#include "userspace/inventory/rdma_devices.h"

namespace collwire::inspect {
namespace {

constexpr std::uint64_t OCTETS = 4;

std::map<std::uint32_t, std::uint64_t> read_all(std::vector<inventory::CounterGroup> &groups) {
    std::vector<cw_counter_sample> samples;
    for (inventory::CounterGroup &group : groups)
        group.read(samples);
    std::map<std::uint32_t, std::uint64_t> values;
    for (const cw_counter_sample &sample : samples)
        values.emplace(sample.id, sample.value);
    return values;
}

std::string state_text(std::uint32_t state) {
    switch (state) {
    case 1:
        return "DOWN";
    case 2:
        return "INIT";
    case 3:
        return "ARMED";
    case 4:
        return "ACTIVE";
    default:
        return {};
    }
}

// Where a count of bytes is kept in several places, the port's own is reported.
void put_bytes(Port &port, std::string_view name, std::uint64_t by) {
    const auto put = [by](std::optional<std::uint64_t> &into) { into = by; };
    if (name == "port_xmit_data")
        put(port.tx_bytes);
    else if (name == "port_rcv_data")
        put(port.rx_bytes);
    else if (name == "tx_bytes" && !port.tx_bytes)
        put(port.tx_bytes);
    else if (name == "rx_bytes" && !port.rx_bytes)
        put(port.rx_bytes);
}

} // namespace

PortCounters::PortCounters(const std::string &root) {
    std::uint32_t next_id = 0;
    for (const inventory::RdmaDevice &device :
         scan_rdma_devices(root, inventory::read_netlink_facts(), inventory::GidTables::Skip))
        for (const inventory::RdmaPort &port : device.ports) {
            Opened opened;
            opened.port.device = device.name;
            opened.port.port = port.record.port;
            opened.port.state = state_text(port.record.state);
            opened.port.netdev = port.record.netdev;
            opened.groups =
                inventory::open_port_counters(root, device.name, device.record.dev_index,
                                              port.record.port, port.record.netdev, next_id);
            opened.first = read_all(opened.groups);
            ports_.push_back(std::move(opened));
        }
}

std::vector<Port> PortCounters::changes() {
    std::vector<Port> ports;
    for (Opened &opened : ports_) {
        Port port = opened.port;
        const auto now = read_all(opened.groups);
        for (const inventory::CounterGroup &group : opened.groups)
            for (const cw_counter_def &definition : group.definitions()) {
                const auto before = opened.first.find(definition.id);
                const auto after = now.find(definition.id);
                if (before == opened.first.end() || after == now.end() ||
                    after->second < before->second)
                    continue;
                const std::uint64_t by = after->second - before->second;
                if (definition.unit == CW_UNIT_OCTETS_4)
                    put_bytes(port, definition.name, by * OCTETS);
                else if (definition.unit == CW_UNIT_LINK_BYTES || definition.unit == CW_UNIT_BYTES)
                    put_bytes(port, definition.name, by);
                else if (by != 0)
                    port.changes.push_back({definition.name, by});
            }
        ports.push_back(std::move(port));
    }
    return ports;
}

} // namespace collwire::inspect
