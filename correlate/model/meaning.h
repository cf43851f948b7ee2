// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace collwire::model {

// What it means if a port counter grows.
enum class CounterMeaning : std::uint8_t {
    None,
    PathLoss,    // frames, or the answers to them, were lost beyond the port
    PortErrors,  // the port itself had receive or send errors
    CarrierDown, // the carrier was lost
};

// By the names of mlx5, bnxt_re, irdma, efa, rdma_rxe, of the InfiniBand port counters and of
// network interfaces.
[[nodiscard]] CounterMeaning meaning_of(std::string_view counter_name);

} // namespace collwire::model
