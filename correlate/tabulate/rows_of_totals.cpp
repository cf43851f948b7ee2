// SPDX-License-Identifier: Apache-2.0
#include "correlate/tabulate/rows_of_totals.h"

#include "correlate/report/names.h"
#include "correlate/report/tier_sums.h"
#include "correlate/rows/totals_rows.h"
#include "correlate/tabulate/convert.h"

namespace collwire::tabulate {

using model::Known;
using model::Model;
using model::Sums;
using topology::Tier;

namespace {

// What rows of totals have in common.
template <typename Row> void set_sums(Row &row, const Sums &sums) {
    row.qps = sums.qps;
    row.qps_without_bytes = sums.qps_without_bytes;
    row.tx_wire_bytes = sums.tx_wire_bytes;
    row.tx_payload_bytes = sums.tx_payload_bytes;
    row.derived_tx_payload_bytes = sums.derived_tx_payload_bytes;
    row.tcp_tx_payload_bytes = sums.tcp.tx_payload_bytes;
}

rows::TierRow tier_row(Tier tier, const Sums &sums) {
    rows::TierRow row;
    row.tier = tier_of(tier);
    set_sums(row, sums);
    row.retransmitted_wire_bytes = sums.retransmitted_wire_bytes;
    row.sockets = sums.tcp.sockets;
    row.tcp_derived_tx_payload_bytes = sums.tcp.derived_tx_payload_bytes;
    return row;
}

rows::ProcessRow process_row(const Model &model, const model::ProcessSums &of) {
    const model::Process &process = model.processes[of.process];
    rows::ProcessRow row;
    row.process = of.process;
    row.host = model.hosts[process.host].name;
    row.pid = process.pid;
    row.title = if_any(report::process_title(process));
    row.cmdline = if_any(process.cmdline);
    row.uid = only_if<std::uint64_t>(process.described, process.uid);
    row.slurm_job = if_any(process.slurm_job);
    row.slurm_step = if_any(process.slurm_step);
    row.pod_uid = if_any(process.pod_uid);
    row.container_id = if_any(process.container_id);
    set_sums(row, of.all);
    row.rx_wire_bytes = of.all.rx_wire_bytes;
    row.rx_payload_bytes = of.all.rx_payload_bytes;
    row.tcp_rx_payload_bytes = of.all.tcp.rx_payload_bytes;
    return row;
}

rows::HostPairRow host_pair_row(const model::NodePair &pair, std::uint64_t number) {
    rows::HostPairRow row;
    row.host_pair = number;
    row.src_host = pair.source;
    row.destination = pair.destination;
    row.is_captured = pair.destination_captured;
    set_sums(row, pair.all);
    row.sockets = pair.all.tcp.sockets;
    return row;
}

// A row for each tier with known bytes.
template <typename Make>
void put_tiers(const std::array<Known, model::TIERS> &by_tier, rows::RowSink &sink, Make make) {
    for (const Tier tier : report::ALL_TIERS)
        if (const Known &bytes = by_tier[model::index_of(tier)])
            rows::put(sink, make(tier_of(tier), *bytes));
}

} // namespace

void rows_of_totals(const Model &model, rows::RowSink &sink) {
    const auto tiers = report::tier_sums(model);
    for (const Tier tier : report::ALL_TIERS)
        rows::put(sink, tier_row(tier, tiers[model::index_of(tier)]));
    for (const model::ProcessSums &of : model.process_sums) {
        rows::put(sink, process_row(model, of));
        put_tiers(of.tx_wire_bytes_by_tier, sink, [&](rows::Tier tier, std::uint64_t bytes) {
            return rows::ProcessTierRow{of.process, tier, bytes};
        });
    }
    std::uint64_t number = 0;
    for (const model::NodePair &pair : model.node_pairs) {
        rows::put(sink, host_pair_row(pair, number));
        put_tiers(pair.tx_wire_bytes_by_tier, sink, [&](rows::Tier tier, std::uint64_t bytes) {
            return rows::HostPairTierRow{number, tier, bytes};
        });
        ++number;
    }
    const nccl::Totals &totals = model.nccl.totals;
    if (model.nccl.recorded)
        for (const nccl::Rung rung : {nccl::Rung::Exact, nccl::Rung::Inferred, nccl::Rung::Process})
            rows::put(sink,
                      rows::IdentityRow{certainty_of(rung),
                                        only_if(totals.is_known,
                                                totals.by_rung[static_cast<std::size_t>(rung)])});
}

} // namespace collwire::tabulate
