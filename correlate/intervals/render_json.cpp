// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/foreign_text.h"
#include "correlate/intervals/render.h"
#include "correlate/rows/row_sink.h"

namespace collwire::intervals {
namespace {

using Json = nlohmann::ordered_json;

constexpr int SCHEMA_VERSION = 1;

// Rows as objects; a flag is 0 or 1, as in SQLite.
class JsonRows : public rows::RowSink {
public:
    void put_cells(const rows::TableInfo &table, std::span<const rows::Cell> cells) override {
        Json row;
        for (std::size_t i = 0; i < cells.size(); ++i)
            row[std::string(table.columns[i].name)] = std::visit(
                [](const auto &value) -> Json {
                    using Value = std::decay_t<decltype(value)>;
                    if constexpr (std::is_same_v<Value, std::monostate>)
                        return nullptr;
                    else if constexpr (std::is_same_v<Value, std::string_view>)
                        return std::string(value);
                    else
                        return value;
                },
                cells[i]);
        rows_.push_back(std::move(row));
    }
    [[nodiscard]] Json take() { return std::exchange(rows_, Json::array()); }

private:
    Json rows_ = Json::array();
};

template <typename Row> Json all_of(const std::vector<Row> &of) {
    JsonRows sink;
    for (const Row &row : of)
        rows::put(sink, row);
    return sink.take();
}

std::string text_of(const Json &json) {
    return escaped_json(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

} // namespace

std::string JsonParts::head() const {
    const Json head = {
        {"schema", "collwire-intervals"},      {"schema_version", SCHEMA_VERSION},
        {"tool_version", tool_version_},       {"begin_realtime_ns", recorded_.begin_ns},
        {"end_realtime_ns", recorded_.end_ns}, {"every_ns", recorded_.every_ns}};
    std::string text = text_of(head);
    text.back() = ','; // the object goes on
    return text + "\n\"intervals\":[";
}

std::string JsonParts::part(const Interval &interval) {
    lost_records_ = std::max(lost_records_, interval.lost_records);
    JsonRows sink;
    rows::put(sink, interval.row);
    Json one = std::move(sink.take()[0]);
    one["tiers"] = all_of(interval.tiers);
    one["ports"] = all_of(interval.ports);
    one["communicators"] = all_of(interval.comms);
    return (std::exchange(has_part_, true) ? ",\n" : "\n") + text_of(one);
}

std::string JsonParts::end() const {
    return fmt::format("\n],\"lost_records\":{}}}\n", lost_records_);
}

} // namespace collwire::intervals
