// SPDX-License-Identifier: Apache-2.0
// The rows of one run that are compared with those of another. Operations are kept in few bytes:
// a run may have millions.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "correlate/rows/nccl_rows.h"
#include "correlate/rows/network_rows.h"
#include "correlate/rows/recording_rows.h"
#include "correlate/rows/row_store.h"
#include "correlate/rows/totals_rows.h"
#include "correlate/rows/verdict_rows.h"

namespace collwire::against {

// What NCCL chose for an operation; empty, 0: not known.
struct Choice {
    std::string algorithm;
    std::string protocol;
    std::uint64_t channels = 0;

    auto operator<=>(const Choice &) const = default;
    [[nodiscard]] bool is_known() const { return !algorithm.empty() || !protocol.empty(); }
};

struct CalledOperation {
    std::uint64_t comm = 0;
    std::uint32_t op = 0;                 // in RunRows::op_names()
    std::uint32_t choice = 0;             // in RunRows::choices()
    std::uint64_t called_realtime_ns = 0; // 0: not known
    std::optional<std::uint64_t> size_bytes, payload_bytes;
    std::optional<std::uint64_t> least_ns, most_ns;
    // From the first to the last call; the most that it can be, where the last one is not certain.
    std::optional<std::uint64_t> spread_ns, most_spread_ns;
    std::int64_t last_rank = -1; // -1: not known
    rows::Certainty certainty = rows::Certainty::Process;
    std::optional<rows::ByteSource> byte_source;
    bool is_partial = false;
};

class RunRows : public rows::RowSink {
public:
    void put_cells(const rows::TableInfo &table, std::span<const rows::Cell> cells) override;

    template <typename Row> [[nodiscard]] const std::vector<Row> &of() const {
        return store_.of<Row>();
    }
    [[nodiscard]] const std::vector<CalledOperation> &operations() const { return operations_; }
    [[nodiscard]] const std::vector<std::string> &op_names() const { return op_names_; }
    [[nodiscard]] const std::vector<Choice> &choices() const { return choices_; }
    // null: the communicator is in no row.
    [[nodiscard]] const rows::CommunicatorRow *communicator(std::uint64_t comm) const;

private:
    void add(const rows::OperationRow &row);

    rows::RowStore<rows::HostRow, rows::CaptureRow, rows::SourceRow, rows::LossRow,
                   rows::ClockDifferenceRow, rows::TierRow, rows::ErrorRow, rows::EventRow,
                   rows::CommunicatorRow, rows::RankRow, rows::ParameterRow, rows::FlowRow,
                   rows::QpRow, rows::SocketRow, rows::DeviceRow, rows::PortRow>
        store_;
    std::vector<CalledOperation> operations_;
    std::vector<std::string> op_names_;
    std::vector<Choice> choices_;
    std::map<std::string, std::uint32_t> op_numbers_;
    std::map<Choice, std::uint32_t> choice_numbers_;
};

} // namespace collwire::against
