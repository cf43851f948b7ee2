// SPDX-License-Identifier: Apache-2.0
// One JSON object per object of the model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "correlate/model/model.h"

namespace collwire::report {

using Json = nlohmann::ordered_json;

[[nodiscard]] Json text_or_null(std::string_view text);
[[nodiscard]] Json number_or_null(std::uint64_t value); // null for 0
[[nodiscard]] Json known(const model::Known &value);    // null if not measured
[[nodiscard]] Json sums_json(const model::Sums &sums);
[[nodiscard]] Json tiers_json(const model::Model &model);
[[nodiscard]] Json host_json(const model::Model &model, model::Index index);
[[nodiscard]] Json capture_json(const model::Model &model, const model::Capture &capture);
[[nodiscard]] Json process_json(const model::Model &model, const model::ProcessSums &sums);
[[nodiscard]] Json node_pair_json(const model::NodePair &pair);
[[nodiscard]] Json port_json(const model::Model &model, model::Index index);
[[nodiscard]] Json event_json(const model::Model &model, const model::Event &event);
[[nodiscard]] Json qp_json(const model::Model &model, const model::Qp &qp);

} // namespace collwire::report
