// SPDX-License-Identifier: Apache-2.0
// Queries the kernel's RDMA netlink family. No query needs a privilege or changes a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "userspace/netlink/attributes.h"

struct nl_sock;

namespace collwire::netlink {

class RdmaNetlink {
public:
    // Unsupported: this kernel has no RDMA netlink (ib_core is not loaded, or not built).
    static Result<RdmaNetlink> open();

    // Every RDMA device of this network namespace, with its driver if the kernel gives it.
    Result<std::vector<NetlinkDevice>> devices();
    Result<std::vector<NetlinkPort>> ports(std::uint32_t dev_index);
    // Every queue pair of a device. The kernel runs ib_query_qp for each one in the calling thread:
    // on hardware that is a firmware command of some 100 us, so call it once and not every second.
    // A dump of several messages continues by position, so a QP destroyed in between hides another:
    // then the dump is repeated until it has no new number, and the union is returned.
    Result<std::vector<NetlinkQp>> dump_qps(std::uint32_t dev_index);
    // Unsupported before 5.16, and for devices without port counters.
    Result<std::vector<OptionalCounter>> optional_counters(std::uint32_t dev_index,
                                                           std::uint32_t port);
    Result<SystemMode> system_mode();

private:
    struct Close {
        void operator()(nl_sock *socket) const;
    };
    struct Request;
    using OnAnswer = std::function<Result<void>(AttributeBytes bytes)>;
    struct Answered {
        std::size_t messages = 0;
        bool interrupted = false; // the kernel says that the dump raced with a change
    };

    explicit RdmaNetlink(nl_sock *socket) : socket_(socket) {}
    Result<Answered> ask(const Request &request, const OnAnswer &on_answer);

    std::unique_ptr<nl_sock, Close> socket_;
};

// Names of enum ib_qp_type and enum ib_qp_state as the `rdma` tool prints them; "unknown"
// otherwise.
std::string_view qp_type_name(std::uint8_t type);
std::string_view qp_state_name(std::uint8_t state);

// Opens a socket, asks, closes it.
Result<std::vector<NetlinkQp>> dump_qps(std::uint32_t dev_index);

} // namespace collwire::netlink
