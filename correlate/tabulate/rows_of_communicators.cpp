// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <vector>

#include "correlate/nccl/describe.h"
#include "correlate/nccl/param_text.h"
#include "correlate/roles/guess_roles.h"
#include "correlate/rows/nccl_rows.h"
#include "correlate/tabulate/convert.h"
#include "correlate/tabulate/rows_of_nccl.h"

namespace collwire::tabulate {

using model::Index;
using model::Model;
using model::NONE;
using nccl::Communicator;
using nccl::Instance;

namespace {

rows::CommunicatorRow communicator_row(const nccl::NcclFacts &nccl, Index index,
                                       const roles::RoleGuess &guess) {
    const Communicator &comm = nccl.communicators[index];
    rows::CommunicatorRow row;
    row.comm = index;
    row.hash = nccl::hash_text(comm.hash);
    row.name = if_any(comm.name);
    row.name_source = if_any(roles::name_source(comm, guess));
    row.guessed_role = if_any(roles::guessed_role_name(guess.role));
    row.guess_reason = if_any(guess.reason);
    row.n_ranks = comm.n_ranks;
    row.n_nodes = only_if<std::int64_t>(comm.n_nodes > 0, comm.n_nodes);
    row.parent = if_index(comm.parent);
    std::int64_t last = INT64_MIN; // instances are by rank
    for (const Index of : comm.instances) {
        const std::int64_t rank = nccl.instances[of].record.rank;
        row.ranks_captured += rank != last ? 1 : 0;
        last = rank;
    }
    row.created_realtime_ns = if_not_0(comm.created_realtime_ns);
    row.ended_realtime_ns = if_not_0(comm.ended_realtime_ns);
    return row;
}

rows::RankRow rank_row(const Model &model, Index comm, Index index) {
    const Instance &instance = model.nccl.instances[index];
    const nccl::Lateness &lateness = model.nccl.lateness[index];
    const model::Host &host = model.hosts[instance.host];
    rows::RankRow row;
    row.comm = comm;
    row.rank = instance.record.rank;
    row.host = host.name;
    row.pid = instance.record.tgid;
    row.gpu = instance.record.cuda_dev;
    if (instance.record.bus_id != 0)
        row.gpu_pci_address = nccl::bus_id_text(instance.record.bus_id);
    row.node = instance.record.node;
    row.nccl_version = if_any(nccl::library_version_text(instance.version));
    row.from_creation = instance.created;
    row.first_seen_realtime_ns = host.realtime_ns(instance.begin_ns);
    row.ended_realtime_ns = only_if(instance.ended, host.realtime_ns(instance.end_ns));
    row.seq_base = nccl::seq_base_name(instance.seq_base);
    row.is_joined = instance.is_joined || instance.n_collectives == 0;
    row.calls = instance.n_calls;
    row.failed_calls = instance.failed_calls;
    row.launches = only_if<std::uint64_t>(!instance.is_calls_only, instance.n_launches);
    row.compared_calls = lateness.compared;
    row.last_calls = lateness.last;
    row.late_calls = lateness.late;
    row.median_late_ns = if_not_0(lateness.median_late_ns);
    row.sum_late_ns = lateness.sum_late_ns;
    return row;
}

void put_parameters(const nccl::NcclFacts &nccl, Index comm, rows::RowSink &sink) {
    for (const auto &[name, values] : nccl::params_of(nccl, nccl.communicators[comm]))
        for (const auto &[value, ranks] : values)
            rows::put(sink,
                      rows::ParameterRow{.comm = comm,
                                         .name = name,
                                         .value = value,
                                         .text = nccl::param_text(name, value),
                                         .ranks = std::set(ranks.begin(), ranks.end()).size()});
}

rows::RankPairRow pair_row(const nccl::MatrixKey &key, const nccl::MatrixCell &cell) {
    return {.comm = key.comm,
            .src_rank = if_not_negative(key.source),
            .dst_rank = if_not_negative(key.destination),
            .transport = std::string(nccl::transport_name(key.transport)),
            .tier = tier_of(key.tier),
            .payload_bytes = cell.payload_bytes,
            .wire_bytes = cell.wire_bytes};
}

rows::FlowRow flow_row(const Model &model, Index index) {
    const nccl::Link &link = model.nccl.links[index];
    rows::FlowRow row;
    row.flow = index;
    set_flow(row, model.nccl, index);
    row.host = model.hosts[model.sessions[link.session].host].name;
    row.pid = link.tgid;
    row.n_channels = link.channels.size();
    row.is_send = link.is_send();
    row.transport = nccl::transport_name(link.transport);
    row.certainty = certainty_of(link.rung);
    row.byte_source = byte_source_of(link.source);
    row.operations_payload_bytes = link.attributed_bytes;
    row.measured_payload_bytes = only_if(row.byte_source.has_value(), link.measured_bytes);
    row.queue_pairs = link.qps.size();
    row.sockets = link.sockets.size();
    return row;
}

} // namespace

void rows_of_communicators(const Model &model, const std::vector<roles::RoleGuess> &guesses,
                           rows::RowSink &sink) {
    const nccl::NcclFacts &nccl = model.nccl;
    for (Index index = 0; index < nccl.communicators.size(); ++index) {
        rows::put(sink, communicator_row(nccl, index, guesses[index]));
        for (const Index of : nccl.communicators[index].instances)
            rows::put(sink, rank_row(model, index, of));
        put_parameters(nccl, index, sink);
    }
    for (const auto &[key, cell] : nccl.matrix)
        rows::put(sink, pair_row(key, cell));
    for (Index index = 0; index < nccl.links.size() && !sink.is_stopped(); ++index)
        rows::put(sink, flow_row(model, index));
}

} // namespace collwire::tabulate
