// SPDX-License-Identifier: Apache-2.0
// The reports of whole recordings against tests/golden. After a wanted change:
//   COLLWIRE_UPDATE_GOLDEN=1 build/dev/tests/unit/report_test --gtest_filter='*Golden*' && git diff
//   tests/golden
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "correlate/report/json_report.h"
#include "correlate/report/text_report.h"
#include "tests/support/model_of.h"
#include "tests/support/scenarios.h"

namespace collwire::report {
namespace {

using namespace collwire::test;

// Where a block ends is up to zstd's version: such digits are compared as '#'.
std::string without_compressed_sizes(const std::string &text) {
    static const std::regex sizes(R"(offset \d+|damaged_at_bytes":\d+|\d+ of its \d+ bytes)");
    std::string result;
    auto rest = text.cbegin();
    for (std::sregex_iterator found(text.cbegin(), text.cend(), sizes), end; found != end;
         ++found) {
        result.append(rest, (*found)[0].first);
        for (const char c : found->str())
            result += std::isdigit(static_cast<unsigned char>(c)) != 0 ? '#' : c;
        rest = (*found)[0].second;
    }
    return result.append(rest, text.cend());
}

void expect_golden(const std::string &name, const std::string &written) {
    const std::string actual = without_compressed_sizes(written);
    const std::string path = std::string(COLLWIRE_GOLDEN_DIR) + "/" + name;
    if (std::getenv("COLLWIRE_UPDATE_GOLDEN") != nullptr) {
        std::ofstream(path, std::ios::binary) << actual;
        return;
    }
    std::ifstream file(path, std::ios::binary);
    std::ostringstream expected;
    expected << file.rdbuf();
    ASSERT_TRUE(file) << path << " cannot be read";
    EXPECT_EQ(actual, expected.str()) << "see the head of this test for how to update " << path;
}

std::string json_of(const model::Model &model) {
    std::ostringstream out;
    write_json(model, out);
    return out.str();
}

struct Scenario {
    const char *name;
    Captures (*captures)();
};
std::ostream &operator<<(std::ostream &out, const Scenario &scenario) {
    return out << scenario.name;
}

class ReportGolden : public testing::TestWithParam<Scenario> {};

TEST_P(ReportGolden, Json) {
    const std::string json = json_of(model_of(GetParam().captures()));
    EXPECT_TRUE(nlohmann::json::accept(json));
    expect_golden(std::string(GetParam().name) + ".json", json);
}

TEST_P(ReportGolden, Text) {
    expect_golden(
        std::string(GetParam().name) + ".txt",
        text_report(model_of(GetParam().captures()), {.width = 120, .color = false, .rows = 20}));
}

INSTANTIATE_TEST_SUITE_P(Recordings, ReportGolden,
                         testing::Values(Scenario{"good", good_cluster},
                                         Scenario{"troubled", troubled_cluster},
                                         Scenario{"posted", posted_only}),
                         [](const auto &scenario) { return std::string(scenario.param.name); });

TEST(ReportJson, HasEveryFieldThatReadersRelyOn) {
    const auto json = nlohmann::json::parse(json_of(model_of(good_cluster())));
    EXPECT_EQ(json.at("schema"), "collwire-report");
    for (const char *tier : {"self", "leaf", "spine", "superspine", "unknown"})
        for (const char *field : {"tx_wire_bytes", "tx_payload_bytes"})
            EXPECT_TRUE(json.at("tiers").at(tier).contains(field)) << tier;
    for (const char *field :
         {"host", "device", "port", "qpn", "type", "local_gid", "remote_gid", "remote_qpn", "pid",
          "tier", "tx_payload_bytes", "rx_payload_bytes", "tx_wire_bytes", "rx_wire_bytes",
          "retransmitted_wire_bytes", "bytes_rung", "identity_rung"})
        for (const auto &qp : json.at("qps"))
            EXPECT_TRUE(qp.contains(field)) << field;
    for (const char *field : {"host", "device", "port", "switch", "switch_port", "rail",
                              "tx_wire_bytes", "rx_wire_bytes", "explained_tx_bytes",
                              "unexplained_tx_bytes", "uncertainty_bytes", "source"})
        EXPECT_TRUE(json.at("ports").at(0).contains(field)) << field;
    EXPECT_TRUE(json.at("events").is_array());
    EXPECT_EQ(json.at("loss").at("records"), 0);
    for (const auto &qp : json.at("qps")) {
        if (qp.at("type") != "UD")
            continue;
        EXPECT_TRUE(qp.at("remote_qpn").is_null());
        EXPECT_EQ(qp.at("peers").size(), 2U);
    }
}

TEST(ReportJson, TextOfACaptureThatIsNoUtf8DoesNotBreakIt) {
    NodeBuilder node({.hostname = "n\xff\x1b[31m"});
    node.usual(1).qp({.qpn = 17}).end();
    const model::Model model = model_of({node.bytes()});
    EXPECT_TRUE(nlohmann::json::accept(json_of(model)));
    EXPECT_EQ(text_report(model, {}).find('\x1b'), std::string::npos);
}

TEST(ReportText, KeepsToTheWidth) {
    for (const std::size_t width : {60U, 80U, 100U, 160U}) {
        std::istringstream text(text_report(model_of(troubled_cluster()),
                                            {.width = width, .color = false, .rows = 20}));
        for (std::string line; std::getline(text, line);)
            EXPECT_LE(line.size(), width) << line;
    }
}

TEST(ReportText, ColorOnlyWhenAsked) {
    const model::Model model = model_of(troubled_cluster());
    EXPECT_EQ(text_report(model, {.width = 100, .color = false, .rows = 20}).find('\x1b'),
              std::string::npos);
    EXPECT_NE(text_report(model, {.width = 100, .color = true, .rows = 20}).find('\x1b'),
              std::string::npos);
}

TEST(ReportText, PortsOfUnknownBytesAreNotTheMostUnexplained) {
    NodeBuilder unwatched;
    unwatched.device().port().gid(1).source("qp", CW_SOURCE_OFF).netdev(20, 1'000'000, 5).end();
    NodeBuilder watched({.hostname = "node1", .session_id = 2});
    watched.usual(2).netdev(20, 1000, 5).end();
    const std::string text =
        text_report(model_of({unwatched.bytes(), watched.bytes()}), {.width = 120, .rows = 1});
    const std::size_t begin = text.find("Ports, sent, the most unexplained first");
    ASSERT_NE(begin, std::string::npos);
    EXPECT_NE(text.find("node1", begin), std::string::npos);
    EXPECT_EQ(text.find("node0", begin), std::string::npos);
}

TEST(ReportText, AnyNumberOfRowsIsPossible) {
    for (const std::size_t rows : {SIZE_MAX, SIZE_MAX / 2 + 1})
        EXPECT_NE(text_report(model_of(troubled_cluster()), {.rows = rows}).find("carrier_down"),
                  std::string::npos);
}

nlohmann::json tiers_of(const std::vector<std::vector<std::byte>> &captures,
                        std::string_view topology = LEAF_SPINE) {
    return nlohmann::json::parse(json_of(model_of(captures, topology)))["tiers"];
}

std::vector<std::byte> one_sender(std::uint8_t to, std::uint64_t frames = 10) {
    NodeBuilder node;
    const QpOptions qp{.qpn = 17, .local = 1, .remote = to, .remote_qpn = 18};
    node.usual(1).qp(qp).wire(qp, 15, {.requests = frames}, {});
    // As the kernel makes one for each port: no byte, so no destination.
    node.datagram_qp({.qpn = 1}).end();
    return node.bytes();
}

TEST(ReportTiers, ZeroOnlyWhereEverythingIsPlaced) {
    const auto placed = tiers_of({one_sender(2)});
    EXPECT_EQ(placed["leaf"]["tx_wire_bytes"], 580);
    for (const char *tier : {"self", "spine", "superspine", "unknown"}) {
        EXPECT_EQ(placed[tier]["tx_wire_bytes"], 0) << tier;
        EXPECT_EQ(placed[tier]["tx_payload_bytes"], 0) << tier;
    }
    // 10.0.0.9 is in no topology.
    const auto unplaced = tiers_of({one_sender(9)});
    EXPECT_EQ(unplaced["unknown"]["tx_wire_bytes"], 580);
    EXPECT_EQ(unplaced["self"]["tx_wire_bytes"], 0);
    for (const char *tier : {"leaf", "spine", "superspine"})
        EXPECT_TRUE(unplaced[tier]["tx_wire_bytes"].is_null()) << tier;
    EXPECT_EQ(tiers_of({one_sender(9, 0)})["leaf"]["tx_wire_bytes"], 0) << "nothing was sent";
    EXPECT_TRUE(tiers_of({one_sender(2)}, "")["leaf"]["tx_wire_bytes"].is_null());
    EXPECT_TRUE(has_warning(model_of({one_sender(9)}), "at least what is said"));
    EXPECT_FALSE(has_warning(model_of({one_sender(2)}), "at least what is said"));
}

TEST(ReportTiers, WithoutQueuePairsWatchedNothingIsZero) {
    NodeBuilder node;
    node.device().port().gid(1).source("qp", CW_SOURCE_OFF).netdev(20, 1000, 5).end();
    const auto tiers = tiers_of({node.bytes()});
    for (const char *tier : {"self", "leaf", "spine", "superspine", "unknown"})
        EXPECT_TRUE(tiers[tier]["tx_wire_bytes"].is_null()) << tier;
    const auto one_of_two = tiers_of({one_sender(2), [] {
                                          NodeBuilder other({.hostname = "node1", .session_id = 2});
                                          return other.device().port().gid(2).end().bytes();
                                      }()});
    EXPECT_EQ(one_of_two["leaf"]["tx_wire_bytes"], 580);
    EXPECT_TRUE(one_of_two["spine"]["tx_wire_bytes"].is_null());
}

} // namespace
} // namespace collwire::report
