// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "collwire/node_records.h"
#include "userspace/record/cost_printer.h"

namespace collwire::record {
namespace {

constexpr calibrate::TrapCosts COSTS{.emulated_ns = 1500,
                                     .single_stepped_ns = 9000,
                                     .return_ns = 3000,
                                     .post_ns = 1700,
                                     .rounds = 3};

source::PlannedProbe probe_of(cw_probe_kind kind, const char *source, bool emulated = true) {
    source::PlannedProbe probe;
    probe.kind = kind;
    probe.source = source;
    probe.emulated = emulated;
    probe.expected_cost_ns = 600;
    return probe;
}

std::string printed(const RecordOptions &options) {
    char *text = nullptr;
    std::size_t bytes = 0;
    std::FILE *out = open_memstream(&text, &bytes);
    print_costs(out, COSTS, options);
    std::fclose(out);
    std::string all{text, bytes};
    std::free(text);
    return all;
}

TEST(CostHere, IsTheTrapAndTheProgram) {
    EXPECT_EQ(cost_here_ns(probe_of(CW_PROBE_UPROBE, "posts"), COSTS), 1700u);
    EXPECT_EQ(cost_here_ns(probe_of(CW_PROBE_UPROBE, "posts", false), COSTS), 9200u);
    EXPECT_EQ(cost_here_ns(probe_of(CW_PROBE_UPROBE, "nccl"), COSTS), 1670u);
    EXPECT_EQ(cost_here_ns(probe_of(CW_PROBE_URETPROBE, "nccl"), COSTS), 3170u);
}

TEST(CostHere, IsNotKnownOfOtherProbesAndOfThoseThatAreNeverHit) {
    EXPECT_EQ(cost_here_ns(probe_of(CW_PROBE_FENTRY, "qp"), COSTS), 0u);
    EXPECT_EQ(cost_here_ns(probe_of(CW_PROBE_KPROBE, "qp"), COSTS), 0u);
    auto never = probe_of(CW_PROBE_UPROBE, "gpu");
    never.expected_cost_ns = 0;
    EXPECT_EQ(cost_here_ns(never, COSTS), 0u);
}

TEST(Costs, OfAnOperationAreTwoTrapsAndThePrograms) {
    const std::string text = printed({});
    EXPECT_NE(text.find("on 2 connections 3.6 to 5.2 us"), std::string::npos) << text;
    EXPECT_NE(text.find("on 64 connections 8.0 to 9.7 us"), std::string::npos) << text;
    EXPECT_NE(text.find("1000 operations on 2 to 64 connections 3.6 to 9.7 ms"), std::string::npos)
        << text;
    EXPECT_NE(text.find("1.70 us, 10000 posts 17.0 ms"), std::string::npos) << text;
    EXPECT_EQ(text.find("--network-times"), std::string::npos) << text;
}

TEST(Costs, FollowTheOptions) {
    RecordOptions options;
    options.nccl = false;
    options.posts = PostsMode::Off;
    const std::string text = printed(options);
    EXPECT_EQ(text.find("one operation"), std::string::npos) << text;
    EXPECT_NE(text.find("no probe on posts"), std::string::npos) << text;
    options = {};
    options.network_times = true;
    EXPECT_NE(printed(options).find("--network-times: one operation on one connection 4.0 to 4.2"),
              std::string::npos);
}

} // namespace
} // namespace collwire::record
