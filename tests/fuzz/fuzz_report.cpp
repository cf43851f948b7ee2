// SPDX-License-Identifier: Apache-2.0
// From records to both reports, and to rows. The input is a stream of records as they lie in a
// block, checksums and compression left out; each NODE record begins another capture.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "correlate/against/comparison.h"
#include "correlate/against/render.h"
#include "correlate/against/run_rows.h"
#include "correlate/model/ingest.h"
#include "correlate/model/join.h"
#include "correlate/report/json_report.h"
#include "correlate/report/names.h"
#include "correlate/report/text_report.h"
#include "correlate/roles/guess_roles.h"
#include "correlate/rows/row_sink.h"
#include "correlate/stall/find_standing.h"
#include "correlate/stall/judge.h"
#include "correlate/tabulate/tabulate.h"
#include "correlate/verdict/render.h"

namespace {

using namespace collwire;

void require(bool condition) {
    if (!condition)
        std::abort();
}

const topology::Topology &fabric() {
    static const auto parsed = topology::parse_topology(R"({"collwire_topology": 1,
      "switches": [{"id": "spine0", "tier": "spine"}, {"id": "leaf0", "tier": "leaf", "uplinks": ["spine0"]},
                   {"id": "leaf1", "tier": "leaf", "uplinks": ["spine0"]}],
      "ports": [{"host": "node0", "device": "rxe0", "port": 1, "ip": "10.0.0.1", "switch": "leaf0"},
                {"host": "node1", "device": "rxe0", "port": 1, "ip": "10.0.0.2", "switch": "leaf0"},
                {"host": "node2", "device": "rxe0", "port": 1, "ip": "10.0.0.3", "switch": "leaf1"}]})");
    require(parsed.ok());
    return *parsed;
}

// Each cell is what its column declares.
class CheckingSink : public rows::RowSink {
public:
    void put_cells(const rows::TableInfo &table, std::span<const rows::Cell> cells) override {
        require(cells.size() == table.columns.size());
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const bool is_null = std::holds_alternative<std::monostate>(cells[i]);
            const bool is_text = std::holds_alternative<std::string_view>(cells[i]);
            require(!is_null || table.columns[i].is_nullable);
            require(is_null || is_text == (table.columns[i].type == rows::CellType::Text));
        }
        ++rows_;
    }
    std::size_t rows_ = 0;
};

model::Ingest ingest(std::span<const std::byte> data) {
    model::Ingest ingest;
    capture::ReadSummary summary;
    bool open = false;
    std::vector<std::byte> record;
    while (data.size() >= sizeof(cw_header)) {
        cw_header header;
        std::memcpy(&header, data.data(), sizeof(header));
        // A reader lets no other length through.
        header.length_bytes = static_cast<std::uint32_t>(
            std::clamp<std::size_t>(header.length_bytes, sizeof(header), data.size()) &
            ~std::size_t{7});
        record.assign(data.begin(), data.begin() + header.length_bytes);
        std::memcpy(record.data(), &header, sizeof(header));
        data = data.subspan(header.length_bytes);
        if (header.kind == CW_KIND_NODE || !open) {
            if (open)
                ingest.end_capture(summary);
            ingest.begin_capture("capture");
            summary = {};
            open = true;
        }
        ++summary.records;
        summary.last_time_ns = std::max<std::uint64_t>(summary.last_time_ns, header.time_ns);
        ingest.add(header, record);
    }
    if (open)
        ingest.end_capture(summary);
    return ingest;
}

// Against a run of half of the records, and against itself.
void require_comparison(const model::Model &model, std::span<const std::byte> half) {
    against::RunRows a, b;
    tabulate::tabulate(model, false, a);
    model::Model other = ingest(half).take();
    model::join(other, nullptr);
    tabulate::tabulate(other, false, b);
    const against::Comparison different = against::compare_runs(a, b);
    require(nlohmann::json::accept(against::render_json(different, "")));
    require(!against::render_text(different, {}).empty());
    require(different.matches.pairs.size() + different.matches.only_b.size() ==
            b.of<rows::CommunicatorRow>().size());
    const against::Comparison same = against::compare_runs(a, a);
    // What was lost is said of equal runs, too.
    require(std::ranges::all_of(same.differences, [](const against::Difference &one) {
        return one.topic == against::Topic::Recording;
    }));
}

} // namespace

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *bytes, std::size_t size) {
    model::Model model = ingest(std::as_bytes(std::span(bytes, size))).take();
    model::join(model, size % 2 == 0 ? &fabric() : nullptr);
    for (const model::Qp &qp : model.qps) {
        require((qp.bytes.rung == model::BytesRung::None) ==
                !qp.bytes.tx_payload_bytes.has_value());
        require((qp.pairing == model::Pairing::Paired) == (qp.peer != model::NONE));
        require(qp.peer == model::NONE || model.qps[qp.peer].peer != model::NONE);
    }
    const nccl::NcclFacts &nccl = model.nccl;
    require(nccl.qps.size() == model.qps.size());
    for (const nccl::Operation &operation : nccl.collectives) {
        require(operation.comm < nccl.communicators.size());
        require(operation.end_known == nccl::EndKnown::No ||
                (operation.least_duration_ns <= operation.most_duration_ns &&
                 operation.end_after_realtime_ns <= operation.end_before_realtime_ns));
    }
    for (const nccl::Communicator &comm : nccl.communicators)
        require(!comm.instances.empty());
    for (const nccl::Link &link : nccl.links)
        for (std::size_t i = 1; i < link.intervals.size(); ++i)
            require(link.intervals[i - 1].end <= link.intervals[i].begin);
    std::ostringstream json;
    report::write_json(model, json, {.detail = true});
    require(nlohmann::json::accept(json.str()));
    require(!report::text_report(model, {}).empty());
    CheckingSink sink;
    tabulate::tabulate(model, true, sink);
    require(sink.rows_ >= report::ALL_TIERS.size());
    const auto verdicts = stall::judge(stall::find_standing(model, roles::guess_roles(model)));
    require(nlohmann::json::accept(verdict::to_json(verdicts).dump(
        -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)));
    require_comparison(model, std::as_bytes(std::span(bytes, size / 2)));
    require(verdicts.empty() || !verdict::render_text(verdicts).empty());
    return 0;
}
