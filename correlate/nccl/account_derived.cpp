// SPDX-License-Identifier: Apache-2.0
// Bytes computed from NCCL's operations on connections without a measurement: destination and tier.
// Included in no measured sum.
#include <algorithm>
#include <set>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "correlate/model/join.h"
#include "correlate/model/more_sums.h"
#include "correlate/nccl/account_messages.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::add_known;
using model::Model;

namespace {

class DerivedAccountant {
public:
    explicit DerivedAccountant(Model &model) : model_(model), nccl_(model.nccl), sums_(model) {}

    void run() {
        find_strays();
        for (const Link &link : nccl_.links) {
            if (!link.is_send() || !link.is_followed() || link.source != ByteSource::None ||
                is_perhaps_measured(link))
                continue;
            const bool is_tcp = link.transport == CW_NCCL_TRANSPORT_SOCKET;
            if (is_tcp)
                for_each_sum(link, [](model::Sums &sums, std::uint64_t) {
                    ++sums.tcp.connections_without_bytes;
                });
            // No known operation was launched on it.
            if (link.attributed_bytes == 0)
                continue;
            for_each_sum(link, [&](model::Sums &sums, std::uint64_t bytes) {
                add_known(is_tcp ? sums.tcp.derived_tx_payload_bytes
                                 : sums.derived_tx_payload_bytes,
                          bytes);
                if (!is_tcp)
                    add_wire_bytes(sums, message_wire_bytes(model_, link));
            });
            if (link.qps.size() == 1 && !link.is_cut_short) {
                QpIdentity &identity = nccl_.qps[link.qps.front()];
                identity.derived_payload_bytes = link.attributed_bytes;
                identity.derived_wire_bytes = message_wire_bytes(model_, link);
            }
        }
        add_clear_to_send();
    }

private:
    static void add_wire_bytes(model::Sums &sums, const Known &bytes) {
        sums.lacks_derived_wire_bytes = sums.lacks_derived_wire_bytes || !bytes;
        if (sums.lacks_derived_wire_bytes)
            sums.derived_tx_wire_bytes.reset();
        else
            add_known(sums.derived_tx_wire_bytes, bytes);
    }

    void add_clear_to_send() {
        for (const Link &link : nccl_.links)
            if (!link.is_send() && !link.qps.empty() && link.packets.messages != 0 &&
                std::ranges::none_of(link.qps, [this](Index qp) { return is_measured(qp); })) {
                const Known bytes = message_wire_bytes(model_, link);
                if (link.qps.size() == 1)
                    nccl_.qps[link.qps.front()].derived_wire_bytes = bytes;
                for_each_sum(
                    link, [&](model::Sums &sums, std::uint64_t) { add_wire_bytes(sums, bytes); });
                add_known(nccl_.control.clear_to_send_derived_wire_bytes, bytes);
            }
    }

    [[nodiscard]] bool is_measured(Index qp) const {
        return model_.qps[qp].bytes.rung != model::BytesRung::None;
    }

    // Processes with measured queue pairs that may belong to any of its connections.
    void find_strays() {
        for (Index qp = 0; qp < model_.qps.size(); ++qp) {
            const QpIdentity &identity = nccl_.qps[qp];
            const bool is_of_no_link =
                identity.role == Role::Other ||
                (identity.link != NONE && nccl_.links[identity.link].is_mirrored);
            if (identity.is_of_nccl && is_of_no_link && is_measured(qp))
                strays_.insert({model_.qps[qp].session, model_.qps[qp].tgid});
        }
    }

    [[nodiscard]] bool is_perhaps_measured(const Link &link) const {
        return std::ranges::any_of(link.qps, [this](Index qp) { return is_measured(qp); }) ||
               (link.lacks_queue_pairs() && strays_.contains({link.session, link.tgid}));
    }

    // The sums that include the flow, and its bytes in each.
    template <typename Visit> void for_each_sum(const Link &link, Visit visit) {
        const std::uint64_t bytes = link.attributed_bytes;
        const Index host = model_.sessions[link.session].host;
        visit(model_.total, bytes);
        const topology::Tier tier = !link.tiers.empty() ? link.tiers.front().first
                                    : link.is_send() || link.qps.empty()
                                        ? topology::Tier::Unknown
                                        : model_.qps[link.qps.front()].tier;
        visit(model_.tiers[model::index_of(tier)], bytes);
        visit(sums_.process_of(host, link.tgid).all, bytes);
        const auto [destination, is_captured] = destination_of(link);
        visit(sums_.pair_of(host, destination, is_captured).all, bytes);
    }

    [[nodiscard]] std::pair<std::string, bool> destination_of(const Link &link) const {
        if (!link.qps.empty()) {
            const model::Qp &qp = model_.qps[link.qps.front()];
            return {model::destination_of(qp), qp.remote_port != NONE};
        }
        // The other rank's host; its number is the communicator's own unless connections are
        // shared.
        const Index comm = only_communicator(nccl_, link);
        Index only = NONE;
        if (comm != NONE)
            for (const Index index : nccl_.communicators[comm].instances) {
                const Instance &instance = nccl_.instances[index];
                if (instance.record.rank != link.peer || instance.is_shared())
                    continue;
                if (only != NONE && only != instance.host)
                    return {model::DESTINATION_NOT_KNOWN, false};
                only = instance.host;
            }
        if (only == NONE)
            return {model::DESTINATION_NOT_KNOWN, false};
        return {model_.hosts[only].name, true};
    }

    Model &model_;
    NcclFacts &nccl_;
    model::MoreSums sums_;
    std::set<std::pair<Index, std::uint32_t>> strays_; // session, process
};

} // namespace

void account_derived(Model &model) {
    DerivedAccountant(model).run();
}

} // namespace collwire::nccl
