// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/record_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "collwire/nvlink_records.h"
#include "collwire/port_records.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/fields.h"
#include "correlate/capture/kinds.h"
#include "correlate/capture/nvlink_names.h"
#include "correlate/capture/reader.h"

namespace collwire::cli {
namespace {

using capture::Field;
using capture::FieldType;
using Json = nlohmann::ordered_json;
using ByteSpan = std::span<const std::byte>;

std::uint64_t load_unsigned(ByteSpan bytes) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), std::min(sizeof(value), bytes.size()));
    return value;
}

std::int64_t load_signed(ByteSpan bytes) {
    const unsigned unused_bits = 64 - 8 * static_cast<unsigned>(bytes.size());
    return static_cast<std::int64_t>(load_unsigned(bytes) << unused_bits) >> unused_bits;
}

// The format of GIDs in sysfs.
std::string gid_text(ByteSpan gid) {
    std::string text;
    for (std::size_t i = 0; i < gid.size(); i++)
        text += fmt::format("{}{:02x}", i > 0 && i % 2 == 0 ? ":" : "",
                            std::to_integer<unsigned>(gid[i]));
    return text;
}

std::string mac_text(ByteSpan mac) {
    std::string text;
    for (std::size_t i = 0; i < 6; i++)
        text += fmt::format("{}{:02x}", i > 0 ? ":" : "", std::to_integer<unsigned>(mac[i]));
    return text;
}

std::string field_text(ByteSpan field) {
    const auto *text = reinterpret_cast<const char *>(field.data());
    return {text, strnlen(text, field.size())};
}

void add_fields(Json &object, std::span<const Field> fields, ByteSpan bytes);

Json element_json(const Field &field, ByteSpan bytes) {
    if (field.type == FieldType::Signed)
        return load_signed(bytes);
    if (field.type != FieldType::Struct)
        return load_unsigned(bytes);
    Json object = Json::object();
    add_fields(object, field.fields, bytes);
    return object;
}

// An array with named indices becomes an object.
Json array_json(const Field &field, ByteSpan bytes, std::uint64_t used) {
    const std::size_t element_bytes = field.size_bytes / field.count;
    Json result = field.name_of != nullptr ? Json::object() : Json::array();
    for (std::size_t i = 0; i < std::min<std::uint64_t>(field.count, used); i++) {
        if (field.name_of != nullptr && field.name_of(i).empty())
            continue; // reserved
        Json element = element_json(field, bytes.subspan(i * element_bytes, element_bytes));
        if (field.name_of != nullptr)
            result[std::string(field.name_of(i))] = std::move(element);
        else
            result.push_back(std::move(element));
    }
    return result;
}

void add_names(Json &object, const Field &field, const std::string &name, std::uint64_t value) {
    if (field.name_of != nullptr && !field.name_of(value).empty())
        object[name + "_name"] = field.name_of(value);
    if (field.flag_names == nullptr)
        return;
    Json names = Json::array();
    for (const auto &flag : field.flag_names())
        if ((value & flag.number) != 0)
            names.push_back(flag.name);
    object[name + "_names"] = std::move(names);
}

void add_fields(Json &object, std::span<const Field> fields, ByteSpan bytes) {
    for (const Field &field : fields) {
        if (field.type == FieldType::Reserved)
            continue;
        if (field.offset_bytes + field.size_bytes > bytes.size())
            return;
        const ByteSpan value = bytes.subspan(field.offset_bytes, field.size_bytes);
        const std::string name(field.name);
        switch (field.type) {
        case FieldType::Text:
            object[name] = field_text(value);
            break;
        case FieldType::Gid:
            object[name] = gid_text(value);
            break;
        case FieldType::Mac:
            object[name] = mac_text(value);
            break;
        default:
            if (field.count > 1) {
                const ByteSpan used = bytes.subspan(field.used_offset_bytes, field.used_size_bytes);
                object[name] =
                    array_json(field, value, used.empty() ? field.count : load_unsigned(used));
                break;
            }
            object[name] = element_json(field, value);
            if (field.type == FieldType::Unsigned)
                add_names(object, field, name, load_unsigned(value));
        }
    }
}

// A value of a type that is not a number NVML's fields have is left to the reader.
Json nvlink_values_json(ByteSpan record) {
    Json values = Json::array();
    for (const cw_nvlink_value &value : capture::nvlink_values_of(record)) {
        Json object = {
            {"field", value.field},
            {"field_name", capture::nvml_field_name(value.field)},
            {"link", value.link == CW_NVLINK_ALL_LINKS ? Json(nullptr) : Json(value.link)},
            {"type", value.type},
            {"result", value.result}};
        if (value.result != 0)
            object["result_name"] = capture::nvml_result_name(value.result);
        object["value"] = value.result == 0 ? Json(value.value) : Json(nullptr);
        values.push_back(std::move(object));
    }
    return values;
}

} // namespace

Json record_json(const cw_header &header, ByteSpan record) {
    Json object = Json::object();
    const std::string_view kind = capture::kind_name(header.kind);
    object["kind"] = kind.empty() ? Json(header.kind) : Json(kind);
    object["time_ns"] = header.time_ns;
    object["cpu"] = header.cpu == CW_CPU_USERSPACE ? Json(nullptr) : Json(header.cpu);
    if (const auto *layout = capture::layout_of(header.kind))
        add_fields(object, layout->fields, record);
    // Every kind of struct cw_qp_event has the field, but only one kind uses it.
    if (header.kind != CW_KIND_QP_ERROR && header.kind != CW_KIND_ASYNC_EVENT)
        object.erase("event_name");
    if (header.kind == CW_KIND_COUNTER_SAMPLES) {
        Json samples = Json::array();
        for (const cw_counter_sample &sample : capture::samples_of(record))
            samples.push_back({{"id", sample.id}, {"value", sample.value}});
        object["samples"] = std::move(samples);
    }
    if (header.kind == CW_KIND_NVLINK_SAMPLE)
        object["values"] = nvlink_values_json(record);
    if (header.kind == CW_KIND_NCCL_CHANNEL)
        object["order"] = capture::order_of(record);
    return object;
}

} // namespace collwire::cli
