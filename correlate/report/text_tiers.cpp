// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/text_tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/describe.h"
#include "correlate/report/comm_groups.h"
#include "correlate/report/names.h"
#include "correlate/report/table.h"
#include "correlate/report/text_writer.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Index;
using model::Known;
using model::Model;
using nccl::Operation;
using topology::Tier;

namespace {

constexpr std::size_t BAR_WIDTH = 20;

class TierTextWriter : private TextWriter {
public:
    TierTextWriter(const Model &model, const std::vector<roles::RoleGuess> &guesses,
                   const TextOptions &options)
        : TextWriter(options), model_(model), guesses_(guesses) {}

    std::string run() {
        sent();
        operations();
        return std::move(text_);
    }

private:
    void sent();
    void operations();

    const Model &model_;
    const std::vector<roles::RoleGuess> &guesses_;
};

void TierTextWriter::sent() {
    title("Sent, by the highest tier crossed");
    const bool by_qps = std::any_of(ALL_TIERS.begin(), ALL_TIERS.end(), [&](Tier tier) {
        const model::Sums &sums = model_.tiers[model::index_of(tier)];
        return sums.tx_wire_bytes || sums.tx_payload_bytes ||
               (sums.qps != 0 && !has_tcp(model_) && !computed(model_.total));
    });
    const bool by_tcp = has_tcp(model_);
    const bool is_computed = computed(model_.total).has_value();
    Table table({{"tier"},
                 {"wire bytes", Align::Right, false, 0, by_qps},
                 {"bytes", Align::Right, false, 0, by_qps},
                 {"payload", Align::Right, false, 0, by_qps},
                 {"share", Align::Right, false, 0, by_qps},
                 {"", Align::Left, false, 1, by_qps},
                 {"TCP payload", Align::Right, false, 0, by_tcp},
                 {"bytes", Align::Right, false, 0, by_tcp && !by_qps},
                 {"share", Align::Right, false, 0, by_tcp && !by_qps},
                 {"", Align::Left, false, 1, by_tcp && !by_qps},
                 {"computed", Align::Right, false, 0, is_computed},
                 {"bytes", Align::Right, false, 0, is_computed && !by_qps && !by_tcp}});
    for (const Tier tier : ALL_TIERS) {
        const model::Sums &sums = model_.tiers[model::index_of(tier)];
        const Known &tcp = sums.tcp.tx_payload_bytes;
        const Known of_operations = computed(sums);
        // A tier gets a row if it has queue pairs, which may have sent, or sent bytes of another
        // kind.
        if ((sums.qps == 0 || !by_qps) && sums.tcp.sockets == 0 && !of_operations)
            continue;
        const auto bytes = [](const Known &known) { return known ? grouped(*known) : "n/a"; };
        const Known &all_tcp = model_.total.tcp.tx_payload_bytes;
        table.add({std::string(topology::tier_name(tier)), human_bytes(sums.tx_wire_bytes),
                   bytes(sums.tx_wire_bytes), human_bytes(sums.tx_payload_bytes),
                   share(sums.tx_wire_bytes, model_.total.tx_wire_bytes),
                   bar(sums.tx_wire_bytes, model_.total.tx_wire_bytes, BAR_WIDTH), human_bytes(tcp),
                   bytes(tcp), share(tcp, all_tcp), bar(tcp, all_tcp, BAR_WIDTH),
                   human_bytes(of_operations), bytes(of_operations)});
    }
    if (!table.empty())
        text_ += table.text(width_);
    else
        line(model_.total.qps == 0 ? "  no queue pair was recorded"
                                   : "  no queue pair sent anything");
}

// Payload of each communicator's operations, by tier.
void TierTextWriter::operations() {
    const nccl::NcclFacts &nccl = model_.nccl;
    const CommGroups groups(nccl, guesses_);
    std::map<std::pair<Index, std::uint8_t>, std::array<std::uint64_t, model::TIERS>> kinds;
    std::array<bool, model::TIERS> is_used{};
    for (const auto *all : {&nccl.collectives, &nccl.p2p})
        for (const Operation &operation : *all) {
            if (operation.tiers == 0)
                continue;
            const bool is_pair = operation.source >= 0 || operation.destination >= 0;
            auto &sums = kinds[{groups.first_of(operation.comm),
                                is_pair ? std::uint8_t{CW_NCCL_SEND_RECV} : operation.func}];
            const nccl::TierBytes bytes = nccl::bytes_by_tier(nccl, operation);
            for (std::size_t tier = 0; tier < model::TIERS; ++tier) {
                sums[tier] = model::add_saturating(sums[tier], bytes[tier].first);
                is_used[tier] = is_used[tier] || bytes[tier].first != 0;
            }
        }
    if (kinds.empty())
        return;
    const auto all_of = [](const auto *kind) {
        std::uint64_t sum = 0;
        for (const std::uint64_t bytes : kind->second)
            sum = model::add_saturating(sum, bytes);
        return sum;
    };
    std::vector<decltype(kinds)::value_type *> order;
    order.reserve(kinds.size());
    for (auto &kind : kinds)
        order.push_back(&kind);
    std::stable_sort(order.begin(), order.end(),
                     [&](const auto *a, const auto *b) { return all_of(a) > all_of(b); });
    title("Payload of operations, by the highest tier crossed");
    std::vector<Column> columns = {{"comm", Align::Left, true}, {"operation"}};
    for (const Tier tier : ALL_TIERS)
        columns.push_back({std::string(topology::tier_name(tier)), Align::Right, false, 0,
                           is_used[model::index_of(tier)]});
    Table table(std::move(columns));
    const std::size_t shown = std::min(order.size(), options_.rows);
    for (std::size_t i = 0; i < shown; ++i) {
        const auto &[kind, sums] = *order[i];
        std::vector<std::string> row = {groups.title_of(kind.first), nccl::func_text(kind.second)};
        for (const Tier tier : ALL_TIERS) {
            const std::uint64_t bytes = sums[model::index_of(tier)];
            row.push_back(bytes == 0 ? "" : human_bytes(bytes));
        }
        table.add(std::move(row));
    }
    text_ += table.text(width_);
    more(order.size(), shown, "operations of communicators");
}

} // namespace

std::string tiers_text(const Model &model, const std::vector<roles::RoleGuess> &guesses,
                       const TextOptions &options) {
    return TierTextWriter(model, guesses, options).run();
}

bool has_tcp(const Model &model) {
    return model.total.tcp.sockets != 0;
}

Known computed(const model::Sums &sums) {
    Known bytes = sums.derived_tx_payload_bytes;
    model::add_known(bytes, sums.tcp.derived_tx_payload_bytes);
    return bytes;
}

} // namespace collwire::report
