// SPDX-License-Identifier: Apache-2.0
// One look at the NVLinks of this machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace collwire::nvidia {

struct NvlinkLook {
    enum class Outcome : std::uint8_t { NoLibrary, Failed, NoAnswer, Listed };
    struct Gpu {
        std::string pci_address;
        std::string name;
        std::uint32_t links = 0;
        std::uint32_t active_links = 0;
        bool has_state = false; // of its links
        bool has_bytes = false; // a byte counter is measured
    };
    Outcome outcome = Outcome::NoLibrary;
    std::string problem;
    std::vector<Gpu> gpus;
};

// Waits `most` for NVML, in a process of its own.
[[nodiscard]] NvlinkLook look_at_nvlink(const std::string &library = "libnvidia-ml.so.1",
                                        std::chrono::milliseconds most = std::chrono::seconds{10});

// "0000:1b:00.0"
[[nodiscard]] std::string pci_address_of(std::uint64_t bus_id);

} // namespace collwire::nvidia
