// SPDX-License-Identifier: Apache-2.0
// With whom a queue pair is connected, as the memory of its process says.
#pragma once

#include <array>
#include <cstdint>

namespace collwire::source {

struct QueuePairPath {
    std::uint32_t tgid = 0;
    std::uint32_t qpn = 0;
    std::uint64_t address = 0; // of struct ibv_qp in the process
    bool is_ethernet = false;
    std::array<std::uint8_t, 16> remote_gid{};
    std::uint32_t remote_lid = 0; // 0 on Ethernet
    // enum ib_mtu. The path has this one, or that of the local port if that is less.
    std::uint8_t mtu = 0;
    std::array<std::uint8_t, 16> local_gid{}; // zeroes: not known
    std::int32_t local_gid_index = -1;        // -1: not known
};

} // namespace collwire::source
