// SPDX-License-Identifier: Apache-2.0
// Decodes the attributes of RDMA netlink answers (nldev). No socket here: every function takes the
// bytes after struct nlmsghdr. Source of the layout: linux rdma/rdma_netlink.h and
// drivers/infiniband/core/nldev.c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace collwire::netlink {

struct NetlinkDevice {
    std::uint32_t dev_index = 0;
    std::string name;
    std::uint32_t n_ports = 0;
    std::string firmware;
    std::optional<std::uint64_t> node_guid; // host byte order
    std::string protocol;                   // "ib", "roce", "iw"...; empty before 5.3
    // enum rdma_driver_id; absent where the driver binds by PCI id instead (mlx5 among them)
    std::optional<std::uint32_t> driver_id;
};

struct NetlinkPort {
    std::uint32_t dev_index = 0;
    std::uint32_t port = 0;
    std::optional<std::uint64_t> subnet_prefix; // host byte order
    std::optional<std::uint32_t> lid;
    std::optional<std::uint32_t> sm_lid;
    std::optional<std::uint32_t> state;      // enum ib_port_state
    std::optional<std::uint32_t> phys_state; // as the phys_state file numbers it
    std::uint32_t ifindex = 0;               // of the netdev, 0: none in this network namespace
    std::string netdev;
};

struct NetlinkQp {
    std::uint32_t dev_index = 0;
    std::string device;
    std::uint32_t lqpn = 0;
    std::optional<std::uint32_t> port;
    std::optional<std::uint32_t> rqpn; // RC, UC and XRC only
    std::optional<std::uint32_t> rq_psn;
    std::optional<std::uint32_t> sq_psn;
    std::optional<std::uint32_t> pdn;
    std::uint8_t type = 0xff;         // enum ib_qp_type; 0xff: the answer did not say
    std::uint8_t state = 0xff;        // enum ib_qp_state; 0xff: the answer did not say
    std::optional<std::uint32_t> pid; // in the pid namespace of the reader; absent: see kernel_name
    std::string kernel_name;          // the kernel's user of the QP; empty for those of processes
};

// A counter that the driver maintains only on request (mlx5: rdma_tx_bytes ...).
struct OptionalCounter {
    std::string name;
    bool enabled = false;
};

struct SystemMode {
    bool netns_shared = true; // false: each network namespace sees only its own RDMA devices
};

using AttributeBytes = std::span<const std::byte>;

// Each returns BadInput if the bytes are not an attribute list or a needed attribute is missing.
Result<NetlinkDevice> parse_device(AttributeBytes bytes);
Result<NetlinkPort> parse_port(AttributeBytes bytes);
// Appends the queue pairs of one message of a dump.
Result<void> parse_qps(AttributeBytes bytes, std::vector<NetlinkQp> &qps);
Result<std::vector<OptionalCounter>> parse_optional_counters(AttributeBytes bytes);
Result<SystemMode> parse_system_mode(AttributeBytes bytes);
// The enum rdma_driver_id of a GET_CHARDEV answer, if it has one.
Result<std::optional<std::uint32_t>> parse_driver_id(AttributeBytes bytes);

} // namespace collwire::netlink
