// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/pci_place.h"

#include "collwire/node_records.h"
#include "correlate/capture/reader.h"
#include "correlate/model/ingest.h"

namespace collwire::model {

PciPlace pci_place(std::string_view path, std::int32_t numa_node) {
    PciPlace place;
    place.numa_node = numa_node < 0 ? -1 : numa_node;
    const std::size_t first = path.find('/');
    place.host_bridge = path.substr(0, first);
    if (first == std::string_view::npos || first == 0)
        return place;
    // The last component is the function itself.
    if (const std::size_t second = path.find('/', first + 1); second != std::string_view::npos)
        place.root_port = path.substr(0, second);
    return place;
}

Distance least_distance(const PciPlace &a, const PciPlace &b) {
    const bool knows_paths = !a.host_bridge.empty() && !b.host_bridge.empty();
    const bool knows_nodes = a.numa_node >= 0 && b.numa_node >= 0;
    const bool is_other_node = knows_nodes && a.numa_node != b.numa_node;
    if (knows_paths ? !a.root_port.empty() && a.root_port == b.root_port : !is_other_node)
        return Distance::SameSwitch;
    if (!is_other_node || (knows_paths && a.host_bridge == b.host_bridge))
        return Distance::SameNode;
    return Distance::Far;
}

void Ingest::add_pci_function(std::span<const std::byte> record) {
    const auto from = capture::record_as<cw_pci_function>(record);
    const std::string address(capture::text_of(from.pci_address));
    auto &places = model_.hosts[session().host].pci_places;
    if (address.empty()) {
        ++model_.captures.back().unusable_records;
        return;
    }
    if (!places.contains(address) && ++n_pci_functions_ > MAX_PCI_FUNCTIONS) {
        ++model_.captures.back().unusable_records;
        ++model_.captures.back().pci_functions_left_out;
        return;
    }
    places[address] = pci_place(capture::text_of(from.path), from.numa_node);
}

} // namespace collwire::model
