// SPDX-License-Identifier: Apache-2.0
#include "correlate/tabulate/rows_of_interval.h"

#include <algorithm>
#include <set>
#include <vector>

#include "correlate/nccl/describe.h"
#include "correlate/nccl/late_ranks.h"
#include "correlate/nccl/port_incidents.h"
#include "correlate/nccl/waiting.h"
#include "correlate/report/comm_label.h"
#include "correlate/report/names.h"
#include "correlate/report/text_incidents.h"
#include "correlate/roles/guess_roles.h"
#include "correlate/tabulate/convert.h"

namespace collwire::tabulate {
namespace {

using intervals::Bounds;
using intervals::Edges;
using intervals::Interval;
using model::Index;
using model::Known;
using model::Model;
using model::NONE;
using nccl::NcclFacts;
using nccl::Operation;

Known derived_wire_of(const model::Sums &sums) {
    return sums.lacks_derived_wire_bytes ? Known() : sums.derived_tx_wire_bytes;
}

class IntervalRows {
public:
    IntervalRows(const Model &model, const Bounds &bounds)
        : model_(model), nccl_(model.nccl), guesses_(roles::guess_roles(model)) {
        interval_.row.begin_realtime_ns = bounds.begin_ns;
        interval_.row.end_realtime_ns = bounds.end_ns;
    }

    Interval run() {
        set_recordings();
        set_bytes();
        add_ports();
        add_communicators();
        set_late();
        set_trouble();
        return std::move(interval_);
    }

private:
    static bool is_recorded(const model::Session &session) {
        return !session.excluded && session.end_ns > session.begin_ns;
    }

    void set_recordings() {
        std::set<Index> hosts;
        for (const model::Session &session : model_.sessions)
            if (is_recorded(session))
                hosts.insert(session.host);
        interval_.row.hosts = hosts.size();
        interval_.row.records = model_.window ? model_.window->records_inside : 0;
        interval_.lost_records = model_.lost_records;
    }

    void set_bytes() {
        const model::Sums &total = model_.total;
        rows::IntervalRow &row = interval_.row;
        row.tx_wire_bytes = total.tx_wire_bytes;
        row.derived_tx_wire_bytes = derived_wire_of(total);
        row.tcp_tx_payload_bytes = total.tcp.tx_payload_bytes;
        row.tcp_derived_tx_payload_bytes = total.tcp.derived_tx_payload_bytes;
        row.qps_without_bytes = total.qps_without_bytes;
        for (const topology::Tier tier : report::ALL_TIERS) {
            const model::Sums &sums = model_.tiers[model::index_of(tier)];
            rows::IntervalTierRow of;
            of.tier = tier_of(tier);
            of.tx_wire_bytes = sums.tx_wire_bytes;
            of.derived_tx_wire_bytes = derived_wire_of(sums);
            of.tcp_tx_payload_bytes = sums.tcp.tx_payload_bytes;
            model::add_known(of.tcp_tx_payload_bytes, sums.tcp.derived_tx_payload_bytes);
            for (std::optional<std::uint64_t> *bytes :
                 {&of.tx_wire_bytes, &of.derived_tx_wire_bytes, &of.tcp_tx_payload_bytes})
                if (*bytes == 0U)
                    bytes->reset();
            if (of.tx_wire_bytes || of.derived_tx_wire_bytes || of.tcp_tx_payload_bytes)
                interval_.tiers.push_back(of);
        }
    }

    void add_ports() {
        for (const Index index : report::ports_in_order(model_)) {
            const model::Port &port = model_.ports[index];
            if (!port.bytes.tx_wire_bytes || !port.bytes.rx_wire_bytes)
                continue;
            const model::Device &device = model_.devices[port.device];
            interval_.ports.push_back({.host = model_.hosts[device.host].name,
                                       .device = device.name,
                                       .port = port.number,
                                       .rate_mbps = port.rate_mbps,
                                       .tx_wire_bytes = *port.bytes.tx_wire_bytes,
                                       .rx_wire_bytes = *port.bytes.rx_wire_bytes});
        }
    }

    // Ranks that called something of the communicator.
    [[nodiscard]] std::set<std::int32_t> live_ranks(const nccl::Communicator &comm) const {
        std::set<std::int32_t> ranks;
        for (const Index i : comm.instances)
            if (nccl_.instances[i].n_calls != 0 || nccl_.instances[i].n_launches != 0)
                ranks.insert(nccl_.instances[i].record.rank);
        return ranks;
    }

    static void add_number(const Operation &operation, Edges &edges) {
        if (operation.replay != NONE || (operation.seq_base != nccl::SeqBase::Launched &&
                                         operation.seq_base != nccl::SeqBase::Creation))
            return;
        const bool is_first = !edges.is_numbered();
        edges.is_from_creation = operation.seq_base == nccl::SeqBase::Creation;
        edges.first_seq = is_first ? operation.seq : std::min(edges.first_seq, operation.seq);
        edges.last_seq = is_first ? operation.seq : std::max(edges.last_seq, operation.seq);
    }

    // `operations`: of one communicator. Of those that ranks number apart the first rank's count.
    void count_collectives(std::span<const Operation> operations, std::size_t n_live,
                           rows::IntervalCommRow &row, Edges &edges) {
        std::int32_t counted = INT32_MAX;
        for (const Operation &operation : operations)
            if (operation.rank >= 0)
                counted = std::min(counted, operation.rank);
        bool has_whole = false;
        for (const Operation &operation : operations) {
            if (operation.rank >= 0 && operation.rank != counted)
                continue;
            ++row.collectives;
            add_number(operation, edges);
            if (operation.rank >= 0 || operation.ranks >= n_live) {
                has_whole = true;
                edges.at_end = 0;
                continue;
            }
            edges.at_begin += has_whole ? 0 : 1;
            ++edges.at_end;
        }
    }

    // Ranks with a recording in the interval.
    [[nodiscard]] std::set<std::int32_t> recorded_ranks(const nccl::Communicator &comm) const {
        std::set<std::int32_t> ranks;
        for (const Index i : comm.instances)
            if (is_recorded(model_.sessions[nccl_.instances[i].session]))
                ranks.insert(nccl_.instances[i].record.rank);
        return ranks;
    }

    void count_sends() {
        std::vector<std::set<std::int32_t>> recorded;
        recorded.reserve(nccl_.communicators.size());
        for (const nccl::Communicator &comm : nccl_.communicators)
            recorded.push_back(recorded_ranks(comm));
        for (const Operation &send : nccl_.p2p) {
            // The receive of a send that the interval before it or after it has.
            if (!send.has(nccl::OPERATION_SENT) && recorded[send.comm].contains(send.source))
                continue;
            ++comm_rows_[send.comm].sends;
        }
    }

    void add_communicators() {
        const std::size_t n = nccl_.communicators.size();
        comm_rows_.resize(n);
        std::vector<Edges> edges(n);
        std::vector<std::set<std::int32_t>> live;
        live.reserve(n);
        std::size_t begin = 0;
        for (Index i = 0; i < n; ++i) {
            live.push_back(live_ranks(nccl_.communicators[i]));
            std::size_t end = begin;
            while (end < nccl_.collectives.size() && nccl_.collectives[end].comm == i)
                ++end;
            count_collectives(std::span(nccl_.collectives).subspan(begin, end - begin),
                              live[i].size(), comm_rows_[i], edges[i]);
            begin = end;
        }
        count_sends();
        add_waiting();
        for (Index i = 0; i < n; ++i) {
            rows::IntervalCommRow &row = comm_rows_[i];
            if (row.collectives == 0 && row.sends == 0)
                continue;
            const nccl::Communicator &comm = nccl_.communicators[i];
            row.comm_hash = nccl::hash_text(comm.hash);
            row.n_ranks = static_cast<std::uint64_t>(std::max(comm.n_ranks, 0));
            row.ranks_captured = live[i].size();
            row.name = if_any(comm.name);
            row.role = if_any(roles::guessed_role_name(guesses_[i].role));
            interval_.row.collectives += row.collectives;
            interval_.row.sends += row.sends;
            interval_.comms.push_back(std::move(row));
            interval_.edges.push_back(edges[i]);
        }
    }

    void add_waiting() {
        std::vector<std::map<std::int32_t, std::uint64_t>> last(comm_rows_.size());
        for (const nccl::WaitingTimes &of : nccl::find_waiting(model_)) {
            rows::IntervalCommRow &row = comm_rows_[of.comm];
            row.waited_for_rank += of.for_rank;
            row.transferred += of.for_the_rest;
            row.unclear += of.unclear;
            row.waited_ns = model::add_saturating(row.waited_ns, of.sum_waited_ns);
            for (const auto &[rank, times] : of.last_ranks)
                last[of.comm][rank] += times;
            interval_.row.waited_for_rank += of.for_rank;
            interval_.row.transferred += of.for_the_rest;
            interval_.row.unclear += of.unclear;
            interval_.row.waited_ns =
                model::add_saturating(interval_.row.waited_ns, of.sum_waited_ns);
        }
        for (std::size_t i = 0; i < last.size(); ++i) {
            if (last[i].empty())
                continue;
            const auto most =
                std::ranges::max_element(last[i], {}, [](const auto &one) { return one.second; });
            comm_rows_[i].last_rank = most->first;
            comm_rows_[i].times_last = most->second;
        }
    }

    void set_late() {
        const std::vector<Index> late = nccl::late_ranks(nccl_);
        rows::IntervalRow &row = interval_.row;
        row.late_ranks = late.size();
        if (late.empty())
            return;
        const nccl::Instance &first = nccl_.instances[late.front()];
        const nccl::Communicator &comm = nccl_.communicators[first.comm];
        row.late_comm_hash = nccl::hash_text(comm.hash);
        row.late_rank = first.record.rank;
        row.late_host = model_.hosts[first.host].name;
        row.late_pid = first.record.tgid;
        row.late_calls = nccl_.lateness[late.front()].late;
        row.late_median_ns = nccl_.lateness[late.front()].median_late_ns;
        interval_.late_label = report::long_comm_label(comm, guesses_[first.comm]);
    }

    void set_trouble() {
        rows::IntervalRow &row = interval_.row;
        const std::vector<nccl::PortIncident> incidents = nccl::find_port_incidents(model_);
        row.port_incidents = incidents.size();
        row.worst_incident = if_any(report::incidents_line(model_, incidents));
        for (const nccl::NcclError &error : nccl_.errors) {
            const model::Session &session = model_.sessions[error.session];
            row.errors +=
                error.time_ns >= session.begin_ns && error.time_ns < session.end_ns ? 1 : 0;
        }
    }

    const Model &model_;
    const NcclFacts &nccl_;
    const std::vector<roles::RoleGuess> guesses_;
    std::vector<rows::IntervalCommRow> comm_rows_; // by communicator
    Interval interval_;
};

} // namespace

Interval rows_of_interval(const Model &model, const Bounds &bounds) {
    return IntervalRows(model, bounds).run();
}

} // namespace collwire::tabulate
