// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/text_node_pairs.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "correlate/report/names.h"
#include "correlate/report/table.h"
#include "correlate/report/text_tiers.h"
#include "correlate/report/text_writer.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Known;
using model::Model;

namespace {

constexpr std::size_t MATRIX_HOSTS = 12;

// One table of bytes between hosts.
struct PairBytes {
    const char *title;
    bool (*has)(const model::Sums &);
    Known (*bytes)(const model::Sums &);
};
constexpr std::array<PairBytes, 3> PAIR_BYTES = {{
    {"Sent between hosts, wire bytes",
     [](const model::Sums &sums) { return sums.tx_wire_bytes || sums.qps_without_bytes != 0; },
     [](const model::Sums &sums) { return sums.tx_wire_bytes; }},
    {"Sent between hosts over TCP, payload",
     [](const model::Sums &sums) { return sums.tcp.sockets != 0; },
     [](const model::Sums &sums) { return sums.tcp.tx_payload_bytes; }},
    {"Sent between hosts, payload computed from NCCL's operations",
     [](const model::Sums &sums) { return computed(sums).has_value(); }, computed},
}};

class NodePairTextWriter : private TextWriter {
public:
    NodePairTextWriter(const Model &model, const TextOptions &options)
        : TextWriter(options), model_(model) {}

    std::string run() {
        node_pairs();
        return std::move(text_);
    }

private:
    void node_pairs();
    [[nodiscard]] std::optional<std::string> matrix(const PairBytes &of) const;
    void node_pair_list();

    const Model &model_;
};

// Absent if there are too many hosts.
std::optional<std::string> NodePairTextWriter::matrix(const PairBytes &of) const {
    std::set<std::string> sources;
    std::set<std::string> destinations;
    std::map<std::pair<std::string, std::string>, Known> cells;
    for (const model::NodePair &pair : model_.node_pairs) {
        if (!of.has(pair.all))
            continue;
        sources.insert(pair.source);
        destinations.insert(pair.destination);
        cells[{pair.source, pair.destination}] = of.bytes(pair.all);
    }
    if (sources.size() > MATRIX_HOSTS || destinations.size() > MATRIX_HOSTS)
        return std::nullopt;
    std::size_t needed = 12;
    for (const std::string &destination : destinations)
        needed += std::max<std::size_t>(destination.size(), 11) + 2;
    if (needed > width_)
        return std::nullopt;
    std::vector<Column> columns = {{"from \\ to", Align::Left, true}};
    for (const std::string &destination : destinations)
        columns.push_back({printable(destination), Align::Right});
    Table table(columns);
    for (const std::string &source : sources) {
        std::vector<std::string> row = {printable(source)};
        for (const std::string &destination : destinations) {
            const auto found = cells.find({source, destination});
            row.push_back(found == cells.end() ? "" : human_bytes(found->second));
        }
        table.add(std::move(row));
    }
    return table.text(width_);
}

void NodePairTextWriter::node_pairs() {
    std::vector<PairBytes> kinds;
    std::vector<std::string> matrices;
    const bool is_measured = model_.total.tx_wire_bytes || !computed(model_.total);
    for (const PairBytes &kind : PAIR_BYTES)
        if ((&kind != PAIR_BYTES.data() || is_measured) &&
            std::any_of(model_.node_pairs.begin(), model_.node_pairs.end(),
                        [&](const model::NodePair &pair) { return kind.has(pair.all); }))
            kinds.push_back(kind);
    for (const PairBytes &kind : kinds)
        if (auto text = matrix(kind))
            matrices.push_back(std::move(*text));
    if (matrices.size() < kinds.size())
        return node_pair_list();
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        title(kinds[i].title);
        text_ += matrices[i];
    }
}

void NodePairTextWriter::node_pair_list() {
    std::vector<const model::NodePair *> pairs;
    for (const model::NodePair &pair : model_.node_pairs)
        pairs.push_back(&pair);
    const std::size_t shown = std::min(pairs.size(), options_.rows);
    const auto other_bytes = [](const model::NodePair *pair) {
        return std::max(pair->all.tcp.tx_payload_bytes, computed(pair->all));
    };
    std::partial_sort(
        pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(shown), pairs.end(),
        [&](const model::NodePair *a, const model::NodePair *b) {
            return std::tuple(b->all.tx_wire_bytes, other_bytes(b), a->source, a->destination) <
                   std::tuple(a->all.tx_wire_bytes, other_bytes(a), b->source, b->destination);
        });
    title("Sent between hosts, the most sent first");
    Table table({{"from", Align::Left, true},
                 {"to", Align::Left, true},
                 {"wire bytes", Align::Right},
                 {"payload", Align::Right, false, 1},
                 {"share", Align::Right},
                 {"TCP payload", Align::Right, false, 0, has_tcp(model_)},
                 {"computed", Align::Right, false, 0, computed(model_.total).has_value()}});
    for (std::size_t i = 0; i < shown; ++i)
        table.add({printable(pairs[i]->source), printable(pairs[i]->destination),
                   human_bytes(pairs[i]->all.tx_wire_bytes),
                   human_bytes(pairs[i]->all.tx_payload_bytes),
                   share(pairs[i]->all.tx_wire_bytes, model_.total.tx_wire_bytes),
                   human_bytes(pairs[i]->all.tcp.tx_payload_bytes),
                   human_bytes(computed(pairs[i]->all))});
    text_ += table.text(width_);
    more(pairs.size(), shown, "pairs");
}

} // namespace

std::string node_pairs_text(const Model &model, const TextOptions &options) {
    return NodePairTextWriter(model, options).run();
}

} // namespace collwire::report
