// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/foreign_text.h"
#include "userspace/nccl/layout/library_layout.h"

namespace collwire::nccl {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t INDENT = 2;
constexpr unsigned LEVELS_WITH_LINES = 2; // a field, a probe, an offset a line

constexpr std::array RUNGS{Certainty::Exact, Certainty::Inferred, Certainty::Process};

Json text_or_null(std::string_view text) {
    return text.empty() ? Json(nullptr) : Json(text);
}

std::string text_of(const Json &value) {
    return value.is_null() ? std::string{} : value.get<std::string>();
}

// Names come from the library: bytes that are not UTF-8 are replaced, and do not throw.
std::string scalar_text(const Json &value) {
    return escaped_json(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// As JSON: the members of the outermost `levels` objects and arrays on a line each.
void write(std::string &out, const Json &value, unsigned levels, std::size_t indent = 0) {
    if (!value.is_structured() || value.empty()) {
        out += scalar_text(value);
        return;
    }
    const bool has_lines = levels != 0;
    const std::size_t inner = indent + INDENT;
    out += value.is_object() ? '{' : '[';
    bool is_first = true;
    for (const auto &[name, member] : value.items()) {
        if (!std::exchange(is_first, false))
            out += has_lines ? "," : ", ";
        if (has_lines)
            out.append("\n").append(inner, ' ');
        if (value.is_object())
            out += scalar_text(name) + ": ";
        write(out, member, has_lines ? levels - 1 : 0, inner);
    }
    if (has_lines)
        out.append("\n").append(indent, ' ');
    out += value.is_object() ? '}' : ']';
}

Certainty rung_of(const std::string &name) {
    for (const Certainty rung : RUNGS)
        if (certainty_name(rung) == name)
            return rung;
    throw std::invalid_argument("rung " + name);
}

// Lists of [address, number of a function, hash], and of [address, number of a function, offset].
Json json_of(const CodeIdentity &code) {
    Json entries = Json::array();
    for (const auto &[address, function] : code.entries)
        entries.push_back({address, function.number, function.hash});
    Json references = Json::array();
    for (const auto &[address, place] : code.references)
        references.push_back({address, place.function, place.offset_bytes});
    Json pointers = Json::array();
    for (const auto &[address, place] : code.pointers)
        pointers.push_back({address, place.function, place.offset_bytes});
    return {{"begin", code.begin},
            {"bytes", code.bytes},
            {"bytes_sha256", code.bytes_sha256},
            {"functions_sha256", code.functions_sha256},
            {"functions", code.n_functions},
            {"entries", std::move(entries)},
            {"references", std::move(references)},
            {"pointers", std::move(pointers)}};
}

CodeIdentity code_of(const Json &value) {
    CodeIdentity code;
    code.begin = value.at("begin").get<std::uint64_t>();
    code.bytes = value.at("bytes").get<std::uint64_t>();
    code.bytes_sha256 = value.at("bytes_sha256").get<std::string>();
    code.functions_sha256 = value.at("functions_sha256").get<std::string>();
    code.n_functions = value.at("functions").get<std::uint32_t>();
    for (const Json &entry : value.at("entries"))
        code.entries.emplace(
            entry.at(0).get<std::uint64_t>(),
            KnownFunction{entry.at(1).get<std::uint32_t>(), entry.at(2).get<std::uint32_t>()});
    for (const auto &[name, places] :
         {std::pair{"references", &code.references}, std::pair{"pointers", &code.pointers}})
        for (const Json &place : value.at(name))
            places->emplace(
                place.at(0).get<std::uint64_t>(),
                CodePlace{place.at(1).get<std::uint32_t>(), place.at(2).get<std::uint32_t>()});
    return code;
}

LibraryLayout layout_of(const Json &document) {
    LibraryLayout layout;
    layout.file = document.at("file").get<std::string>();
    layout.version = text_of(document.at("version"));
    layout.build_id = text_of(document.at("build_id"));
    layout.debug_link = text_of(document.at("debug_link"));
    layout.debug_file = text_of(document.at("debug_file"));
    if (const auto fits_by = document.find("fits_by"); fits_by != document.end())
        layout.fits_by = text_of(*fits_by);
    layout.has_symbol_table = document.at("symbol_table").get<bool>();
    layout.has_debug_types = document.at("debug_types").get<bool>();
    layout.not_recorded = text_of(document.at("not_recorded"));
    // Layouts that were saved before this field existed are of whole files.
    if (const auto calls_only = document.find("calls_only"); calls_only != document.end())
        layout.calls_only = text_of(*calls_only);
    for (const auto &[name, value] : document.at("capabilities").items())
        layout.capabilities.push_back({name, rung_of(value.at("rung").get<std::string>()),
                                       text_of(value.at("source")),
                                       value.at("missing").get<std::vector<std::string>>()});
    for (const Json &value : document.at("probes"))
        layout.probes.push_back(
            {value.at("function").get<std::string>(), value.at("symbol").get<std::string>(),
             value.at("entry").get<std::uint64_t>(), value.at("address").get<std::uint64_t>(),
             value.at("offset").get<std::uint64_t>(), value.at("instruction").get<std::string>(),
             value.at("emulated").get<bool>(),
             value.at("registers").get<std::map<std::string, std::string>>()});
    for (const auto &[name, value] : document.at("offsets").items())
        layout.offsets.emplace(name, FieldOffset{value.at("value").get<std::uint64_t>(),
                                                 value.at("size_bytes").get<std::uint64_t>(),
                                                 value.at("elements").get<std::uint64_t>(),
                                                 value.at("source").get<std::string>()});
    layout.data = document.at("data").get<std::map<std::string, std::uint64_t>>();
    layout.parameters = document.at("parameters").get<std::map<std::string, std::uint64_t>>();
    layout.enumerators = document.at("enumerators").get<std::map<std::string, std::int64_t>>();
    if (const auto functions = document.find("host_functions"); functions != document.end())
        for (const auto &[name, pieces] : functions->items())
            for (const Json &piece : pieces)
                layout.host_functions[name].push_back(
                    {piece.at(0).get<std::uint64_t>(), piece.at(1).get<std::uint64_t>()});
    // Layouts that were saved before this field existed fit their own build-id alone.
    if (const auto code = document.find("code"); code != document.end())
        layout.code = code_of(*code);
    return layout;
}

} // namespace

std::string_view certainty_name(Certainty rung) {
    switch (rung) {
    case Certainty::Exact:
        return "exact";
    case Certainty::Inferred:
        return "inferred";
    case Certainty::Process:
        break;
    }
    return "process";
}

const Capability *find_capability(const LibraryLayout &layout, std::string_view name) {
    for (const Capability &capability : layout.capabilities)
        if (capability.name == name)
            return &capability;
    return nullptr;
}

std::string render_json(const LibraryLayout &layout, std::string_view tool_version) {
    Json capabilities = Json::object();
    for (const Capability &capability : layout.capabilities)
        capabilities[capability.name] = {{"rung", certainty_name(capability.rung)},
                                         {"source", text_or_null(capability.source)},
                                         {"missing", capability.missing}};
    Json probes = Json::array();
    for (const ProbedFunction &probe : layout.probes)
        probes.push_back({{"function", probe.function},
                          {"symbol", probe.symbol},
                          {"entry", probe.entry},
                          {"address", probe.address},
                          {"offset", probe.file_offset},
                          {"instruction", probe.instruction},
                          {"emulated", probe.emulated},
                          {"registers", probe.registers},
                          {"placed", text_or_null(placed_name(placed_when(layout, probe)))}});
    Json offsets = Json::object();
    for (const auto &[name, offset] : layout.offsets)
        offsets[name] = {{"value", offset.value},
                         {"size_bytes", offset.size_bytes},
                         {"elements", offset.elements},
                         {"source", offset.source}};
    Json functions = Json::object();
    for (const auto &[name, pieces] : layout.host_functions)
        for (const CodePiece &piece : pieces)
            functions[name].push_back(Json::array({piece.address, piece.bytes}));
    Json document = {{"schema", "collwire-nccl-plan"},
                     {"schema_version", layout_schema_version},
                     {"tool_version", tool_version},
                     {"file", layout.file},
                     {"version", text_or_null(layout.version)},
                     {"build_id", text_or_null(layout.build_id)},
                     {"debug_link", text_or_null(layout.debug_link)},
                     {"debug_file", text_or_null(layout.debug_file)},
                     {"symbol_table", layout.has_symbol_table},
                     {"debug_types", layout.has_debug_types},
                     {"not_recorded", text_or_null(layout.not_recorded)},
                     {"calls_only", text_or_null(layout.calls_only)},
                     {"capabilities", std::move(capabilities)},
                     {"probes", std::move(probes)},
                     {"offsets", std::move(offsets)},
                     {"data", layout.data},
                     {"parameters", layout.parameters},
                     {"enumerators", layout.enumerators},
                     {"host_functions", std::move(functions)}};
    if (!layout.fits_by.empty())
        document["fits_by"] = layout.fits_by;
    if (layout.code.is_known())
        document["code"] = json_of(layout.code);
    std::string text;
    write(text, document, LEVELS_WITH_LINES);
    return text + "\n";
}

Result<LibraryLayout> parse_layout(std::string_view json) {
    try {
        const Json document = Json::parse(json);
        if (document.at("schema") != "collwire-nccl-plan" ||
            document.at("schema_version") != layout_schema_version)
            return error(ErrorKind::BadInput,
                         "not a layout of this version of collwire. Fix: make it again with "
                         "`collwire doctor --nccl FILE --json`");
        return layout_of(document);
    } catch (const std::exception &problem) {
        return error(ErrorKind::BadInput, fmt::format("not a layout: {}", problem.what()));
    }
}

} // namespace collwire::nccl
