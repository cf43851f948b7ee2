// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/json_clocks.h"

#include <nlohmann/json.hpp>

namespace collwire::report {

namespace {

template <typename T> Json value_or_null(const std::optional<T> &value) {
    return value ? Json(*value) : Json(nullptr);
}

} // namespace

Json clock_json(const model::Model &model, const nccl::HostClock &clock) {
    Json windows = Json::array();
    for (const nccl::ClockWindow &window : clock.windows)
        windows.push_back({{"reference_ns", window.reference_ns},
                           {"least_ns", window.monotonic.least_ns},
                           {"most_ns", window.monotonic.most_ns},
                           {"ahead_least_ns", window.ahead.least_ns},
                           {"ahead_most_ns", window.ahead.most_ns}});
    const bool is_calibrated = clock.reference != model::NONE;
    return {{"host", model.hosts[clock.host].name},
            {"calibration", nccl::calibration_name(clock.calibration)},
            {"reference", is_calibrated ? Json(model.hosts[clock.reference].name) : Json(nullptr)},
            {"constraints", clock.constraints},
            {"typical_error_ns", value_or_null(clock.typical_error_ns)},
            {"worst_error_ns", value_or_null(clock.worst_error_ns)},
            {"drift_least_ppb", clock.drift_ppb ? Json(clock.drift_ppb->least_ns) : Json(nullptr)},
            {"drift_most_ppb", clock.drift_ppb ? Json(clock.drift_ppb->most_ns) : Json(nullptr)},
            {"windows", std::move(windows)}};
}

Json clock_contradiction_json(const model::Model &model,
                              const clocks::ClockContradiction &contradiction) {
    return {{"host_a", model.hosts[contradiction.a].name},
            {"host_b", model.hosts[contradiction.b].name},
            {"reference_ns", contradiction.reference_ns},
            {"by_ns", contradiction.by_ns}};
}

} // namespace collwire::report
