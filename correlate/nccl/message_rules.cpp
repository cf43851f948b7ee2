// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/message_rules.h"

#include <algorithm>
#include <string_view>

#include "collwire/nccl_connection_records.h"
#include "collwire/node_records.h"
#include "correlate/nccl/describe.h"

namespace collwire::nccl {

using model::Model;
using model::Qp;

namespace {

// NCCL's defaults.
constexpr std::int64_t QPS_OF_A_CONNECTION = 1;
constexpr std::int64_t APART_ABOVE_BYTES = 8192;
// A parameter that is not set. NCCL_IB_ADAPTIVE_ROUTING: as the link layer has it;
// NCCL_IB_AR_THRESHOLD from 2.30 on: the default.
constexpr std::int64_t NOT_SET = -2;
constexpr std::size_t MAX_PARTS = 128;

// Whether NCCL expects adaptive routing on the port. Absent: not known.
std::optional<bool> is_adaptive(const Model &model, const Qp &qp,
                                std::optional<std::int64_t> parameter) {
    if (parameter && *parameter != NOT_SET)
        return *parameter != 0;
    if (qp.port == NONE)
        return std::nullopt;
    if (model.ports[qp.port].link_layer == CW_LINK_ETHERNET)
        return false;
    return parameter && model.ports[qp.port].link_layer == CW_LINK_INFINIBAND ? std::optional(true)
                                                                              : std::nullopt;
}

} // namespace

std::optional<MessageRules> message_rules(const Model &model, const Link &link) {
    const auto parameter = [&](std::string_view name) {
        return parameter_of(model.nccl, link.session, link.tgid, name);
    };
    // Receivers do not tell how their senders post.
    MessageRules rules;
    if (!link.is_send())
        return rules;
    if (link.is_cut_short || link.qps.empty() || link.qps.size() > MAX_PARTS)
        return std::nullopt;
    if (link.qps.size() > 1) {
        const auto splits = parameter("IbSplitDataOnQps");
        const std::int64_t of_connection =
            std::max<std::int64_t>(parameter("IbQpsPerConn").value_or(QPS_OF_A_CONNECTION), 1);
        const auto n_qps = static_cast<std::int64_t>(link.qps.size());
        // Else each message is split over one queue pair of each device.
        if (!splits || (*splits == 0 && n_qps % of_connection != 0))
            return std::nullopt;
        rules.parts = static_cast<std::uint32_t>(*splits != 0 ? n_qps : n_qps / of_connection);
    }
    // Then out-of-order receives may do without the second request.
    if (parameter("IbOooRq").value_or(0) != 0)
        return std::nullopt;
    // On all of its devices, or not at all.
    bool is_adaptive_everywhere = true;
    for (const Index qp : link.qps) {
        const auto adaptive = is_adaptive(model, model.qps[qp], parameter("IbAdaptiveRouting"));
        if (!adaptive)
            return std::nullopt;
        is_adaptive_everywhere = is_adaptive_everywhere && *adaptive;
    }
    if (is_adaptive_everywhere) {
        const std::int64_t above_bytes = parameter("IbArThreshold").value_or(NOT_SET);
        rules.apart_above_bytes = static_cast<std::uint64_t>(
            above_bytes == NOT_SET ? APART_ABOVE_BYTES : std::max<std::int64_t>(above_bytes, 0));
    }
    return rules;
}

Index PacketsOfOperations::of(Index link, const OpFacts &facts) {
    if (model_.nccl.links[link].transport != CW_NCCL_TRANSPORT_IB)
        return NONE;
    const auto [rules, is_new] = rules_.try_emplace(link);
    if (is_new)
        rules->second = message_rules(model_, model_.nccl.links[link]);
    if (!rules->second)
        return NONE;
    const auto packets = derive_message_packets(facts, *rules->second);
    if (!packets)
        return NONE;
    model_.nccl.packets.push_back(*packets);
    return static_cast<Index>(model_.nccl.packets.size() - 1);
}

} // namespace collwire::nccl
