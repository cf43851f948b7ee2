// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include <bpf/bpf.h>
#include <unistd.h>

namespace collwire::test {

// Why no BPF program can be loaded here, found by trying the first thing that loading needs; empty
// if nothing is in the way.
inline std::string no_bpf_because() {
    if (geteuid() != 0)
        return "needs root";
    const int map =
        bpf_map_create(BPF_MAP_TYPE_ARRAY, "collwire_try", sizeof(std::uint32_t), 8, 1, nullptr);
    if (map < 0)
        return std::string{"this machine allows no BPF maps: "} + std::strerror(-map);
    close(map);
    return {};
}

} // namespace collwire::test
