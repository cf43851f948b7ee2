// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <memory>

#include "correlate/capture/nccl_names.h"
#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/last_calls.h"
#include "correlate/nccl/parts.h"
#include "correlate/report/names.h"
#include "correlate/rows/nccl_rows.h"
#include "correlate/tabulate/convert.h"
#include "correlate/tabulate/kernel_numbers.h"
#include "correlate/tabulate/rows_of_nccl.h"

namespace collwire::tabulate {

using model::Model;
using model::NONE;
using nccl::Instance;
using nccl::Operation;

namespace {

std::string_view local_state_name(nccl::LocalState state) {
    switch (state) {
    case nccl::LocalState::NotRecorded:
        return "not_recorded";
    case nccl::LocalState::NotModelled:
        return "not_modelled";
    case nccl::LocalState::Partial:
        return "partial";
    case nccl::LocalState::Modelled:
        return "modelled";
    case nccl::LocalState::None:
        break;
    }
    return "none";
}

class OperationTabulator {
public:
    OperationTabulator(const Model &model, const nccl::LastCalls &last_calls, bool has_detail,
                       rows::RowSink &sink)
        : model_(model), nccl_(model.nccl), sink_(sink), kernels_(model.nccl.gathered),
          clock_(model), last_calls_(last_calls),
          parts_(has_detail ? std::make_unique<nccl::Parts>(model) : nullptr) {}

    void run() {
        for (const auto *all : {&nccl_.collectives, &nccl_.p2p})
            for (std::size_t place = 0; place < all->size() && !sink_.is_stopped(); ++place)
                add((*all)[place], place, all == &nccl_.p2p);
    }

private:
    void add(const Operation &operation, std::size_t place, bool is_pair);
    void set_call(rows::OperationRow &row, const Operation &operation) const;
    void set_bytes(rows::OperationRow &row, const Operation &operation) const;
    void set_times(rows::OperationRow &row, const Operation &operation) const;
    void add_tiers(const Operation &operation, std::uint64_t number);
    void add_ranks(const Operation &operation, std::uint64_t number);
    [[nodiscard]] std::optional<std::uint64_t> kernel_of(const nccl::OperationCall &call) const;

    const Model &model_;
    const nccl::NcclFacts &nccl_;
    rows::RowSink &sink_;
    KernelNumbers kernels_;
    nccl::CommonClock clock_;
    const nccl::LastCalls &last_calls_;
    std::unique_ptr<nccl::Parts> parts_;
};

void OperationTabulator::set_call(rows::OperationRow &row, const Operation &operation) const {
    row.comm = operation.comm;
    row.seq = operation.seq;
    row.seq_base = nccl::seq_base_name(operation.seq_base);
    row.rank = if_not_negative(operation.rank);
    row.replay = if_index(operation.replay);
    row.op = nccl::func_text(operation.func);
    row.ranks_called = operation.ranks;
    row.differs = operation.has(nccl::OPERATION_DIFFERS);
    row.elements = operation.count;
    row.datatype = nccl::datatype_text(operation.datatype);
    row.algorithm = if_any(nccl::algorithm_text(operation.algorithm));
    row.protocol = if_any(nccl::protocol_text(operation.protocol));
    row.channels = if_not_0(operation.n_channels);
    const bool is_captured = operation.has(nccl::OPERATION_CAPTURED);
    row.is_launched = operation.has(nccl::OPERATION_LAUNCHED);
    row.is_captured = only_if(is_captured || row.is_launched, is_captured);
    row.launched_with = if_not_0(operation.batch);
}

void OperationTabulator::set_bytes(rows::OperationRow &row, const Operation &operation) const {
    const auto if_has = [&](std::uint16_t flag, std::uint64_t value) {
        return only_if(operation.has(flag), value);
    };
    row.size_bytes = nccl::size_bytes(operation);
    row.data_bytes = if_has(nccl::OPERATION_DATA_KNOWN, operation.data_bytes);
    row.tx_payload_bytes = if_has(nccl::OPERATION_PAYLOAD_KNOWN, operation.payload_bytes);
    row.tx_wire_bytes = if_has(nccl::OPERATION_WIRE_KNOWN, operation.wire_bytes);
    row.certainty = certainty_of(operation.rung);
    row.byte_source = byte_source_of(nccl::source_of(operation));
    row.is_partial = operation.has(nccl::OPERATION_PARTIAL);
    row.is_truncated = operation.has(nccl::OPERATION_TRUNCATED);
}

void OperationTabulator::set_times(rows::OperationRow &row, const Operation &operation) const {
    row.called_realtime_ns = if_not_0(operation.called_realtime_ns);
    row.first_launch_realtime_ns = if_not_0(operation.begin_realtime_ns);
    row.last_launch_realtime_ns = if_not_0(operation.launched_realtime_ns);
    row.end_realtime_ns =
        only_if(operation.end_known == nccl::EndKnown::Measured, operation.end_before_realtime_ns);
    row.end_after_realtime_ns = if_not_0(operation.end_after_realtime_ns);
    row.end_before_realtime_ns = if_not_0(operation.end_before_realtime_ns);
    row.end_known = if_any(nccl::end_known_name(operation.end_known));
    row.least_duration_ns = only_if(row.end_known.has_value(), operation.least_duration_ns);
    row.most_duration_ns = only_if(row.end_known.has_value(), operation.most_duration_ns);
}

void OperationTabulator::add(const Operation &operation, std::size_t place, bool is_pair) {
    rows::OperationRow row;
    row.operation = place + (is_pair ? nccl_.collectives.size() : 0);
    row.kind = is_pair ? rows::OperationKind::Pair : rows::OperationKind::Collective;
    set_call(row, operation);
    if (is_pair) {
        row.src_rank = operation.source;
        row.dst_rank = operation.destination;
    } else {
        if (nccl::has_reduction(operation.func))
            row.reduction = if_any(
                capture::nccl_reduction_name(static_cast<std::uint32_t>(operation.reduction)));
        row.root = only_if<std::int64_t>(nccl::has_root(operation.func), operation.root);
    }
    set_bytes(row, operation);
    set_times(row, operation);
    if (const auto last = last_calls_.of(operation, place, is_pair)) {
        row.last_rank = last->rank;
        row.last_call_after_first_ns = last->after_first_ns;
    }
    if (const auto spread = last_calls_.spread(operation, place, is_pair))
        row.calls_within_ns = spread->most_ns;
    if (nccl_.local.has_nodes) {
        const nccl::LocalOperation &local =
            (is_pair ? nccl_.local.p2p : nccl_.local.collectives)[place];
        row.local_state = std::string(local_state_name(local.state));
        row.local_payload_bytes = only_if(local.state == nccl::LocalState::Modelled ||
                                              local.state == nccl::LocalState::Partial,
                                          local.payload_bytes);
    }
    rows::put(sink_, row);
    add_tiers(operation, row.operation);
    if (parts_)
        add_ranks(operation, row.operation);
}

void OperationTabulator::add_tiers(const Operation &operation, std::uint64_t number) {
    if (operation.tiers == 0)
        return;
    const nccl::TierBytes bytes = nccl::bytes_by_tier(nccl_, operation);
    for (const topology::Tier tier : report::ALL_TIERS) {
        const std::size_t index = model::index_of(tier);
        if ((operation.tiers & (1U << index)) != 0)
            rows::put(sink_, rows::OperationTierRow{
                                 .operation = number,
                                 .tier = tier_of(tier),
                                 .tx_payload_bytes = bytes[index].first,
                                 .tx_wire_bytes = only_if(operation.has(nccl::OPERATION_WIRE_KNOWN),
                                                          bytes[index].second)});
    }
}

std::optional<std::uint64_t> OperationTabulator::kernel_of(const nccl::OperationCall &call) const {
    if (call.launch == model::NONE || !nccl_.gpu.is_recorded())
        return std::nullopt;
    const model::Index stream = nccl_.instances[call.instance].stream;
    const auto &[process, kernel] = nccl_.gpu.kernel_of_launch[stream][call.launch];
    return only_if(process != NONE, process == NONE ? 0 : kernels_.of(process, kernel));
}

void OperationTabulator::add_ranks(const Operation &operation, std::uint64_t number) {
    struct Sum {
        std::uint64_t bytes = 0;
        bool is_known = true;
    };
    // By instance and direction.
    std::map<std::pair<model::Index, bool>, Sum> sums;
    for (const nccl::Part &part : parts_->of(operation)) {
        Sum &sum = sums[{part.instance, part.is_send}];
        sum.bytes = model::add_saturating(sum.bytes, part.share.payload_bytes);
        sum.is_known = sum.is_known && part.share.is_known;
    }
    // Without a part it is 0 only where the whole is known.
    const Sum none{.is_known = operation.has(nccl::OPERATION_PAYLOAD_KNOWN)};
    for (const nccl::OperationCall &call : parts_->calls_of(operation)) {
        const Instance &instance = nccl_.instances[call.instance];
        const model::Host &host = model_.hosts[instance.host];
        const auto bytes_of = [&](bool is_send) {
            const auto found = sums.find({call.instance, is_send});
            const Sum &sum = found == sums.end() ? none : found->second;
            return only_if(call.launch != model::NONE && sum.is_known, sum.bytes);
        };
        rows::OperationRankRow row;
        row.operation = number;
        row.rank = instance.record.rank;
        row.host = host.name;
        row.pid = instance.record.tgid;
        row.op = nccl::func_text(call.call.func);
        row.called_realtime_ns = host.realtime_ns(call.call.time_ns);
        row.called_common_ns = if_not_0(clock_.time_ns(instance.host, call.call.time_ns));
        if (call.launch != model::NONE)
            row.launched_realtime_ns = host.realtime_ns(
                nccl_.gathered.streams[instance.stream].launches[call.launch].time_ns);
        row.kernel = kernel_of(call);
        // A pair has a call of each of its ends.
        row.tx_payload_bytes = bytes_of(true);
        row.rx_payload_bytes = bytes_of(false);
        rows::put(sink_, row);
    }
}

} // namespace

void rows_of_operations(const Model &model, const nccl::LastCalls &last_calls, bool has_detail,
                        rows::RowSink &sink) {
    OperationTabulator(model, last_calls, has_detail, sink).run();
}

} // namespace collwire::tabulate
