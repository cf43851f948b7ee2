// SPDX-License-Identifier: Apache-2.0
#include "correlate/tabulate/rows_of_waiting.h"

#include "correlate/nccl/describe.h"
#include "correlate/nccl/waiting.h"
#include "correlate/rows/waiting_rows.h"
#include "correlate/tabulate/convert.h"

namespace collwire::tabulate {

namespace {

rows::WaitingRow waiting_row(const nccl::WaitingTimes &times, std::uint64_t number) {
    rows::WaitingRow row;
    row.waiting = number;
    row.comm = times.comm;
    row.op = nccl::func_text(times.func);
    row.size_bytes = times.size_bytes;
    row.algorithm = if_any(nccl::algorithm_text(times.algorithm));
    row.protocol = if_any(nccl::protocol_text(times.protocol));
    row.waited = times.for_rank;
    row.transferred = times.for_the_rest;
    row.unclear = times.unclear;
    const nccl::BoundedPercentiles &spread = times.spread, &transfer = times.transfer;
    row.spreads = spread.n;
    row.least_p50_spread_ns = only_if(spread.n != 0, spread.least_p50_ns);
    row.most_p50_spread_ns = only_if(spread.n != 0, spread.most_p50_ns);
    row.least_p95_spread_ns = only_if(spread.n != 0, spread.least_p95_ns);
    row.most_p95_spread_ns = only_if(spread.n != 0, spread.most_p95_ns);
    row.transfers = transfer.n;
    row.least_p50_transfer_ns = only_if(transfer.n != 0, transfer.least_p50_ns);
    row.most_p50_transfer_ns = only_if(transfer.n != 0, transfer.most_p50_ns);
    row.least_p95_transfer_ns = only_if(transfer.n != 0, transfer.least_p95_ns);
    row.most_p95_transfer_ns = only_if(transfer.n != 0, transfer.most_p95_ns);
    row.sum_waited_ns = times.sum_waited_ns;
    return row;
}

} // namespace

void rows_of_waiting(const model::Model &model, const nccl::LastCalls &last_calls,
                     rows::RowSink &sink) {
    std::uint64_t number = 0;
    for (const nccl::WaitingTimes &times : nccl::find_waiting(model, last_calls)) {
        rows::put(sink, waiting_row(times, number));
        for (const auto &[rank, operations] : times.last_ranks)
            rows::put(sink, rows::WaitingRankRow{number, rank, operations});
        ++number;
    }
}

} // namespace collwire::tabulate
