// SPDX-License-Identifier: Apache-2.0
// Connections over a device that is not the nearest to the GPU of the sent data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "correlate/model/model.h"

namespace collwire::nccl {

class FarNics {
public:
    // `active`: by host, its devices with an active port.
    FarNics(const model::Model &model, const std::map<Index, std::set<Index>> &active);

    // Whether one of its devices is farther from the GPU than necessary; these are added to
    // `names`.
    [[nodiscard]] bool is_far_by_gpu(const Link &link, std::set<std::string> &names) const;
    // Likewise by the CPUs of the process, if the GPU's place is not known.
    [[nodiscard]] bool is_far_by_cpus(const Link &link, std::set<std::string> &names) const;

private:
    // The active devices of a host.
    struct Places {
        std::set<std::string> root_ports, host_bridges;
        std::set<std::int32_t> nodes;
    };

    [[nodiscard]] std::optional<std::uint64_t> gpu_of(const Link &link) const;
    [[nodiscard]] const model::PciPlace *place_of_gpu(const Link &link, std::uint64_t bus_id) const;
    [[nodiscard]] model::PciPlace place_of(const model::Device &device) const;
    [[nodiscard]] model::Distance nearest(Index host, const model::PciPlace &gpu) const;

    const model::Model &model_;
    std::map<Index, Places> places_;                // by host
    std::map<Index, std::set<std::int32_t>> nodes_; // likewise, all devices
    std::map<std::pair<Index, std::uint32_t>, std::set<std::uint64_t>> gpus_; // by session, process
};

} // namespace collwire::nccl
