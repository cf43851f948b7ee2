// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "userspace/netlink/attributes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    // Netlink messages are aligned to 4 bytes; the fuzzer's input need not be.
    std::vector<std::byte> message(size);
    if (size != 0)
        std::memcpy(message.data(), data, size);
    (void)collwire::netlink::parse_device(message);
    (void)collwire::netlink::parse_port(message);
    std::vector<collwire::netlink::NetlinkQp> qps;
    (void)collwire::netlink::parse_qps(message, qps);
    (void)collwire::netlink::parse_optional_counters(message);
    (void)collwire::netlink::parse_system_mode(message);
    (void)collwire::netlink::parse_driver_id(message);
    return 0;
}
