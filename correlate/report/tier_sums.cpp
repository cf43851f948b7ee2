// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/tier_sums.h"

#include "correlate/report/names.h"

namespace collwire::report {

using model::Known;
using topology::Tier;

namespace {

// Bytes outside queue pairs were, or may have been, sent there.
bool has_tcp(const model::Sums &sums) {
    return sums.tcp.tx_payload_bytes.value_or(0) != 0 || sums.tcp.connections_without_bytes != 0;
}

} // namespace

std::array<model::Sums, model::TIERS> tier_sums(const model::Model &model) {
    // 0 means that nothing was sent there, so all sent bytes have to be known for it.
    const bool saw_all = model.watched_queue_pairs() && model.total.qps_without_bytes == 0;
    const model::Sums &unknown = model.tiers[model::index_of(Tier::Unknown)];
    const bool placed_all = model.has_topology && unknown.tx_wire_bytes.value_or(0) == 0 &&
                            unknown.tx_payload_bytes.value_or(0) == 0 && !has_tcp(unknown);
    std::array<model::Sums, model::TIERS> tiers = model.tiers;
    for (const Tier tier : ALL_TIERS) {
        model::Sums &sums = tiers[model::index_of(tier)];
        const bool of_fabric = tier != Tier::Self && tier != Tier::Unknown;
        const bool is_known = saw_all && (!of_fabric || placed_all) && !has_tcp(sums);
        for (Known *bytes : {&sums.tx_wire_bytes, &sums.tx_payload_bytes})
            if (bytes->value_or(0) == 0)
                *bytes = is_known ? Known(0) : Known();
    }
    return tiers;
}

} // namespace collwire::report
