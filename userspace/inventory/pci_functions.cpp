// SPDX-License-Identifier: Apache-2.0
#include "userspace/inventory/pci_functions.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/set_text.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/inventory/files.h"
#include "userspace/inventory/netdevs.h"

namespace collwire::inventory {
namespace {

// Without the programming interface: VGA, 3D controller, processing accelerator.
constexpr std::array<std::uint64_t, 3> gpu_classes = {0x0300, 0x0302, 0x1200};
constexpr std::uint64_t max_class_code = 0xffffff;
constexpr std::uint64_t max_vendor = 0xffff;

bool is_gpu(std::uint64_t class_code) {
    return std::find(gpu_classes.begin(), gpu_classes.end(), class_code >> 8) != gpu_classes.end();
}

// "pci0000:00"
bool is_host_bridge(std::string_view name) {
    if (!name.starts_with("pci"))
        return false;
    const auto parts = split(name.substr(3), ':');
    return parts.size() == 2 && parse_number(parts[0], 16) && parse_number(parts[1], 16);
}

// 0: not known.
std::uint32_t number_in(const std::string &path, std::uint64_t limit) {
    const auto number = read_number(path);
    return number && *number <= limit ? static_cast<std::uint32_t>(*number) : 0;
}

cw_pci_function read_function(const std::string &directory, const std::string &address,
                              std::uint32_t class_code) {
    cw_pci_function function{};
    function.header = {sizeof(function), CW_KIND_PCI_FUNCTION, CW_CPU_USERSPACE, 0};
    function.vendor = number_in(directory + "/vendor", max_vendor);
    function.class_code = class_code;
    function.numa_node = read_numa_node(directory);
    set_text(function.pci_address, address);
    const std::string target = read_link(directory).value_or("");
    // Truncated, it would name another function.
    if (const std::string_view path = pci_path(target); path.size() < sizeof(function.path))
        set_text(function.path, path);
    return function;
}

} // namespace

std::string_view pci_path(std::string_view link_target) {
    std::size_t end = link_target.size();
    while (true) {
        const std::size_t slash = link_target.substr(0, end).rfind('/');
        const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
        const std::string_view name = link_target.substr(begin, end - begin);
        if (is_host_bridge(name))
            return end == link_target.size() ? std::string_view() : link_target.substr(begin);
        if (pci_address_or_empty(std::string(name)).empty() || begin == 0)
            return {};
        end = slash;
    }
}

std::vector<cw_pci_function> read_pci_functions(const std::string &root,
                                                const std::vector<RdmaDevice> &devices) {
    std::set<std::string> of_rdma;
    for (const RdmaDevice &device : devices)
        of_rdma.insert(device.record.pci_address);
    std::vector<cw_pci_function> functions;
    const std::string bus = root + "/sys/bus/pci/devices/";
    for (const std::string &address : list_directory(bus)) {
        const std::uint32_t class_code = number_in(bus + address + "/class", max_class_code);
        if ((is_gpu(class_code) || of_rdma.contains(address)) &&
            !pci_address_or_empty(address).empty())
            functions.push_back(read_function(bus + address, address, class_code));
    }
    return functions;
}

} // namespace collwire::inventory
