// SPDX-License-Identifier: Apache-2.0
// NVLink in captures: bytes and errors of GPUs, and where a failure began, in the reports.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "correlate/nccl/nvlink_text.h"
#include "correlate/report/json_report.h"
#include "correlate/report/text_report.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/nvlink_node.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::uint16_t ALL = CW_NVLINK_ALL_LINKS;
constexpr std::uint64_t FIRST_BUS = 0x1b000, SECOND_BUS = 0xdc000;

cw_nvlink_value kib(std::uint16_t field, std::uint64_t number) {
    return {field, ALL, 3, 0, number};
}
cw_nvlink_value of_link(std::uint16_t field, std::uint16_t link, std::uint64_t number) {
    return {field, link, 1, 0, number};
}

nlohmann::json json_of(const model::Model &model) {
    std::ostringstream out;
    report::write_json(model, out);
    return nlohmann::json::parse(out.str());
}

std::string text_of(const model::Model &model) {
    return report::text_report(model, {.width = 200});
}

bool has(const std::string &text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

// One GPU: read thrice, 2 MiB sent and 1 MiB received; recoveries of link 1 in the last second.
NodeBuilder counted() {
    NodeBuilder node;
    node.usual(1);
    nvlink_gpu(node, 0, FIRST_BUS);
    nvlink_sample(node, 11, 0,
                  {kib(138, 100), kib(139, 50), of_link(162, 0, 7), of_link(162, 1, 10),
                   of_link(165, 0, 1), of_link(165, 1, 0)});
    nvlink_sample(node, 12, 0, {kib(138, 1124), kib(139, 562)});
    nvlink_sample(node, 13, 0, {kib(138, 2148), kib(139, 1074), of_link(162, 1, 15)});
    return node;
}

TEST(ModelNvlink, BytesAndRecoveriesAreInBothReports) {
    NodeBuilder node = counted();
    node.clock(20).end();
    const auto model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.nvlink.gpus.size(), 1U);
    EXPECT_EQ(model.nccl.nvlink.gpus[0].measured_tx_bytes, 2048U * 1024);
    EXPECT_EQ(model.nccl.nvlink.gpus[0].measured_rx_bytes, 1024U * 1024);
    const auto json = json_of(model)["nvlink"];
    const auto &gpu = json["gpus"][0];
    EXPECT_EQ(gpu["pci_address"], "0000:1b:00.0");
    EXPECT_EQ(gpu["tx_bytes"], 2048 * 1024);
    EXPECT_EQ(gpu["counter"], "throughput_data_tx");
    EXPECT_EQ(gpu["includes"], "payload");
    EXPECT_TRUE(gpu["windows"].is_null());
    EXPECT_EQ(gpu["links"][0]["active"], true);
    EXPECT_EQ(gpu["links"][1]["active"], false);
    const auto &recoveries = gpu["links"][1]["counters"]["error_dl_recovery"];
    EXPECT_EQ(recoveries["increase"], 5);
    EXPECT_EQ(recoveries["trend"], (std::vector<int>{0, 0, 0, 0, 0, 5}));
    EXPECT_EQ(recoveries["rising"], true);
    EXPECT_EQ(gpu["links"][0]["counters"]["error_dl_recovery"]["increase"], 0);
    const std::string text = text_of(model);
    EXPECT_TRUE(has(text, "1 of 2 up")) << text;
    EXPECT_TRUE(has(text, "2.00 MiB")) << text;
    EXPECT_TRUE(has(text, "error_dl_recovery         5  0 0 0 0 0 5")) << text;
    EXPECT_TRUE(has(text, "rising")) << text;
}

TEST(ModelNvlink, WithoutAByteCounterItSaysWhy) {
    NodeBuilder node;
    node.usual(1);
    nvlink_gpu(node, 0, FIRST_BUS);
    nvlink_sample(node, 11, 0, {{138, ALL, 0, 3, 0}, {139, ALL, 0, 3, 0}});
    node.clock(20).end();
    const auto model = model_of({node.bytes()});
    const auto gpu = json_of(model)["nvlink"]["gpus"][0];
    EXPECT_TRUE(gpu["tx_bytes"].is_null());
    EXPECT_EQ(gpu["not_measured"], "not_supported");
    EXPECT_TRUE(has(text_of(model), "not measured")) << text_of(model);
}

TEST(ModelNvlink, AGapIsTimeThatWasNotMeasured) {
    NodeBuilder node = counted();
    auto gap = make_record<cw_nvlink_gap>(CW_KIND_NVLINK_GAP, seconds(16));
    gap.begin_ns = seconds(14);
    gap.reason = CW_NVLINK_NO_ANSWER;
    node.add(gap);
    nvlink_sample(node, 18, 0, {});
    node.clock(20).end();
    const auto model = model_of({node.bytes()});
    EXPECT_EQ(model.nccl.nvlink.gpus[0].unmeasured_ns, 4 * NS);
}

TEST(ModelNvlink, WithoutNvlinkTheReportsAreAsBefore) {
    NodeBuilder node;
    node.usual(1).clock(20).end();
    const auto model = model_of({node.bytes()});
    EXPECT_TRUE(json_of(model)["nvlink"].is_null());
    EXPECT_FALSE(has(text_of(model), "NVLink"));
}

TEST(ModelNvlink, AFailureNamesTheLinkWhatFollowsAndTheOperationOfThatTime) {
    RingPair ring({.bus_id = FIRST_BUS});
    ring.all_gather(12, 1000).all_gather(13, 2000);
    // The peer's line comes first.
    ring.node[0].add(xid_record(13.50, 40, FIRST_BUS, 145));
    ring.node[1].add(xid_record(13.52, 71, FIRST_BUS, 149, 9));
    ring.node[1].add(xid_record(13.53, 72, SECOND_BUS, 145));
    auto channel = xid_record(13.9, 73, FIRST_BUS, 45, -1, 0);
    channel.caused_by = 149;
    ring.node[1].add(channel);
    ring.node[0].add(xid_record(13.9, 44, SECOND_BUS, 31, -1, 0)); // of another kind
    const auto model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.nvlink.failures.size(), 1U);
    const NvlinkFailureFacts &failure = model.nccl.nvlink.failures[0];
    EXPECT_EQ(failure.failure.cause, gpu::NvlinkCause::Known);
    EXPECT_EQ(failure.failure.errors.size(), 4U);
    EXPECT_EQ(failure.failure.gpus, 3U);
    const XidError &first = model.nccl.nvlink.errors[failure.failure.first];
    EXPECT_EQ(model.hosts[first.host].name, "node1");
    EXPECT_EQ(first.record.link, 9);
    ASSERT_EQ(failure.operations.size(), 1U);
    EXPECT_EQ(model.nccl.collectives[failure.operations[0].operation].count, 2000U);
    ASSERT_FALSE(model.nccl.findings.empty());
    const Finding &finding = model.nccl.findings.front();
    EXPECT_EQ(finding.kind, "nvlink_failure");
    EXPECT_EQ(finding.hosts, (std::vector<std::string>{"node0", "node1"}));
    EXPECT_EQ(finding.evidence.at("gpus"), 3U);
    EXPECT_TRUE(has(finding.what, "first at GPU 0000:1b:00.0 on node1, link 9: Xid 149 "
                                  "(NETIR_LINK_EVT, fatal). 2 other GPU(s) report Xid 145"))
        << finding.what;
    EXPECT_TRUE(has(finding.what, "AllGather seq 1 of communicator 0")) << finding.what;
    const auto json = json_of(model)["nvlink"];
    EXPECT_EQ(json["xids"].size(), 5U);
    EXPECT_EQ(json["failures"][0]["cause"], "known");
    EXPECT_EQ(json["xids"][json["failures"][0]["first"].get<std::size_t>()]["link"], 9);
    const std::string text = text_of(model);
    EXPECT_TRUE(has(text, "Xid 31")) << text;
}

TEST(ModelNvlink, PeersAloneAreNoCause) {
    NodeBuilder node;
    node.usual(1).add(xid_record(13, 1, FIRST_BUS, 145)).add(xid_record(13.1, 2, SECOND_BUS, 145));
    node.clock(20).end();
    const auto model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.findings.size(), 1U);
    EXPECT_TRUE(has(model.nccl.findings[0].what, "a GPU that no capture has"))
        << model.nccl.findings[0].what;
}

TEST(ModelNvlink, ALineInTwoRecordingsIsOneErrorAndHasTheTimeOfItsWitness) {
    NodeBuilder first({.session_id = 1, .start = 10});
    NodeBuilder second({.session_id = 2, .start = 30});
    first.usual(1).add(xid_record(13, 7, FIRST_BUS, 149, 3)).clock(20).end(25);
    auto seen_later = xid_record(30, 7, FIRST_BUS, 149, 3, CW_XID_BEFORE | CW_XID_FATAL);
    seen_later.kernel_ns = seconds(14.5); // the kernel log's clock has drifted
    seen_later.after_ns = 0;
    second.usual(1).add(seen_later).clock(40).end(45);
    const auto model = model_of({second.bytes(), first.bytes()});
    ASSERT_EQ(model.nccl.nvlink.errors.size(), 1U);
    EXPECT_EQ(model.nccl.nvlink.errors[0].record.flags & CW_XID_BEFORE, 0U);
    EXPECT_EQ(model.nccl.nvlink.errors[0].realtime_ns, BOOT_REALTIME_NS + seconds(13));
}

} // namespace
} // namespace collwire::nccl
