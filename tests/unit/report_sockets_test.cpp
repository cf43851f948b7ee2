// SPDX-License-Identifier: Apache-2.0
// What the reports say of a job over NET/Socket.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <set>
#include <sstream>

#include "correlate/report/json_report.h"
#include "correlate/report/text_report.h"
#include "tests/support/model_of.h"
#include "tests/support/scenarios.h"

namespace collwire::report {
namespace {

using namespace collwire::test;

nlohmann::json json_of(const model::Model &model) {
    std::ostringstream out;
    write_json(model, out, {.detail = true});
    return nlohmann::json::parse(out.str());
}

TEST(ReportSockets, ListsEverySocket) {
    const auto json = json_of(model_of(socket_job()));
    const auto &sockets = json.at("sockets");
    ASSERT_EQ(sockets.size(), 8U);
    const auto &data = sockets.at(1);
    EXPECT_EQ(data.at("host"), "node0");
    EXPECT_EQ(data.at("local"), "10.0.0.1:4034");
    EXPECT_EQ(data.at("remote"), "10.0.0.2:5036");
    EXPECT_EQ(data.at("remote_host"), "node1");
    EXPECT_EQ(data.at("netdev"), "eth0");
    EXPECT_EQ(data.at("role"), "data");
    EXPECT_EQ(data.at("comm"), 0);
    EXPECT_EQ(data.at("rank"), 0);
    EXPECT_EQ(data.at("peer_rank"), 1);
    EXPECT_EQ(data.at("channel"), 0);
    EXPECT_EQ(data.at("direction"), "send");
    EXPECT_EQ(data.at("tx_payload_bytes"), 100'000);
    EXPECT_EQ(data.at("retransmitted_bytes"), 1448);
    EXPECT_EQ(data.at("rtt_us"), 284);
    EXPECT_TRUE(data.at("counted_from_realtime_ns").is_null());
    EXPECT_EQ(sockets.at(0).at("role"), "control");
    EXPECT_EQ(sockets.at(2).at("direction"), "recv");
    EXPECT_EQ(json_of(model_of(nccl_job())).at("sockets").size(), 0U);
}

TEST(ReportSockets, TiersWithTcpBytesOnlyAreNull) {
    const auto json = json_of(model_of(socket_job()));
    for (const char *tier : {"leaf", "spine", "superspine", "unknown"})
        for (const char *field : {"tx_wire_bytes", "tx_payload_bytes"})
            EXPECT_TRUE(json.at("tiers").at(tier).at(field).is_null()) << tier;
    EXPECT_EQ(json.at("tiers").at("self").at("tx_payload_bytes"), 0);
    EXPECT_EQ(json.at("tiers").at("leaf").at("tcp").at("tx_payload_bytes"), 200'034);
    EXPECT_TRUE(json.at("tiers").at("self").at("tcp").is_null());
    EXPECT_EQ(json.at("total").at("tcp").at("sockets"), 8);
    EXPECT_EQ(json.at("node_pairs").at(0).at("tcp").at("tx_payload_bytes"), 100'017);
    EXPECT_EQ(json.at("ports").at(0).at("tcp_tx_payload_bytes"), 101'465);
    EXPECT_EQ(json.at("communicators").at(0).at("tiers").at("leaf").at("tx_payload_bytes"),
              200'000);
    EXPECT_TRUE(json_of(model_of(nccl_job())).at("total").at("tcp").is_null());
}

TEST(ReportSockets, ConnectionsHaveTheirOwnSockets) {
    const auto json = json_of(model_of(socket_job()));
    const auto &nics = json.at("communicators").at(0).at("channels").at(0).at("nics");
    std::set<std::string> sends;
    for (const auto &nic : nics)
        if (nic.at("rank") == 0 && nic.at("direction") == "send")
            sends.insert(nic.at("connection").dump() + " " + nic.at("netdev").dump() + " " +
                         nic.at("address").dump());
    EXPECT_EQ(sends, (std::set<std::string>{R"(0 "eth0" "10.0.0.1")", "1 null null"}));
    const auto &parts = json.at("collectives").at(0).at("parts");
    ASSERT_EQ(parts.size(), 5U);
    std::size_t with_sockets = 0;
    for (const auto &part : parts) {
        const bool is_unseen = part.at("connection") == 1;
        EXPECT_EQ(part.at("sockets").size(), is_unseen ? 0U : 2U);
        with_sockets += is_unseen ? 0 : 1;
    }
    EXPECT_EQ(with_sockets, 4U);
    EXPECT_EQ(parts.at(1).at("sockets").at(0).at("local"), "10.0.0.1:4033");
    const auto of_queue_pairs = json_of(model_of(nccl_job()));
    for (const auto &nic :
         of_queue_pairs.at("communicators").at(0).at("channels").at(0).at("nics")) {
        EXPECT_EQ(nic.at("connection"), 0);
        EXPECT_EQ(nic.at("device"), "rxe0");
    }
}

TEST(ReportSockets, TextReportsTcpTraffic) {
    const model::Model model = model_of(socket_job());
    for (const std::size_t width : {80U, 120U}) {
        const std::string text = text_report(model, {.width = width});
        EXPECT_EQ(text.find("no queue pair"), std::string::npos);
        EXPECT_EQ(text.find("byte source"), std::string::npos);
        EXPECT_NE(text.find("TCP payload"), std::string::npos);
        EXPECT_NE(text.find("NCCL's sockets"), std::string::npos);
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);)
            EXPECT_LE(line.size(), width) << line;
    }
    EXPECT_EQ(text_report(model_of(nccl_job()), {}).find("TCP"), std::string::npos);
}

} // namespace
} // namespace collwire::report
