// SPDX-License-Identifier: Apache-2.0
// Names of enum values, and the row order of all outputs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "correlate/model/model.h"

namespace collwire::report {

[[nodiscard]] std::string_view rung_name(model::BytesRung rung); // "none", "posted", "wire"
[[nodiscard]] std::string_view pairing_name(model::Pairing pairing);
[[nodiscard]] std::string_view capture_end_name(model::CaptureEnd end);
[[nodiscard]] std::string qp_type_text(std::uint8_t type); // "RC", "UD", ...; "unknown"
// "python3 train.py": a short name for people.
[[nodiscard]] std::string process_title(const model::Process &process);
// "slurm 4711.0", "pod <uid>", "container 0123456789ab"; empty: of none.
[[nodiscard]] std::string job_title(const model::Process &process);

// In the order of every output.
inline constexpr std::array ALL_TIERS = {topology::Tier::Self, topology::Tier::Leaf,
                                         topology::Tier::Spine, topology::Tier::Superspine,
                                         topology::Tier::Unknown};

// From the start of the first recording to the end of the last, by the realtime clocks of their
// hosts; absent without a recording.
struct Window {
    std::uint64_t begin_ns = UINT64_MAX;
    std::uint64_t end_ns = 0;
};
[[nodiscard]] std::optional<Window> window_of(const model::Model &model);

// By name; ports by host, device and number.
[[nodiscard]] std::vector<model::Index> hosts_in_order(const model::Model &model);
[[nodiscard]] std::vector<model::Index> ports_in_order(const model::Model &model);
// NCCL's sockets in the recordings that count: by host, process and local port.
[[nodiscard]] std::vector<model::Index> sockets_in_order(const model::Model &model);

} // namespace collwire::report
