// SPDX-License-Identifier: Apache-2.0
// How NET/IB posts the messages of a connection: on how many queue pairs each, and when as two
// requests. From the process's NCCL parameters and its devices.
//
// NCCL net_ib.cc, ncclIbMultiSend, and ncclIbInitDevices and ncclIbConnect for adaptive routing;
// the same from 2.24 to 2.32.
#pragma once

#include <optional>
#include <unordered_map>

#include "correlate/model/model.h"
#include "correlate/nccl/nccl_facts.h"
#include "correlate/nccl/op_messages.h"

namespace collwire::nccl {

// Needs the link's queue pairs. Absent: not known.
[[nodiscard]] std::optional<MessageRules> message_rules(const model::Model &model,
                                                        const Link &link);

// Adds the packets of operations to NcclFacts::packets.
class PacketsOfOperations {
public:
    explicit PacketsOfOperations(model::Model &model) : model_(model) {}

    // Their index. NONE: not over NET/IB, or not known.
    [[nodiscard]] Index of(Index link, const OpFacts &facts);

private:
    model::Model &model_;
    std::unordered_map<Index, std::optional<MessageRules>> rules_; // by link
};

} // namespace collwire::nccl
