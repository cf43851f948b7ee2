// SPDX-License-Identifier: Apache-2.0
#include "correlate/against/run_rows.h"

namespace collwire::against {
namespace {

template <typename Value>
std::uint32_t number_of(const Value &value, std::map<Value, std::uint32_t> &numbers,
                        std::vector<Value> &values) {
    const auto [found, is_new] =
        numbers.try_emplace(value, static_cast<std::uint32_t>(values.size()));
    if (is_new)
        values.push_back(value);
    return found->second;
}

} // namespace

void RunRows::put_cells(const rows::TableInfo &table, std::span<const rows::Cell> cells) {
    if (&table == &rows::TABLE_INFO<rows::OperationRow>)
        return add(rows::row_from<rows::OperationRow>(cells));
    store_.put_cells(table, cells);
}

void RunRows::add(const rows::OperationRow &row) {
    CalledOperation &operation = operations_.emplace_back();
    operation.comm = row.comm;
    operation.op =
        number_of(row.kind == rows::OperationKind::Pair ? std::string("SendRecv") : row.op,
                  op_numbers_, op_names_);
    operation.choice = number_of(Choice{.algorithm = row.algorithm.value_or(""),
                                        .protocol = row.protocol.value_or(""),
                                        .channels = row.channels.value_or(0)},
                                 choice_numbers_, choices_);
    operation.called_realtime_ns =
        row.called_realtime_ns.value_or(row.first_launch_realtime_ns.value_or(0));
    operation.size_bytes = row.size_bytes;
    operation.payload_bytes = row.tx_payload_bytes;
    operation.least_ns = row.least_duration_ns;
    operation.most_ns = row.most_duration_ns;
    operation.spread_ns = row.last_call_after_first_ns;
    operation.most_spread_ns = row.calls_within_ns;
    operation.last_rank = row.last_rank.value_or(-1);
    operation.certainty = row.certainty;
    operation.byte_source = row.byte_source;
    operation.is_partial = row.is_partial;
}

const rows::CommunicatorRow *RunRows::communicator(std::uint64_t comm) const {
    for (const rows::CommunicatorRow &row : of<rows::CommunicatorRow>())
        if (row.comm == comm)
            return &row;
    return nullptr;
}

} // namespace collwire::against
