// SPDX-License-Identifier: Apache-2.0
// Any bytes as a topology file: refused with a reason, or a topology that can be asked anything.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "correlate/topology/topology.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    using namespace collwire::topology;
    Limits limits;
    limits.ports = 20'000;
    limits.switches = 10'000;
    limits.uplinks = 100'000;
    limits.text_bytes = 16U << 20;
    limits.paths = 1'000'000;
    const auto checked = check_topology({reinterpret_cast<const char *>(data), size}, limits);
    if (!checked.topology) {
        if (checked.problems.first_error().empty())
            __builtin_trap();
        return 0;
    }
    const Topology &topology = *checked.topology;
    if (topology.port_count() > limits.ports || topology.switch_count() > limits.switches)
        __builtin_trap();
    for (std::uint32_t i = 0; i < topology.port_count(); i++) {
        const Port port = topology.port({i});
        if (!port.host.empty() && !port.device.empty()) {
            const auto found = topology.find_local(port.host, port.device, port.port);
            if (!found || found->index != i)
                __builtin_trap();
        }
        (void)topology.find_remote(
            {.gid = port.gid, .lid = port.lid, .ip = port.ip, .mac = port.mac});
        const PortRef next{static_cast<std::uint32_t>((i + 1) % topology.port_count())};
        const Tier forth = topology.classify({i}, next, SameHost::ByFabric);
        if (forth != topology.classify(next, {i}, SameHost::ByFabric))
            __builtin_trap();
    }
    return 0;
}
