// SPDX-License-Identifier: Apache-2.0
// Holds docs/capture-format.md, the names of kinds and the tables of fields against records.h
// itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "collwire/records.h"
#include "correlate/capture/fields.h"
#include "correlate/capture/gpu_names.h"
#include "correlate/capture/kinds.h"
#include "correlate/capture/nccl_names.h"
#include "correlate/capture/nvlink_names.h"

namespace collwire::capture {
namespace {

std::string read_source(const std::string &name) {
    std::ifstream stream(COLLWIRE_SOURCE_DIR "/" + name);
    EXPECT_TRUE(stream) << name;
    return {std::istreambuf_iterator<char>(stream), {}};
}

// A search that gives the groups of every match.
std::vector<std::smatch> all_matches(const std::string &text, const std::regex &pattern) {
    return {std::sregex_iterator(text.begin(), text.end(), pattern), {}};
}

// How many there are, not one of them.
bool is_count(const std::string &enumerator) {
    static const std::set<std::string> COUNTS{"CW_NCCL_FUNCS", "CW_NCCL_PATTERNS",
                                              "CW_NCCL_CAPABILITIES", "CW_NCCL_SOCKET_TYPES"};
    return enumerator.ends_with("_CLASSES") || COUNTS.contains(enumerator);
}

// Never in a capture.
bool is_for_the_recorder(const std::string &name) {
    static const std::set<std::string> ALL{"CW_KIND_RECORDER",       "CW_KIND_FILE_MAPPED",
                                           "CW_KIND_TCP_SOCKET_END", "CW_KIND_COMPARED",
                                           "cw_file_mapped",         "cw_tcp_socket_end"};
    return ALL.contains(name);
}

// Between a traced process and the BPF program: never in a capture.
bool is_hand_over(const std::string &type) {
    return type == "cw_gpu_batch" || type == "cw_gpu_item";
}

using Fields = std::vector<std::pair<std::string, std::string>>; // name, type in the document

struct Header {
    std::map<std::string, Fields> structs; // without their headers, in order
    std::map<std::string, std::vector<std::pair<std::string, std::string>>> enums; // name, number
};

// Numbers that lengths of arrays are given by.
std::map<std::string, std::string> numbers_of(const std::string &text) {
    std::map<std::string, std::string> numbers;
    for (const auto &match :
         all_matches(text, std::regex(R"((?:#define\s+)?(CW_\w+)\s*(?:=\s*|\s)(\d+)\b)")))
        numbers[match[1]] = match[2];
    return numbers;
}

// "__u64", "CW_WIRE_CLASSES" as "u64[4]"; "char", "64" as "text[64]". `length` may be empty.
std::string documented_type(std::string type, const std::string &length,
                            const std::map<std::string, std::string> &numbers) {
    if (type.starts_with("__"))
        type.erase(0, 2);
    if (type == "char")
        type = "text";
    if (length.empty())
        return type;
    const auto found = numbers.find(length);
    return type + "[" + (found == numbers.end() ? length : found->second) + "]";
}

const Header &header() {
    static const Header PARSED = [] {
        Header parsed;
        const std::string umbrella = read_source("bpf/include/collwire/records.h");
        std::string text;
        for (const auto &include :
             all_matches(umbrella, std::regex(R"rx(#include "(collwire/\w+\.h)")rx")))
            text += read_source("bpf/include/" + include[1].str());
        text = std::regex_replace(text, std::regex(R"(/\*[^*]*(\*[^/][^*]*)*\*/)"), "");
        text = std::regex_replace(text, std::regex(R"(#ifndef __cplusplus\n[^#]*#endif)"), "");
        const auto numbers = numbers_of(text);
        for (const auto &match :
             all_matches(text, std::regex(R"((struct|enum) (cw_\w+) \{([^}]*)\};)"))) {
            const std::string body = match[3];
            if (is_hand_over(match[2]))
                continue;
            if (match[1] == "enum") {
                for (const auto &entry :
                     all_matches(body, std::regex(R"((CW_\w+)\s*=\s*([^,]+),)")))
                    if (!is_for_the_recorder(entry[1]))
                        parsed.enums[match[2]].emplace_back(entry[1], entry[2]);
                continue;
            }
            for (const auto &field :
                 all_matches(body, std::regex(R"(((?:struct )?\w+)\s+(\w+)(?:\[(\w+)\])?;)")))
                if (field[2] != "header" && !is_for_the_recorder(match[2]))
                    parsed.structs[match[2]].emplace_back(
                        field[2], documented_type(field[1], field[3], numbers));
        }
        return parsed;
    }();
    return PARSED;
}

// First and second cell of each row of the table below a heading, without back-quotes.
std::vector<std::pair<std::string, std::string>> table_below(const std::string &heading) {
    static const std::string DOCUMENT = read_source("docs/capture-format.md");
    const std::size_t begin = DOCUMENT.find("\n" + heading + "\n");
    if (begin == std::string::npos) {
        ADD_FAILURE() << "no heading " << heading;
        return {};
    }
    const std::size_t end = DOCUMENT.find("\n#", begin + 2 + heading.size());
    const std::string section = DOCUMENT.substr(begin, end - begin);
    std::vector<std::pair<std::string, std::string>> rows;
    for (const auto &row :
         all_matches(section, std::regex(R"(\n\| `?([^|`]+)`? \| `?([^|`]+)`? \|)")))
        rows.emplace_back(row[1], row[2]);
    return rows;
}

TEST(CaptureDocument, ParsesTheHeaderAtAll) {
    EXPECT_GE(header().structs.size(), 44U);
    EXPECT_EQ(header().structs.at("cw_end"), (Fields{{"reason", "u32"}, {"exit_status", "u32"}}));
    EXPECT_EQ(header().structs.at("cw_counter_samples"),
              (Fields{{"read_begin_ns", "u64"}, {"n", "u32"}, {"reserved", "u32"}}));
    EXPECT_EQ(header().structs.at("cw_nccl_launch_tasks").back(),
              (std::pair<std::string, std::string>{"tasks", "struct cw_nccl_task_ref[4]"}));
    EXPECT_EQ(header().structs.at("cw_nccl_param").back(),
              (std::pair<std::string, std::string>{"name", "text[48]"}));
    EXPECT_GE(header().enums.size(), 29U);
}

TEST(CaptureDocument, HasTheVersionOfTheHeader) {
    const std::string document = read_source("docs/capture-format.md");
    for (const auto &[field, number] :
         {std::pair{"schema_major", CW_SCHEMA_MAJOR}, std::pair{"schema_minor", CW_SCHEMA_MINOR}})
        EXPECT_NE(
            document.find("| `" + std::string(field) + "` | " + std::to_string(number) + " |"),
            std::string::npos)
            << field;
}

TEST(CaptureDocument, EveryKindIsNamedAfterItsEnumeratorAndInTheTable) {
    auto rows = table_below("## Record kinds");
    rows.erase(rows.begin());
    const auto &kinds = header().enums.at("cw_kind");
    ASSERT_EQ(rows.size(), kinds.size());
    EXPECT_EQ(kind_names().size(), kinds.size());
    for (std::size_t i = 0; i < kinds.size(); i++) {
        std::string name = kinds[i].first.substr(std::string("CW_KIND_").size());
        std::transform(name.begin(), name.end(), name.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        EXPECT_EQ(kind_name(std::stoul(kinds[i].second)), name);
        EXPECT_EQ(rows[i].first, kinds[i].second);
        EXPECT_EQ(rows[i].second, name);
    }
}

TEST(CaptureDocument, EveryStructHasItsFieldsInOrderWithTheirTypesAndLengths) {
    for (const auto &[name, fields] : header().structs) {
        if (name == "cw_header")
            continue;
        auto rows = table_below("### " + name);
        ASSERT_FALSE(rows.empty()) << name;
        rows.erase(rows.begin());
        EXPECT_EQ(rows, fields) << name;
    }
}

TEST(CaptureDocument, EveryEnumeratorHasItsNumber) {
    for (const auto &[name, entries] : header().enums) {
        if (name == "cw_kind")
            continue;
        auto rows = table_below("### enum " + name);
        ASSERT_FALSE(rows.empty()) << name;
        rows.erase(rows.begin());
        std::vector<std::pair<std::string, std::string>> expected;
        for (const auto &[enumerator, number] : entries)
            if (!is_count(enumerator))
                expected.emplace_back(number, enumerator);
        EXPECT_EQ(rows, expected) << name;
    }
}

TEST(CaptureDocument, FieldTablesFollowTheHeader) {
    for (const auto &kind : kind_names()) {
        const RecordLayout *layout = layout_of(kind.number);
        ASSERT_NE(layout, nullptr);
        std::vector<std::string> names;
        for (const Field &field : layout->fields)
            names.emplace_back(field.name);
        std::vector<std::string> expected;
        for (const auto &[name, type] : header().structs.at(std::string(layout->struct_name)))
            expected.push_back(name);
        EXPECT_EQ(names, expected) << kind.name;
    }
}

// Flags of an enumeration of records.h and their names for people.
void expect_flags(const std::string &enumeration, std::span<const NamedNumber> names) {
    const auto &entries = header().enums.at(enumeration);
    EXPECT_EQ(names.size(), entries.size()) << enumeration;
    std::set<std::uint64_t> numbers;
    for (const auto &[enumerator, number] : entries)
        numbers.insert(1ULL << std::stoul(number.substr(std::string("1 << ").size())));
    for (const NamedNumber &name : names)
        EXPECT_TRUE(numbers.contains(name.number)) << enumeration << " " << name.name;
}

TEST(CaptureDocument, EveryNumberHasAName) {
    const std::map<std::string, std::string_view (*)(std::uint64_t)> functions = {
        {"cw_link_layer", link_layer_name},         {"cw_gid_type", gid_type_name},
        {"cw_probe_kind", probe_kind_name},         {"cw_source_state", source_state_name},
        {"cw_wire_class", wire_class_name},         {"cw_post_class", post_class_name},
        {"cw_counter_unit", counter_unit_name},     {"cw_counter_source", counter_source_name},
        {"cw_loss_class", loss_class_name},         {"cw_nccl_func", nccl_func_name},
        {"cw_nccl_pattern", nccl_pattern_name},     {"cw_nccl_algorithm", nccl_algorithm_name},
        {"cw_nccl_protocol", nccl_protocol_name},   {"cw_nccl_capability", nccl_capability_name},
        {"cw_nccl_transport", nccl_transport_name}, {"cw_nccl_role", nccl_role_name},
        {"cw_nccl_result_of", nccl_result_of_name}, {"cw_nccl_socket_type", nccl_socket_type_name},
        {"cw_gpu_state", gpu_state_name},           {"cw_gpu_reason", gpu_reason_name},
        {"cw_nvlink_gap_reason", nvlink_gap_name},  {"cw_rung", rung_name},
        {"cw_posts_counted", posts_counted_name}};
    for (const auto &[name, function] : functions)
        for (const auto &[enumerator, number] : header().enums.at(name))
            if (!is_count(enumerator)) {
                EXPECT_NE(function(std::stoul(number, nullptr, 0)), "") << enumerator;
            }
    expect_flags("cw_node_flags", node_flag_names());
    expect_flags("cw_device_flags", device_flag_names());
    expect_flags("cw_process_flags", process_flag_names());
    expect_flags("cw_probe_flags", probe_flag_names());
    expect_flags("cw_qp_flags", qp_flag_names());
    expect_flags("cw_post_operations_flags", post_operations_flag_names());
    expect_flags("cw_nccl_comm_flags", nccl_comm_flag_names());
    expect_flags("cw_nccl_call_flags", nccl_call_flag_names());
    expect_flags("cw_nccl_launch_flags", nccl_launch_flag_names());
    expect_flags("cw_nccl_op_flags", nccl_op_flag_names());
    expect_flags("cw_nccl_progress_flags", nccl_progress_flag_names());
    expect_flags("cw_nccl_steps_flags", nccl_steps_flag_names());
    expect_flags("cw_nccl_connection_flags", nccl_connection_flag_names());
    expect_flags("cw_tcp_socket_flags", tcp_socket_flag_names());
    expect_flags("cw_gpu_kernel_flags", gpu_kernel_flag_names());
    expect_flags("cw_xid_flags", xid_flag_names());
}

} // namespace
} // namespace collwire::capture
