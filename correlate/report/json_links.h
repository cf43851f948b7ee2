// SPDX-License-Identifier: Apache-2.0
// Connections of NCCL operations with their devices and sockets.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "correlate/report/json_sections.h"

namespace collwire::report {

// Adds the connection's `comm`, `rank`, `peer_rank`, `channel` or `channels`; nulls if `link` is
// null.
void add_link(Json &json, const nccl::NcclFacts &nccl, const nccl::Link *link);
// Each with its channel.
[[nodiscard]] std::vector<std::pair<std::int32_t, Json>> nics_json(const model::Model &model,
                                                                   const nccl::Link &link);
// conn_index of a connection in Gathered.
[[nodiscard]] Json connection_number(const model::Model &model, model::Index connection);
[[nodiscard]] Json socket_ends_json(const model::Model &model, model::Index socket);
[[nodiscard]] Json socket_json(const model::Model &model, model::Index socket);
// Payload of its operations.
[[nodiscard]] Json tiers_of_communicator(const model::Model &model, model::Index comm);

} // namespace collwire::report
