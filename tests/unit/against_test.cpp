// SPDX-License-Identifier: Apache-2.0
// Two runs compared, from rows made here.
#include <gtest/gtest.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "correlate/against/comparison.h"
#include "correlate/against/render.h"
#include "correlate/against/run_rows.h"

namespace collwire::against {
namespace {

constexpr std::uint64_t START_NS = 1'700'000'000'000'000'000;
constexpr std::uint64_t STEP_NS = 100'000'000;
constexpr std::uint64_t MS_NS = 1'000'000;

// A job of two hosts with two ranks each: `world` of all ranks, and one communicator of each GPU.
struct MadeJob {
    std::vector<std::string> hosts{"node0", "node1"};
    std::uint64_t first_comm = 0; // communicators have other numbers in another run
    std::string version = "2.28.9";
    std::int64_t gid_index = 3;
    std::string transport = "NET/IB";
    std::string nic_of_rank_1 = "mlx5_1";
    std::string protocol = "SIMPLE";
    std::uint64_t rate_mbps = 400'000;
    std::string driver = "mlx5_core";
    std::uint64_t retransmitted_bytes = 0;
    std::uint64_t step_ns = STEP_NS;
    std::uint64_t duration_ns = 2 * MS_NS;
    std::uint64_t after_first_ns = MS_NS / 10;
    std::int64_t last_rank = -1; // -1: in turn
    std::uint64_t size_bytes = 32U << 20;
    std::uint64_t losses = 0;
    std::uint64_t captured_hosts = 2;
    std::uint64_t operations = 40;
    std::string world_name;
    std::optional<std::string> guessed_role = {}; // of those without a name
    rows::ByteSource byte_source = rows::ByteSource::Posted;
};

void put_communicator(rows::RowSink &sink, const MadeJob &job, std::uint64_t comm,
                      const std::vector<std::pair<std::size_t, std::int64_t>> &ranks,
                      const std::string &name) {
    std::uint64_t captured = 0;
    for (const auto &[host, gpu] : ranks)
        captured += host < job.captured_hosts ? 1 : 0;
    rows::put(sink,
              rows::CommunicatorRow{.comm = comm,
                                    .hash = "0x0",
                                    .name = name.empty() ? std::nullopt : std::optional(name),
                                    .guessed_role = name.empty() ? job.guessed_role : std::nullopt,
                                    .n_ranks = static_cast<std::int64_t>(ranks.size()),
                                    .n_nodes = 2,
                                    .ranks_captured = captured});
    rows::put(sink, rows::ParameterRow{.comm = comm,
                                       .name = "IbGidIndex",
                                       .value = job.gid_index,
                                       .text = std::to_string(job.gid_index),
                                       .ranks = captured});
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const auto &[host, gpu] = ranks[rank];
        if (host >= job.captured_hosts)
            continue;
        rows::put(sink, rows::RankRow{.comm = comm,
                                      .rank = static_cast<std::int64_t>(rank),
                                      .host = job.hosts[host],
                                      .pid = 100 + host * 10 + static_cast<std::uint64_t>(gpu),
                                      .gpu = gpu,
                                      .node = static_cast<std::int64_t>(host),
                                      .nccl_version = job.version});
        rows::put(sink, rows::FlowRow{.comm = comm, .transport = job.transport});
        rows::put(sink, rows::QpRow{.host = job.hosts[host],
                                    .device = rank == 1 ? job.nic_of_rank_1 : "mlx5_0",
                                    .role = "data",
                                    .comm = comm,
                                    .rank = static_cast<std::int64_t>(rank),
                                    .tx_payload_bytes = 1000});
    }
}

void put_operations(rows::RowSink &sink, const MadeJob &job, std::uint64_t comm) {
    for (std::uint64_t i = 0; i < job.operations; ++i) {
        const std::uint64_t jitter = (i * 7919 + comm * 104729) % 13;
        rows::put(
            sink,
            rows::OperationRow{
                .comm = comm,
                .seq = i,
                .op = "AllReduce",
                .algorithm = "RING",
                .protocol = job.protocol,
                .channels = 8,
                .size_bytes = job.size_bytes,
                .tx_payload_bytes = job.size_bytes * 2,
                .certainty = rows::Certainty::Exact,
                .byte_source = job.byte_source,
                .called_realtime_ns = START_NS + i * job.step_ns + jitter * 1000,
                .last_rank = job.last_rank < 0 ? static_cast<std::int64_t>(i % 2) : job.last_rank,
                .last_call_after_first_ns = job.after_first_ns + jitter * 1000,
                .end_known = "measured",
                .least_duration_ns = job.duration_ns + job.after_first_ns + jitter * 10'000,
                .most_duration_ns = job.duration_ns + job.after_first_ns + jitter * 10'000});
    }
}

void put_job(rows::RowSink &sink, const MadeJob &job) {
    for (std::size_t host = 0; host < job.captured_hosts; ++host) {
        rows::put(sink, rows::HostRow{.host = job.hosts[host],
                                      .kernel_release = "6.8",
                                      .begin_realtime_ns = START_NS,
                                      .end_realtime_ns = START_NS + 60 * STEP_NS});
        rows::put(sink, rows::DeviceRow{
                            .host = job.hosts[host], .device = "mlx5_0", .driver = job.driver});
        rows::put(sink, rows::PortRow{.host = job.hosts[host],
                                      .device = "mlx5_0",
                                      .port = 1,
                                      .rate_mbps = job.rate_mbps});
    }
    rows::put(sink, rows::ClockDifferenceRow{.host_a = "node0", .host_b = "node1"});
    rows::put(sink, rows::TierRow{.tx_wire_bytes = 1'000'000,
                                  .retransmitted_wire_bytes = job.retransmitted_bytes});
    if (job.losses != 0)
        rows::put(
            sink,
            rows::LossRow{.host = job.hosts[0], .loss_class = "nccl_call", .records = job.losses});
    put_communicator(sink, job, job.first_comm, {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, job.world_name);
    put_communicator(sink, job, job.first_comm + 1, {{0, 0}, {1, 0}}, "");
    put_communicator(sink, job, job.first_comm + 2, {{0, 1}, {1, 1}}, "");
    for (std::uint64_t i = 0; i < 3; ++i)
        put_operations(sink, job, job.first_comm + i);
}

Comparison compared(const MadeJob &a, const MadeJob &b) {
    RunRows rows_a, rows_b;
    put_job(rows_a, a);
    put_job(rows_b, b);
    return compare_runs(rows_a, rows_b);
}

std::vector<std::string> codes(const Comparison &comparison) {
    std::vector<std::string> codes;
    for (const Difference &one : comparison.differences)
        codes.push_back(one.code);
    return codes;
}

// `job` changed in one thing against the default is different in this, first and alone.
void expect_only(const MadeJob &job, const std::string &code, const std::string &words) {
    SCOPED_TRACE(code);
    const Comparison result = compared(job, MadeJob{});
    ASSERT_FALSE(result.differences.empty());
    for (const Difference &one : result.differences)
        EXPECT_EQ(one.code, code) << one.sentence;
    EXPECT_NE(result.differences[0].sentence.find(words), std::string::npos)
        << result.differences[0].sentence;
}

TEST(Against, EqualRunsAreAlike) {
    const Comparison result = compared(MadeJob{}, MadeJob{.first_comm = 7});
    EXPECT_EQ(result.verdict, VerdictCode::Alike) << result.sentence;
    EXPECT_TRUE(result.differences.empty());
    ASSERT_EQ(result.matches.pairs.size(), 3U);
    for (const CommPair &pair : result.matches.pairs) {
        EXPECT_EQ(pair.b, pair.a + 7);
        EXPECT_EQ(pair.by, MatchedBy::Layout);
    }
}

TEST(Against, OneChangeIsTheOneDifference) {
    expect_only({.version = "2.30.3"}, "nccl_version", "NCCL 2.30.3, before 2.28.9");
    expect_only({.gid_index = 1}, "parameter", "IbGidIndex: 1, before 3");
    expect_only({.transport = "NET/Socket"}, "transport", "NET/Socket, before NET/IB");
    expect_only({.nic_of_rank_1 = "mlx5_0"}, "nic", "NIC mlx5_0, before mlx5_1");
    expect_only({.protocol = "LL128"}, "choice", "protocol LL128, before SIMPLE");
    expect_only({.rate_mbps = 200'000}, "port", "rate 200000 Mbit/s, before 400000 Mbit/s");
    expect_only({.driver = "mlx5_ib"}, "device", "driver mlx5_ib, before mlx5_core");
    expect_only({.retransmitted_bytes = 5000}, "retransmitted", "0.500 %");
    expect_only({.size_bytes = 16U << 20}, "operation", "in A only: 16.00 MiB");
    expect_only({.losses = 12}, "loss", "12 nccl_call, before none");
    expect_only({.captured_hosts = 1}, "captures", "2 of 4, before 4 of 4");
    expect_only({.duration_ns = 4 * MS_NS}, "transfer", "as long");
    expect_only({.step_ns = 2 * STEP_NS}, "interval", "outside of them");
    expect_only({.byte_source = rows::ByteSource::Derived}, "byte_source",
                "derived, before posted");
}

TEST(Against, ALateRankExplainsTheTime) {
    const Comparison result = compared({.after_first_ns = 40 * MS_NS, .last_rank = 1}, MadeJob{});
    ASSERT_FALSE(result.differences.empty());
    for (const std::string &code : codes(result))
        EXPECT_EQ(code, "late_rank");
    EXPECT_EQ(result.verdict, VerdictCode::Slower);
    EXPECT_NE(result.sentence.find("node0 pid 101"), std::string::npos) << result.sentence;
}

TEST(Against, TheCauseComesBeforeTheEffect) {
    const Comparison result =
        compared({.gid_index = 1, .duration_ns = 4 * MS_NS, .losses = 1}, MadeJob{});
    EXPECT_EQ(codes(result).front(), "parameter");
    EXPECT_EQ(codes(result).back(), "loss");
    EXPECT_EQ(result.verdict, VerdictCode::Slower);
    EXPECT_NE(result.sentence.find("the first difference: NCCL's parameter IbGidIndex"),
              std::string::npos)
        << result.sentence;
}

TEST(Against, AFasterRunIsCalledFaster) {
    EXPECT_EQ(compared(MadeJob{}, {.duration_ns = 4 * MS_NS}).verdict, VerdictCode::Faster);
}

TEST(Against, OtherHostsTakeThePlacesOfTheOldOnes) {
    const Comparison result = compared({.hosts = {"node0", "node9"}, .first_comm = 3}, MadeJob{});
    for (const CommPair &pair : result.matches.pairs)
        EXPECT_EQ(pair.by, MatchedBy::Layout);
    EXPECT_EQ(codes(result), std::vector<std::string>{"hosts"});
    EXPECT_NE(result.sentence.find("hosts in A only: node9; hosts in B only: node1"),
              std::string::npos)
        << result.sentence;
}

TEST(Against, ALossLeavesCountsUncompared) {
    const Comparison result = compared({.losses = 1, .operations = 12}, MadeJob{});
    EXPECT_EQ(codes(result), std::vector<std::string>{"loss"});
    EXPECT_TRUE(std::ranges::any_of(result.not_compared, [](const std::string &sentence) {
        return sentence.find("records were lost") != std::string::npos;
    }));
}

TEST(Against, AShorterRecordingIsNotLessWork) {
    EXPECT_EQ(compared({.operations = 20}, MadeJob{}).verdict, VerdictCode::Alike);
}

TEST(Against, RunsWithoutALikeAreNotComparable) {
    RunRows a, b;
    put_job(a, MadeJob{});
    const Comparison result = compare_runs(a, b);
    EXPECT_EQ(result.verdict, VerdictCode::NotComparable);
    EXPECT_TRUE(result.differences.empty());
}

TEST(Against, TextAndJsonHaveTheSameVerdict) {
    const Comparison result = compared({.protocol = "LL", .duration_ns = 9 * MS_NS}, MadeJob{});
    const std::string text = render_text(result, {.rows = 1, .width = 100});
    EXPECT_EQ(text.find("collwire report A --against B\n  verdict     slower: "), 0U) << text;
    EXPECT_NE(text.find("and 2 more: --rows 3"), std::string::npos) << text;
    const auto json = nlohmann::json::parse(render_json(result, "1"));
    EXPECT_EQ(json["verdict"]["code"], "slower");
    EXPECT_EQ(json["verdict"]["sentence"], result.sentence);
    EXPECT_EQ(json["differences"][0]["code"], "choice");
    EXPECT_EQ(json["operations"].size(), 3U);
    EXPECT_EQ(json["operations"][0]["metrics"][0]["state"], "larger");
}

Comparison compared_roles(const std::optional<std::string> &of_a,
                          const std::optional<std::string> &of_b, const std::string &name) {
    return compared({.world_name = name, .guessed_role = of_a},
                    {.world_name = name, .guessed_role = of_b});
}

TEST(Against, CommunicatorsHaveTheirGuessedRoles) {
    Comparison result = compared_roles("tp", "tp", "");
    EXPECT_EQ(label_of(result.matches.pairs[0]), "tp?");
    EXPECT_NE(render_text(result, {.rows = 9, .width = 100}).find("\n  0 tp?  AllReduce"),
              std::string::npos)
        << render_text(result, {.rows = 9, .width = 100});
    const auto json = nlohmann::json::parse(render_json(result, "1"))["communicators"][0];
    EXPECT_TRUE(json["name"].is_null());
    EXPECT_EQ(json["a_guessed_role"], "tp");
    EXPECT_EQ(json["b_guessed_role"], "tp");
    // One of them is enough; different ones are none.
    EXPECT_EQ(label_of(compared_roles(std::nullopt, "tp", "").matches.pairs[0]), "tp?");
    EXPECT_EQ(label_of(compared_roles("tp", "dp", "").matches.pairs[0]), "");
    EXPECT_EQ(label_of(compared_roles("tp", "tp", "all").matches.pairs[0]), "all");
}

} // namespace
} // namespace collwire::against
