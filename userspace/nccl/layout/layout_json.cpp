// SPDX-License-Identifier: Apache-2.0
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "userspace/nccl/layout/library_layout.h"

namespace collwire::nccl {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array RUNGS{Rung::Exact, Rung::Inferred, Rung::Process};

Json text_or_null(std::string_view text) {
    return text.empty() ? Json(nullptr) : Json(text);
}

std::string text_of(const Json &value) {
    return value.is_null() ? std::string{} : value.get<std::string>();
}

Rung rung_of(const std::string &name) {
    for (const Rung rung : RUNGS)
        if (rung_name(rung) == name)
            return rung;
    throw std::invalid_argument("rung " + name);
}

Plan plan_of(const Json &document) {
    Plan plan;
    plan.file = document.at("file").get<std::string>();
    plan.version = text_of(document.at("version"));
    plan.build_id = text_of(document.at("build_id"));
    plan.debug_link = text_of(document.at("debug_link"));
    plan.debug_file = text_of(document.at("debug_file"));
    plan.has_symbol_table = document.at("symbol_table").get<bool>();
    plan.has_debug_types = document.at("debug_types").get<bool>();
    plan.not_recorded = text_of(document.at("not_recorded"));
    // Plans that were kept before there was such a field are of whole files.
    if (const auto calls_only = document.find("calls_only"); calls_only != document.end())
        plan.calls_only = text_of(*calls_only);
    for (const auto &[name, value] : document.at("capabilities").items())
        plan.capabilities.push_back({name, rung_of(value.at("rung").get<std::string>()),
                                     text_of(value.at("source")),
                                     value.at("missing").get<std::vector<std::string>>()});
    for (const Json &value : document.at("probes"))
        plan.probes.push_back(
            {value.at("function").get<std::string>(), value.at("symbol").get<std::string>(),
             value.at("entry").get<std::uint64_t>(), value.at("address").get<std::uint64_t>(),
             value.at("offset").get<std::uint64_t>(), value.at("instruction").get<std::string>(),
             value.at("emulated").get<bool>(),
             value.at("registers").get<std::map<std::string, std::string>>()});
    for (const auto &[name, value] : document.at("offsets").items())
        plan.offsets.emplace(name, PlannedOffset{value.at("value").get<std::uint64_t>(),
                                                 value.at("size_bytes").get<std::uint64_t>(),
                                                 value.at("elements").get<std::uint64_t>(),
                                                 value.at("source").get<std::string>()});
    plan.data = document.at("data").get<std::map<std::string, std::uint64_t>>();
    plan.parameters = document.at("parameters").get<std::map<std::string, std::uint64_t>>();
    plan.enumerators = document.at("enumerators").get<std::map<std::string, std::int64_t>>();
    return plan;
}

} // namespace

std::string_view rung_name(Rung rung) {
    switch (rung) {
    case Rung::Exact:
        return "exact";
    case Rung::Inferred:
        return "inferred";
    case Rung::Process:
        break;
    }
    return "process";
}

const Capability *find_capability(const Plan &plan, std::string_view name) {
    for (const Capability &capability : plan.capabilities)
        if (capability.name == name)
            return &capability;
    return nullptr;
}

std::string render_json(const Plan &plan, std::string_view tool_version) {
    Json capabilities = Json::object();
    for (const Capability &capability : plan.capabilities)
        capabilities[capability.name] = {{"rung", rung_name(capability.rung)},
                                         {"source", text_or_null(capability.source)},
                                         {"missing", capability.missing}};
    Json probes = Json::array();
    for (const PlannedFunction &probe : plan.probes)
        probes.push_back({{"function", probe.function},
                          {"symbol", probe.symbol},
                          {"entry", probe.entry},
                          {"address", probe.address},
                          {"offset", probe.file_offset},
                          {"instruction", probe.instruction},
                          {"emulated", probe.emulated},
                          {"registers", probe.registers},
                          {"placed", text_or_null(placed_name(placed_when(plan, probe)))}});
    Json offsets = Json::object();
    for (const auto &[name, offset] : plan.offsets)
        offsets[name] = {{"value", offset.value},
                         {"size_bytes", offset.size_bytes},
                         {"elements", offset.elements},
                         {"source", offset.source}};
    const Json document = {{"schema", "collwire-nccl-plan"},
                           {"schema_version", plan_schema_version},
                           {"tool_version", tool_version},
                           {"file", plan.file},
                           {"version", text_or_null(plan.version)},
                           {"build_id", text_or_null(plan.build_id)},
                           {"debug_link", text_or_null(plan.debug_link)},
                           {"debug_file", text_or_null(plan.debug_file)},
                           {"symbol_table", plan.has_symbol_table},
                           {"debug_types", plan.has_debug_types},
                           {"not_recorded", text_or_null(plan.not_recorded)},
                           {"calls_only", text_or_null(plan.calls_only)},
                           {"capabilities", std::move(capabilities)},
                           {"probes", std::move(probes)},
                           {"offsets", std::move(offsets)},
                           {"data", plan.data},
                           {"parameters", plan.parameters},
                           {"enumerators", plan.enumerators}};
    // Names come from the file: bytes that are no UTF-8 must not throw.
    return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Plan> parse_plan(std::string_view json) {
    try {
        const Json document = Json::parse(json);
        if (document.at("schema") != "collwire-nccl-plan" ||
            document.at("schema_version") != plan_schema_version)
            return error(ErrorKind::BadInput,
                         "not a plan of this version of collwire. Fix: make it anew with "
                         "`collwire doctor --nccl FILE --json`");
        return plan_of(document);
    } catch (const std::exception &problem) {
        return error(ErrorKind::BadInput, fmt::format("not a plan: {}", problem.what()));
    }
}

} // namespace collwire::nccl
