// SPDX-License-Identifier: Apache-2.0
// A node with GPUs and RDMA devices at places of their own, and ranks that send from there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collwire/nccl_connection_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "tests/support/nccl_builder.h"

namespace collwire::test {

struct Nic {
    std::string_view address; // "0000:17:00.0"
    std::string_view path;    // empty: no record of its place
    std::int32_t numa_node = 0;
    std::uint32_t port_state = 4; // active
    std::uint32_t flags = 0;      // enum cw_device_flags
};

// 0000:BUS:00.0
[[nodiscard]] constexpr std::uint64_t bus_id_of(std::uint64_t bus) {
    return bus << 12U;
}

class GpuNode {
public:
    GpuNode() = default;

    // mlx5_0, mlx5_1 ...
    GpuNode &nic(const Nic &nic) {
        auto device = make_record<cw_device>(CW_KIND_DEVICE, seconds(10));
        device.dev_index = n_nics_++;
        device.flags = nic.flags;
        device.numa_node = nic.numa_node;
        device.n_ports = 1;
        set_text(device.name, "mlx5_" + std::to_string(device.dev_index));
        set_text(device.pci_address, nic.address);
        node_.add(device);
        cw_port port = node_.port_record(10, device.dev_index);
        port.state = nic.port_state;
        node_.add(port);
        if (!nic.path.empty())
            node_.pci_function(nic.address, nic.path, nic.numa_node, 0x020700);
        return *this;
    }
    GpuNode &gpu(std::string_view address, std::string_view path, std::int32_t numa_node = 0) {
        node_.pci_function(address, path, numa_node);
        return *this;
    }
    // A process on CPUs of one node.
    GpuNode &process(std::int32_t numa_node, std::uint32_t pid = 100) {
        auto process = make_record<cw_process>(CW_KIND_PROCESS, seconds(10));
        process.pid = pid;
        process.start_boottime_ns = 5 * NS;
        process.numa_node = numa_node;
        node_.add(process);
        return *this;
    }
    GpuNode &rank(const RankOptions &options) {
        NcclBuilder(node_, options).comm();
        return *this;
    }
    // A connection of that rank over one queue pair of each of these devices. `flags`: as
    // NcclBuilder::connection has them; `comm` 0: what another rank's proxy has for it.
    GpuNode &sends(const RankOptions &options, const std::vector<std::uint32_t> &nics,
                   std::uint32_t flags = 0, bool is_send = true) {
        auto connection =
            make_record<cw_nccl_connection>(CW_KIND_NCCL_CONNECTION, seconds(11.5), 0);
        connection.tgid = options.pid;
        connection.comm = options.comm;
        connection.connection = SENDS_AT + 0x1000ULL * next_qpn_;
        connection.net_comm = connection.connection + 0x100;
        connection.transport = CW_NCCL_TRANSPORT_IB;
        connection.flags = flags | (is_send ? std::uint32_t{CW_NCCL_CONNECTION_SEND} : 0U) |
                           CW_NCCL_CONNECTION_GDR;
        connection.rank = options.rank;
        connection.peer = options.n_ranks - 1;
        for (const std::uint32_t nic : nics) {
            node_.qp({.qpn = next_qpn_, .pid = options.pid, .dev_index = nic});
            cw_nccl_endpoint &endpoint = connection.endpoints[connection.n++];
            endpoint.number = next_qpn_++;
            endpoint.role = is_send ? CW_NCCL_ROLE_DATA : CW_NCCL_ROLE_CLEAR_TO_SEND;
        }
        connection.n_endpoints = connection.n;
        node_.add(connection);
        return *this;
    }
    [[nodiscard]] std::vector<std::byte> bytes() { return node_.clock(20).end().bytes(); }
    [[nodiscard]] NodeBuilder &node() { return node_; }

private:
    NodeBuilder node_{{.flags = NCCL_NODE_FLAGS}};
    std::uint32_t n_nics_ = 0;
    std::uint32_t next_qpn_ = 17;
};

// Sends over a device that is on another NUMA node than its GPU; another one shares its switch.
[[nodiscard]] inline std::vector<std::vector<std::byte>> far_nic_job() {
    const RankOptions rank{.bus_id = bus_id_of(0x03)};
    GpuNode node;
    node.gpu("0000:03:00.0", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0")
        .nic({"0000:04:00.0", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0"})
        .nic({"0000:81:00.0", "pci0000:80/0000:80:01.0/0000:81:00.0", 1})
        .rank(rank)
        .sends(rank, {1});
    return {node.bytes()};
}

} // namespace collwire::test
