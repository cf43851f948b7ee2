// SPDX-License-Identifier: Apache-2.0
// collwire report as a program: what it reads, what it prints where, its exit status.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>

#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "tests/unit/cli_fixture.h"

namespace collwire {
namespace {

using namespace collwire::test;

class ReportCli : public Cli {
protected:
    [[nodiscard]] Outcome report(const std::string &arguments) const {
        return collwire("report " + arguments);
    }
};

TEST_F(ReportCli, DirectoryStandsForItsCaptures) {
    write_all(good_cluster());
    const Outcome outcome = report(directory_.string() + " --topology " + path("topology.json") +
                                   " --json " + path("out.json"));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_NE(outcome.out.find("spine"), std::string::npos);
    const auto json = nlohmann::json::parse(content(path("out.json")));
    EXPECT_EQ(json.at("captures").size(), 3U);
    EXPECT_GT(json.at("tiers").at("spine").at("tx_wire_bytes"), 0);
}

TEST_F(ReportCli, JsonToStandardOutputIsTheOnlyOutput) {
    write_all(good_cluster());
    const Outcome outcome = report(directory_.string() + " --json -");
    EXPECT_EQ(outcome.status, 0);
    EXPECT_TRUE(nlohmann::json::accept(outcome.out));
}

TEST_F(ReportCli, JsonNeverReplacesACapture) {
    write_all(good_cluster());
    const std::string before = content(path("0.cwc"));
    const Outcome outcome = report("--json " + path("*.cwc"));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err.find("collwire report: --json " + path("0.cwc") + ": "), 0U);
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(content(path("0.cwc")), before);
}

TEST_F(ReportCli, NewJsonFileIsReadableByItsOwnerOnly) {
    write_all(good_cluster());
    const auto mode_of = [&](const std::string &name) {
        return std::filesystem::status(path(name)).permissions();
    };
    EXPECT_EQ(report(directory_.string() + " --json " + path("new.json")).status, 0);
    EXPECT_EQ(mode_of("new.json"), std::filesystem::perms{0600});
    write("old.json", "{}");
    std::filesystem::permissions(path("old.json"), std::filesystem::perms{0644});
    EXPECT_EQ(report(directory_.string() + " --json " + path("old.json")).status, 0);
    EXPECT_EQ(mode_of("old.json"), std::filesystem::perms{0644});
    EXPECT_EQ(content(path("old.json")), content(path("new.json")));
}

TEST_F(ReportCli, RowsHaveARange) {
    write_all(good_cluster());
    for (const std::string rows : {"0", "-1", "1000001", "99999999999999999999999", "x"}) {
        const Outcome outcome = report(directory_.string() + " --rows " + rows);
        EXPECT_EQ(outcome.status, 2) << rows;
        EXPECT_NE(outcome.err.find("not in range"), std::string::npos) << outcome.err;
        EXPECT_NE(outcome.err.find(" 1000000"), std::string::npos) << outcome.err;
    }
    EXPECT_EQ(report(directory_.string() + " --rows 1000000").status, 0);
}

TEST_F(ReportCli, ExitStatusReportsLoss) {
    write_all(troubled_cluster());
    const Outcome outcome = report(directory_.string());
    EXPECT_EQ(outcome.status, 5) << outcome.err;
    EXPECT_NE(outcome.err.find("0.cwc: "), std::string::npos) << "the one cut short is named";
    EXPECT_NE(outcome.err.find("offset"), std::string::npos);
}

TEST_F(ReportCli, BadFileIsNamedAndGoodOnesAreUsed) {
    write_all(good_cluster());
    std::ofstream(path("foreign.cwc")) << "this is no capture, but a text of some length";
    for (const std::string &arguments :
         {directory_.string(), path("0.cwc") + " " + path("1.cwc") + " " + path("absent.cwc")}) {
        const Outcome outcome = report(arguments + " --json " + path("out.json"));
        EXPECT_EQ(outcome.status, 1);
        EXPECT_NE(outcome.err.find(arguments == directory_.string() ? "foreign.cwc" : "absent.cwc"),
                  std::string::npos)
            << outcome.err;
        EXPECT_NE(outcome.out.find(arguments == directory_.string() ? ", 3 of 4 captures\n"
                                                                    : ", 2 of 3 captures\n"),
                  std::string::npos)
            << outcome.out;
        EXPECT_GT(nlohmann::json::parse(content(path("out.json"))).at("total").at("tx_wire_bytes"),
                  0);
    }
}

TEST_F(ReportCli, NothingToReportIsAnError) {
    EXPECT_EQ(report(directory_.string()).status, 1) << "no capture in it";
    EXPECT_EQ(report("").status, 2);
    EXPECT_EQ(report("--no-such-option x").status, 2);
    write_all(good_cluster());
    std::ofstream(path("bad.json")) << "{";
    const Outcome outcome = report(directory_.string() + " --topology " + path("bad.json"));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.err.find("bad.json"), std::string::npos);
    EXPECT_EQ(report(directory_.string() + " --json /dev/full").status, 1);
    EXPECT_EQ(report(directory_.string() + " >/dev/full").status, 1);
    EXPECT_EQ(report(directory_.string() + " --json - >/dev/full").status, 1);
}

TEST_F(ReportCli, SegmentsInAnyOrderOfNames) {
    const QpOptions qp{.qpn = 17};
    NodeBuilder first;
    first.usual(1)
        .qp(qp)
        .wire(qp, 12, {.requests = 10, .request_payload = 1000, .first = 11}, {})
        .end(12.5, 2);
    NodeBuilder second({.segment = 1, .start = 12.5, .flags = CW_NODE_WIRE});
    second.usual(1).add(NodeBuilder::connect_event(qp, CW_KIND_QP_EXISTING, 12.5));
    second.wire(qp, 15, {.requests = 40, .request_payload = 4000, .resent = 3, .first = 11}, {})
        .end();
    write("z-first.cwc", first.bytes());
    write("a-second.cwc", second.bytes());
    const auto json = nlohmann::json::parse(report(directory_.string() + " --json -").out);
    EXPECT_EQ(json.at("captures").at(0).at("segment"), 0) << "read in the order of segments";
    EXPECT_EQ(json.at("qps").at(0).at("tx_payload_bytes"), 4000);
    EXPECT_EQ(json.at("hosts").at(0).at("recordings").at(0).at("from_start"), true);
}

} // namespace
} // namespace collwire
