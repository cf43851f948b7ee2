// SPDX-License-Identifier: Apache-2.0
// A flow's bytes that belong to no operation, and control traffic.
#pragma once

#include <array>
#include <utility>

#include "correlate/model/model.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

// First transmissions of a queue pair's own sends.
struct Sent {
    Known payload_bytes, wire_bytes;
};
[[nodiscard]] Sent sent_by(const model::Qp &qp);

// By the tiers of its queue pairs: payload, wire bytes.
[[nodiscard]] std::array<std::pair<std::uint64_t, std::uint64_t>, model::TIERS>
by_tier(const Link &link, std::uint64_t payload_bytes, std::uint64_t wire_bytes);
void add_to_matrix(NcclFacts &nccl, const Link &link, Index comm, std::int32_t source,
                   std::int32_t destination, std::uint64_t payload_bytes, const Known &wire_bytes);

void account_control(model::Model &model);

} // namespace collwire::nccl
