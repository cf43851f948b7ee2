// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <tuple>

#include "collwire/node_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/wire_records.h"
#include "correlate/capture/reader.h"
#include "tests/support/model_of.h"
#include "tools/cli/read_file.h"
#include "tools/trace-gen/synthetic.h"

namespace collwire::trace_gen {
namespace {

struct LastState {
    std::uint32_t remote_qpn = 0;
    std::uint8_t remote_node = 0; // last byte of the GID
    cw_wire_counters counters{};
};

class TraceGen : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern =
            (std::filesystem::temp_directory_path() / "trace-gen-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        directory = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(directory); }
    std::filesystem::path directory;
};

TEST_F(TraceGen, BothEndsOfEveryQueuePairAgreeAndThePortsWithThem) {
    const auto paths = write_synthetic(
        {.nodes = 5, .qps = 13, .duration_s = 4, .seed = 3, .directory = directory});
    ASSERT_TRUE(paths) << paths.failure().message;
    ASSERT_EQ(paths->size(), 5U);
    std::map<std::pair<unsigned, std::uint32_t>, LastState> qps; // (node, qpn)
    for (std::size_t node = 0; node < paths->size(); node++) {
        std::uint64_t port_tx_bytes = 0;
        std::uint64_t qp_tx_bytes = 0;
        const auto bytes = cli::read_file((*paths)[node]);
        ASSERT_TRUE(bytes);
        const auto summary = capture::read_capture(*bytes, [&](const cw_header &header,
                                                               std::span<const std::byte> record) {
            if (header.kind == CW_KIND_NODE) {
                const auto node_record = capture::record_as<cw_node>(record);
                EXPECT_TRUE(capture::text_of(node_record.tool_version).starts_with("SYNTHETIC"));
            }
            if (header.kind == CW_KIND_QP_STATE) {
                const auto qp = capture::record_as<cw_qp_event>(record);
                qps[{node + 1, qp.key.qpn}].remote_qpn = qp.dest_qpn;
                qps[{node + 1, qp.key.qpn}].remote_node = qp.dgid[15];
                EXPECT_EQ(qp.sgid[15], node + 1);
            }
            if (header.kind == CW_KIND_QP_WIRE) {
                const auto wire = capture::record_as<cw_qp_wire>(record);
                qps[{node + 1, wire.key.qpn}].counters = wire.counters;
            }
            if (header.kind == CW_KIND_COUNTER_SAMPLES)
                port_tx_bytes = capture::samples_of(record).at(0).value;
        });
        ASSERT_TRUE(summary);
        EXPECT_TRUE(summary->complete());
        for (const auto &[key, state] : qps)
            if (key.first == node + 1)
                for (const std::uint64_t wire_bytes : state.counters.tx.wire_bytes)
                    qp_tx_bytes += wire_bytes;
        EXPECT_EQ(port_tx_bytes, qp_tx_bytes + 4000);
    }
    EXPECT_GE(qps.size(), 65U);
    for (const auto &[key, state] : qps) {
        const auto remote = qps.find({state.remote_node, state.remote_qpn});
        ASSERT_NE(remote, qps.end());
        EXPECT_EQ(remote->second.remote_qpn, key.second);
        EXPECT_EQ(remote->second.remote_node, key.first);
        for (std::size_t i = 0; i < CW_WIRE_CLASSES; i++)
            EXPECT_EQ(state.counters.tx.wire_bytes[i], remote->second.counters.rx.wire_bytes[i]);
        EXPECT_GT(state.counters.tx.payload_bytes[CW_WIRE_REQUEST], 0U);
    }
}

// 5 nodes, 3 channels, 2 s of 4 AllGathers: a channel carries 1 + 2 + 3 + 4 frames of 1,024 B in
// each of 4 steps of 5 ranks a second.
TEST_F(TraceGen, CollectivesAreOnTheirQueuePairs) {
    const auto paths = write_synthetic(
        {.nodes = 5, .qps = 6, .duration_s = 2, .collectives_a_second = 4, .directory = directory});
    ASSERT_TRUE(paths) << paths.failure().message;
    std::vector<std::vector<std::byte>> captures;
    for (const std::string &path : *paths) {
        auto bytes = cli::read_file(path);
        ASSERT_TRUE(bytes);
        captures.push_back(*std::move(bytes));
    }
    const model::Model model = test::model_of(captures);
    const auto &nccl = model.nccl;
    ASSERT_EQ(nccl.communicators.size(), 1U);
    EXPECT_EQ(nccl.communicators[0].n_ranks, 5);
    ASSERT_EQ(nccl.collectives.size(), 8U);
    constexpr std::uint64_t ALL = 5ULL * 3 * 2 * 10 * 4 * 1024;
    EXPECT_EQ(nccl.totals.by_rung[static_cast<std::size_t>(nccl::Rung::Exact)], ALL);
    EXPECT_EQ(std::accumulate(nccl.totals.by_rung.begin(), nccl.totals.by_rung.end(), 0ULL), ALL);
    for (const nccl::Finding &finding : nccl.findings)
        EXPECT_NE(finding.kind, "bytes_differ");
}

TEST_F(TraceGen, RejectsImpossibleOptions) {
    EXPECT_EQ(write_synthetic({.nodes = 1, .collectives_a_second = 1, .directory = directory})
                  .failure()
                  .kind,
              ErrorKind::Usage);
    EXPECT_EQ(write_synthetic({.nodes = 0, .directory = directory}).failure().kind,
              ErrorKind::Usage);
    EXPECT_EQ(write_synthetic({.qps = 1 << 24, .directory = directory}).failure().kind,
              ErrorKind::Usage);
}

} // namespace
} // namespace collwire::trace_gen
