// SPDX-License-Identifier: Apache-2.0
// The places of GPUs, other accelerators and RDMA devices of a node, from /sys/bus/pci. `root` goes
// before every path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collwire/node_records.h"
#include "userspace/inventory/rdma_devices.h"

namespace collwire::inventory {

// By address; record times are 0.
std::vector<cw_pci_function> read_pci_functions(const std::string &root,
                                                const std::vector<RdmaDevice> &devices);

// The target of a link of /sys/bus/pci/devices, from the host bridge on; empty if it has another
// form.
std::string_view pci_path(std::string_view link_target);

} // namespace collwire::inventory
