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

#include "collwire/node_records.h"
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
                                         Scenario{"posted", posted_only},
                                         Scenario{"nccl", nccl_job},
                                         Scenario{"sockets", socket_job}),
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

TEST(ReportJson, ListsAllMissingRanks) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS});
    NcclBuilder(node.usual(1), {.rank = 2, .n_ranks = 5000}).comm();
    const auto json = nlohmann::json::parse(json_of(model_of({node.end().bytes()})));
    const auto &missing = json.at("communicators").at(0).at("missing_ranks");
    EXPECT_EQ(missing,
              nlohmann::json::parse(R"([{"first": 0, "last": 1}, {"first": 3, "last": 4999}])"));
}

TEST(ReportJson, HasEveryFieldOfNccl) {
    const auto json = nlohmann::json::parse(json_of(model_of(nccl_job())));
    ASSERT_EQ(json.at("communicators").size(), 1U);
    const auto &comm = json.at("communicators").at(0);
    EXPECT_EQ(comm.at("hash"), "0x1122334455667788");
    EXPECT_EQ(comm.at("n_ranks"), 2);
    EXPECT_EQ(comm.at("name"), "world");
    for (const char *field : {"rank", "host", "pid", "device", "missing"})
        for (const auto &rank : comm.at("ranks"))
            EXPECT_TRUE(rank.contains(field)) << field;
    EXPECT_EQ(comm.at("channels").at(0).at("ring"), (nlohmann::json{0, 1}));
    EXPECT_FALSE(comm.at("parameters").contains("IbQpsPerConn"))
        << "the same on all ranks: --detail";
    EXPECT_EQ(comm.at("parameters").at("IbTimeout").size(), 2U);
    for (const char *field : {"comm",
                              "seq",
                              "seq_base",
                              "rank",
                              "op",
                              "count",
                              "datatype",
                              "algorithm",
                              "protocol",
                              "channels",
                              "data_bytes",
                              "tx_payload_bytes",
                              "tx_wire_bytes",
                              "tiers",
                              "rung",
                              "partial",
                              "begin_realtime_ns",
                              "end_realtime_ns",
                              "end_after_realtime_ns",
                              "end_before_realtime_ns",
                              "end_known",
                              "least_duration_ns",
                              "most_duration_ns"})
        for (const auto &collective : json.at("collectives"))
            EXPECT_TRUE(collective.contains(field)) << field;
    const auto &first = json.at("collectives").at(0);
    EXPECT_EQ(first.at("op"), "AllGather");
    EXPECT_EQ(first.at("datatype"), "ncclFloat32");
    EXPECT_EQ(first.at("algorithm"), "RING");
    EXPECT_EQ(first.at("protocol"), "SIMPLE");
    EXPECT_EQ(first.at("rung"), "exact");
    EXPECT_FALSE(first.contains("parts"));
    for (const char *field : {"comm", "src_rank", "dst_rank", "ordinal", "rank"})
        EXPECT_TRUE(json.at("p2p").at(0).contains(field)) << field;
    for (const char *field :
         {"comm", "src_rank", "dst_rank", "transport", "payload_bytes", "wire_bytes", "tier"})
        EXPECT_TRUE(json.at("matrix").at(0).contains(field)) << field;
    for (const char *rung : {"exact", "inferred", "process"})
        EXPECT_TRUE(json.at("identity").at(rung).is_number()) << rung;
    for (const auto &qp : json.at("qps")) {
        EXPECT_EQ(qp.at("comm"), 0);
        EXPECT_EQ(qp.at("channel"), 0);
        EXPECT_EQ(qp.at("rank").get<int>() + qp.at("peer_rank").get<int>(), 1);
        EXPECT_EQ(qp.at("identity_rung"), "exact");
        EXPECT_EQ(qp.at("role"), qp.at("qpn").get<int>() % 10 == 7 ? "data" : "clear_to_send");
    }
    // Without NCCL it is not known, not 0.
    const auto other = nlohmann::json::parse(json_of(model_of(good_cluster())));
    EXPECT_TRUE(other.at("identity").is_null());
    EXPECT_TRUE(other.at("control").is_null());
    EXPECT_TRUE(other.at("qps").at(0).at("role").is_null());
}

TEST(ReportJson, PartsAddUpToTheWhole) {
    std::ostringstream out;
    write_json(model_of(nccl_job()), out, {.detail = true});
    const auto json = nlohmann::json::parse(out.str());
    EXPECT_EQ(json.at("communicators").at(0).at("parameters").at("IbQpsPerConn"), 1);
    for (const char *kind : {"collectives", "p2p"})
        for (const auto &operation : json.at(kind)) {
            std::uint64_t sent = 0;
            for (const auto &part : operation.at("parts")) {
                if (part.at("direction") != "send")
                    continue;
                sent += part.at("payload_bytes").get<std::uint64_t>();
                EXPECT_EQ(part.at("qpns").size(), 1U);
            }
            EXPECT_EQ(operation.at("tx_payload_bytes"), sent) << operation.at("count");
        }
}

TEST(ReportJson, AcceptsCaptureTextThatIsNotUtf8) {
    NodeBuilder node({.hostname = "n\xff\x1b[31m"});
    node.usual(1).qp({.qpn = 17}).end();
    const model::Model model = model_of({node.bytes()});
    EXPECT_TRUE(nlohmann::json::accept(json_of(model)));
    EXPECT_EQ(text_report(model, {}).find('\x1b'), std::string::npos);
}

TEST(ReportText, KeepsToTheWidth) {
    for (const std::size_t width : {60U, 80U, 100U, 160U})
        for (const Captures &captures : {troubled_cluster(), nccl_job()}) {
            std::istringstream text(
                text_report(model_of(captures), {.width = width, .color = false, .rows = 20}));
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

TEST(ReportText, PortsWithUnknownBytesAreListedLast) {
    NodeBuilder unwatched;
    unwatched.device().port().gid(1).source("qp", CW_SOURCE_OFF).netdev(20, 1'000'000, 5).end();
    NodeBuilder watched({.hostname = "node1", .session_id = 2});
    watched.usual(2).netdev(20, 1000, 5).end();
    const std::string text =
        text_report(model_of({unwatched.bytes(), watched.bytes()}), {.width = 120, .rows = 1});
    const std::size_t begin = text.find("Ports, sent, the most other traffic first");
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

TEST(ReportTiers, ZeroOnlyIfEveryByteHasATier) {
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
    EXPECT_TRUE(has_warning(model_of({one_sender(9)}), "are lower bounds"));
    EXPECT_FALSE(has_warning(model_of({one_sender(2)}), "are lower bounds"));
}

TEST(ReportTiers, WithoutQpTracingNoTierIsZero) {
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
