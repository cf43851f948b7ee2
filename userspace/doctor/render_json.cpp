// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/foreign_text.h"
#include "collwire/node_records.h"
#include "userspace/doctor/report.h"

namespace collwire::doctor {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(std::string_view text) {
    return text.empty() ? Json(nullptr) : Json(text);
}

Json counters_of(const DoctorReport &report, const inventory::RdmaDevice &device,
                 const inventory::RdmaPort &port) {
    for (const OptionalCounters &entry : report.optional_counters) {
        if (entry.device != device.name || entry.port != port.record.port)
            continue;
        Json list = Json::array();
        for (const netlink::OptionalCounter &counter : entry.counters)
            list.push_back({{"name", counter.name}, {"enabled", counter.enabled}});
        return list;
    }
    return Json::array();
}

Json port_of(const DoctorReport &report, const inventory::RdmaDevice &device,
             const inventory::RdmaPort &port) {
    const cw_port &record = port.record;
    const std::string_view link_layer = record.link_layer == CW_LINK_INFINIBAND ? "InfiniBand"
                                        : record.link_layer == CW_LINK_ETHERNET ? "Ethernet"
                                                                                : "";
    return {{"port", record.port},
            {"link_layer", text_or_null(link_layer)},
            {"state", record.state == 0 ? Json(nullptr) : Json(record.state)},
            {"rate_mbps", record.rate_mbps == 0 ? Json(nullptr) : Json(record.rate_mbps)},
            {"netdev", text_or_null(record.netdev)},
            {"carrier", record.carrier == 2 ? Json(nullptr) : Json(record.carrier == 1)},
            {"gids", port.gids.size()},
            {"optional_counters", counters_of(report, device, port)}};
}

Json device_of(const DoctorReport &report, const inventory::RdmaDevice &device) {
    const cw_device &record = device.record;
    Json ports = Json::array();
    for (const inventory::RdmaPort &port : device.ports)
        ports.push_back(port_of(report, device, port));
    return {{"name", device.name},
            {"index", device.indexed ? Json(record.dev_index) : Json(nullptr)},
            {"driver", text_or_null(record.driver)},
            {"firmware", text_or_null(record.firmware)},
            {"pci_address", text_or_null(record.pci_address)},
            {"numa_node", record.numa_node < 0 ? Json(nullptr) : Json(record.numa_node)},
            {"node_guid", fmt::format("{:016x}", record.node_guid)},
            {"software", (record.flags & CW_DEVICE_SOFTWARE) != 0},
            {"foreign_module", (record.flags & CW_DEVICE_FOREIGN_MODULE) != 0},
            {"ports", std::move(ports)}};
}

} // namespace

std::string render_json(const DoctorReport &report, std::string_view tool_version) {
    Json checks = Json::array();
    for (const Check &check : report.checks)
        checks.push_back({{"name", check.name},
                          {"state", state_name(check.state)},
                          {"found", check.found},
                          {"effect", text_or_null(check.effect)},
                          {"fix", text_or_null(check.fix)},
                          {"permission", check.permission},
                          {"code", check.state == CheckState::Ok ? Json(nullptr)
                                                                 : Json(entry_of(check.code).name)},
                          {"fix_cost", check.state == CheckState::Ok
                                           ? Json(nullptr)
                                           : Json(cost_name(entry_of(check.code).cost))}});
    Json sources = Json::array();
    for (const SourceOutlook &source : report.sources)
        sources.push_back({{"name", source.name},
                           {"what", source.what},
                           {"state", state_name(source.state)},
                           {"because", source.because}});
    Json devices = Json::array();
    for (const inventory::RdmaDevice &device : report.devices)
        devices.push_back(device_of(report, device));
    const Json document = {
        {"schema", "collwire-doctor"},   {"schema_version", doctor_schema_version},
        {"tool_version", tool_version},  {"host", report.host},
        {"kernel", report.kernel},       {"exit_status", report.exit_status},
        {"sources", std::move(sources)}, {"checks", std::move(checks)},
        {"devices", std::move(devices)}};
    // Names come from system files: bytes that are not UTF-8 must not throw.
    return escaped_json(document.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n";
}

} // namespace collwire::doctor
