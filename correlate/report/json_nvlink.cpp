// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/json_nvlink.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

#include "correlate/capture/nvlink_names.h"
#include "correlate/capture/reader.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/nvlink_text.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Model;

namespace {

constexpr std::uint16_t DATA_TX = 138, GET_SPEED = 164, GET_STATE = 165;
constexpr std::size_t TREND_PARTS = 6;

Json value_json(const std::optional<std::uint64_t> &value) {
    return value ? Json(*value) : Json(nullptr);
}

Json link_json(const gpu::NvlinkHistory &history, std::uint16_t link) {
    Json counters = Json::object();
    for (const auto &[place, counter] : history.link_counters()) {
        if (place.first != link)
            continue;
        const auto parts =
            gpu::nvlink_trend(counter.growths, history.first_ns(), history.last_ns(), TREND_PARTS);
        counters[std::string(capture::nvml_field_name(place.second))] = {
            {"value", counter.counter.last()},
            {"increase", counter.counter.increase()},
            {"restarts", counter.counter.restarts()},
            {"trend", parts},
            {"rising", gpu::is_rising(parts)}};
    }
    const auto state = history.value(GET_STATE, link);
    return {{"link", link},
            {"active", state ? Json(*state == 1) : Json(nullptr)},
            {"speed_mbytes_per_s", value_json(history.value(GET_SPEED, link))},
            {"counters", std::move(counters)}};
}

Json window_json(const gpu::NvlinkWindow &window) {
    return {{"begin_ns", window.begin_ns},
            {"end_ns", window.end_ns},
            {"modelled_tx_bytes", window.modelled_tx_bytes},
            {"modelled_rx_bytes", window.modelled_rx_bytes},
            {"measured_tx_bytes", window.measured_tx_bytes},
            {"measured_rx_bytes", window.measured_rx_bytes},
            {"unexplained_tx_bytes", window.unexplained_tx_bytes()},
            {"unexplained_rx_bytes", window.unexplained_rx_bytes()},
            {"bound_tx_bytes", window.bound_tx_bytes},
            {"bound_rx_bytes", window.bound_rx_bytes},
            {"idle_edges", window.has_idle_edges},
            {"measured_is_lower_bound", window.is_lower_bound},
            {"modelled_is_lower_bound", window.is_modelled_lower_bound}};
}

Json totals_json(const gpu::NvlinkTotals &total) {
    return {{"windows", total.windows},
            {"idle_edges", total.idle_edges},
            {"within_bound", total.within_bound},
            {"lower_bounds", total.lower_bounds},
            {"modelled_tx_bytes", total.modelled_tx_bytes},
            {"modelled_rx_bytes", total.modelled_rx_bytes},
            {"measured_tx_bytes", total.measured_tx_bytes},
            {"measured_rx_bytes", total.measured_rx_bytes},
            {"bound_tx_bytes", total.bound_tx_bytes},
            {"bound_rx_bytes", total.bound_rx_bytes}};
}

Json not_measured_json(const gpu::NvlinkHistory &history) {
    const gpu::NvlinkAnswer *answer = history.answer(DATA_TX, CW_NVLINK_ALL_LINKS);
    if (history.byte_source() || answer == nullptr)
        return nullptr;
    return answer->result == 0 ? Json("not a counter")
                               : text_or_null(capture::nvml_result_name(answer->result));
}

Json gpu_json(const Model &model, const nccl::NvlinkGpu &gpu) {
    const nccl::GatheredNvlink &from = model.nccl.gathered.nvlink_gpus[gpu.gathered];
    const gpu::NvlinkHistory &history = from.history;
    const auto &source = history.byte_source();
    const bool is_measured = source && !history.readings().empty();
    Json links = Json::array();
    for (std::uint16_t link = 0;
         link < std::min<std::uint32_t>(from.record.links, history.MAX_LINKS); ++link)
        links.push_back(link_json(history, link));
    Json windows = nullptr, totals = nullptr;
    if (gpu.windows) {
        totals = totals_json(gpu::total_of(*gpu.windows));
        windows = Json::array();
        for (const gpu::NvlinkWindow &window : *gpu.windows)
            windows.push_back(window_json(window));
    }
    return {{"host", model.hosts[gpu.host].name},
            {"pci_address", nccl::bus_id_text(from.record.bus_id)},
            {"uuid", text_or_null(capture::text_of(from.record.uuid))},
            {"name", text_or_null(capture::text_of(from.record.name))},
            {"driver", text_or_null(capture::text_of(from.record.driver))},
            {"links", std::move(links)},
            {"samples", history.samples()},
            {"unmeasured_ns", gpu.unmeasured_ns},
            {"counter",
             source ? text_or_null(capture::nvml_field_name(source->tx_field)) : Json(nullptr)},
            {"includes", source ? text_or_null(nccl::nvlink_source_name(*source)) : Json(nullptr)},
            {"not_measured", not_measured_json(history)},
            {"tx_bytes", is_measured ? Json(gpu.measured_tx_bytes) : Json(nullptr)},
            {"rx_bytes", is_measured ? Json(gpu.measured_rx_bytes) : Json(nullptr)},
            {"lower_bound", gpu.is_lower_bound},
            {"totals", std::move(totals)},
            {"windows", std::move(windows)}};
}

Json error_json(const Model &model, const nccl::XidError &error) {
    const cw_xid &xid = error.record;
    Json registers = Json::array();
    for (std::uint32_t i = 0; i < std::min<std::uint32_t>(xid.n_registers, CW_XID_REGISTERS); ++i)
        registers.push_back(xid.registers[i]);
    return {{"host", model.hosts[error.host].name},
            {"pci_address", nccl::bus_id_text(xid.bus_id)},
            {"realtime_ns", error.realtime_ns},
            {"uncertainty_ns", error.uncertainty_ns},
            {"before_recording", (xid.flags & CW_XID_BEFORE) != 0},
            {"xid", xid.xid},
            {"link", xid.link < 0 ? Json(nullptr) : Json(xid.link)},
            {"unit", text_or_null(capture::text_of(xid.unit))},
            {"severity", (xid.flags & CW_XID_FATAL) != 0      ? Json("fatal")
                         : (xid.flags & CW_XID_NONFATAL) != 0 ? Json("nonfatal")
                                                              : Json(nullptr)},
            {"pid", number_or_null(xid.pid)},
            {"caused_by", number_or_null(xid.caused_by)},
            {"registers", std::move(registers)},
            {"text", text_or_null(capture::text_of(xid.text))}};
}

Json failure_json(const Model &model, const nccl::NvlinkFailureFacts &of) {
    Json operations = Json::array();
    for (const nccl::OperationAtFailure &at : of.operations) {
        const nccl::Operation &operation =
            (at.is_pair ? model.nccl.p2p : model.nccl.collectives)[at.operation];
        operations.push_back({{"op", nccl::func_text(operation.func)},
                              {"comm", operation.comm},
                              {"seq", operation.seq},
                              {"in_flight", at.is_in_flight ? Json(true) : Json(nullptr)}});
    }
    return {{"cause", nccl::nvlink_cause_name(of.failure.cause)},
            {"first", of.failure.first},
            {"others", of.failure.others},
            {"errors", of.failure.errors},
            {"gpus", of.failure.gpus},
            {"operations", std::move(operations)},
            {"what", nccl::nvlink_failure_text(model, of)}};
}

} // namespace

Json nvlink_json(const Model &model) {
    const nccl::NvlinkFacts &nvlink = model.nccl.nvlink;
    if (!nvlink.is_recorded())
        return nullptr;
    Json gpus = Json::array(), errors = Json::array(), failures = Json::array();
    for (const nccl::NvlinkGpu &gpu : nvlink.gpus)
        gpus.push_back(gpu_json(model, gpu));
    for (const nccl::XidError &error : nvlink.errors)
        errors.push_back(error_json(model, error));
    for (const nccl::NvlinkFailureFacts &failure : nvlink.failures)
        failures.push_back(failure_json(model, failure));
    return {
        {"gpus", std::move(gpus)}, {"xids", std::move(errors)}, {"failures", std::move(failures)}};
}

} // namespace collwire::report
