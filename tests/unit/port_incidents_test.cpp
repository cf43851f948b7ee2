// SPDX-License-Identifier: Apache-2.0
// What went wrong with ports, and what used them then.
#include <algorithm>
#include <sstream>

#include <nlohmann/json.hpp>

#include "collwire/nccl_comm_records.h"
#include "correlate/nccl/port_incidents.h"
#include "correlate/report/json_report.h"
#include "correlate/report/text_report.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::uint32_t PORT_ERR = 10; // IB_EVENT_PORT_ERR

// Three operations at 12, 14 and 16 s, of 0.1 s each; the one at 14 s takes as long as is given.
struct Job {
    RingPair ring;

    explicit Job(double second_end = 14.1) {
        ring.all_gather(12, 1000).all_gather(14, 1000).all_gather(16, 1000);
        const double ends[] = {12.1, second_end, std::max(16.1, second_end + 0.1)};
        for (int i = 0; i < 2; ++i)
            for (const std::uint64_t connection : {SENDS_AT, RECEIVES_AT})
                for (int k = 0; k < 3; ++k)
                    ring.rank[i].progress(12.01 + 2 * k, ends[k], connection,
                                          static_cast<std::uint64_t>(k));
    }
    model::Model model() { return model_of(ring.captures()); }
};

std::vector<std::uint64_t> sequences(const model::Model &model, const std::vector<Index> &of) {
    std::vector<std::uint64_t> numbers;
    numbers.reserve(of.size());
    for (const Index i : of)
        numbers.push_back(model.nccl.collectives[i].seq);
    return numbers;
}
using Numbers = std::vector<std::uint64_t>;

TEST(PortIncidents, AFlapHasTheOperationsThatRanThen) {
    Job job(15.5);
    job.ring.node[1].carrier(14.05, false).carrier(15.2, true);
    const model::Model model = job.model();
    const std::vector<PortIncident> incidents = find_port_incidents(model);
    ASSERT_EQ(incidents.size(), 1U);
    const PortIncident &flap = incidents[0];
    EXPECT_EQ(model.hosts[model.devices[model.ports[flap.port].device].host].name, "node1");
    EXPECT_EQ(flap.begin_ns, seconds(14.05));
    EXPECT_EQ(flap.end_ns, seconds(15.2));
    EXPECT_EQ(flap.down_ns, seconds(1.15));
    EXPECT_EQ(flap.times_down, 1U);
    EXPECT_FALSE(flap.is_down_at_end);
    ASSERT_EQ(flap.processes.size(), 1U);
    EXPECT_EQ(model.processes[flap.processes[0]].pid, 200U);
    EXPECT_EQ(flap.unplaced_connections, 0U);
    ASSERT_EQ(flap.uses.size(), 1U);
    const IncidentUse &use = flap.uses[0];
    EXPECT_EQ(use.ranks, (std::vector<std::int32_t>{1}));
    EXPECT_EQ(sequences(model, use.running), (Numbers{1}));
    EXPECT_TRUE(use.perhaps.empty());
    ASSERT_NE(use.longest, NONE);
    EXPECT_EQ(model.nccl.collectives[use.longest].seq, 1U);
    EXPECT_EQ(use.usual_of, 2U);
    EXPECT_NEAR(static_cast<double>(use.usual_ns), 0.097e9, 2e6);
}

TEST(PortIncidents, WithoutAnOperationTheCommunicatorIsNamed) {
    Job job;
    job.ring.node[0].carrier(14.5, false).carrier(14.6, true);
    const model::Model model = job.model();
    const std::vector<PortIncident> incidents = find_port_incidents(model);
    ASSERT_EQ(incidents.size(), 1U);
    ASSERT_EQ(incidents[0].uses.size(), 1U);
    EXPECT_TRUE(incidents[0].uses[0].running.empty());
    EXPECT_TRUE(incidents[0].uses[0].perhaps.empty());
    EXPECT_EQ(incidents[0].uses[0].ranks, (std::vector<std::int32_t>{0}));
}

// Between the samples at 13.9 and 14.9 s it ended at some time.
TEST(PortIncidents, BoundsOfAnEndMakeItPerhaps) {
    RingPair ring;
    ring.all_gather(12, 1000).all_gather(14, 1000);
    for (int i = 0; i < 2; ++i)
        for (const std::uint64_t connection : {SENDS_AT, RECEIVES_AT})
            ring.rank[i].steps(13.9, connection, 1).steps(14.9, connection, 2);
    ring.node[0].carrier(14.5, false).carrier(14.6, true);
    const model::Model model = model_of(ring.captures());
    const std::vector<PortIncident> incidents = find_port_incidents(model);
    ASSERT_EQ(incidents.size(), 1U);
    ASSERT_EQ(incidents[0].uses.size(), 1U);
    EXPECT_TRUE(incidents[0].uses[0].running.empty());
    EXPECT_EQ(sequences(model, incidents[0].uses[0].perhaps), (Numbers{1}));
}

// Without times of ends only the last launch before may be the one.
TEST(PortIncidents, WithoutEndsTheLastLaunchBeforeIsPerhapsOne) {
    RingPair ring;
    ring.all_gather(12, 1000).all_gather(14, 1000).all_gather(15, 1000);
    ring.node[0].carrier(14.5, false).carrier(15.5, true);
    const model::Model model = model_of(ring.captures());
    const std::vector<PortIncident> incidents = find_port_incidents(model);
    ASSERT_EQ(incidents.size(), 1U);
    ASSERT_EQ(incidents[0].uses.size(), 1U);
    EXPECT_EQ(sequences(model, incidents[0].uses[0].running), (Numbers{2})) << "launched then";
    EXPECT_EQ(sequences(model, incidents[0].uses[0].perhaps), (Numbers{1}));
}

TEST(PortIncidents, EachIncidentHasTheOperationsOfItsOwnTime) {
    RingPair ring;
    ring.all_gather(12, 1000).all_gather(14, 1000).all_gather(30, 1000);
    ring.node[0].carrier(12.5, false).carrier(12.6, true);
    ring.node[0].carrier(25, false).carrier(25.1, true);
    ring.node[0].carrier(37, false).carrier(37.1, true);
    std::vector<std::vector<std::byte>> captures;
    for (NodeBuilder &node : ring.node)
        captures.push_back(node.clock(40).end(40).bytes());
    const model::Model model = model_of(captures);
    const std::vector<PortIncident> incidents = find_port_incidents(model);
    ASSERT_EQ(incidents.size(), 3U);
    for (std::uint64_t i = 0; i < incidents.size(); ++i) {
        ASSERT_EQ(incidents[i].uses.size(), 1U);
        EXPECT_TRUE(incidents[i].uses[0].running.empty());
        EXPECT_EQ(sequences(model, incidents[i].uses[0].perhaps), (Numbers{i}));
    }
}

TEST(PortIncidents, EventsWithinTenSecondsAreOne) {
    Job job;
    job.ring.node[0]
        .carrier(12.5, false)
        .async_event(12.5, PORT_ERR)
        .carrier(12.6, true)
        .carrier(13.5, false)
        .carrier(13.7, true);
    const model::Model model = job.model();
    const std::vector<PortIncident> incidents = find_port_incidents(model);
    ASSERT_EQ(incidents.size(), 1U);
    EXPECT_EQ(incidents[0].times_down, 2U);
    EXPECT_EQ(incidents[0].down_ns, seconds(0.3));
    EXPECT_EQ(incidents[0].events.size(), 5U);
}

// A vendor's RDMA stack: no probe sees an edge, but the state is sampled.
TEST(PortIncidents, WithoutEdgesTheSampledStateShowsIt) {
    for (const bool has_edge : {false, true}) {
        Job job;
        cw_port down = job.ring.node[0].port_record(13, 0);
        down.state = 1;
        job.ring.node[0].add(down).add(job.ring.node[0].port_record(15, 0));
        if (has_edge)
            job.ring.node[0].carrier(12.8, false).carrier(12.9, true);
        const model::Model model = job.model();
        const std::vector<PortIncident> incidents = find_port_incidents(model);
        ASSERT_EQ(incidents.size(), 1U);
        EXPECT_EQ(incidents[0].times_down, 1U);
        EXPECT_EQ(incidents[0].down_ns, seconds(has_edge ? 0.1 : 2));
        EXPECT_FALSE(incidents[0].is_down_at_end);
    }
}

TEST(PortIncidents, TextSaysWhichCountersGrew) {
    Job job;
    job.ring.node[0]
        .counter(1, "symbol_error", CW_COUNTER_PORT, CW_UNIT_EVENTS)
        .samples(12, {{1, 0, 5}})
        .samples(13, {{1, 0, 17}});
    const std::string text = report::text_report(job.model(), {.width = 400});
    EXPECT_NE(text.find("node0 rxe0 port 1 (at leaf0 swp1): symbol_error +12; within 1.0 s"),
              std::string::npos)
        << text;
}

TEST(PortIncidents, APortThatStaysDownIsDownUntilTheEnd) {
    Job job(19.5);
    job.ring.node[0].carrier(14.05, false);
    const model::Model model = job.model();
    const std::vector<PortIncident> incidents = find_port_incidents(model);
    ASSERT_EQ(incidents.size(), 1U);
    EXPECT_TRUE(incidents[0].is_down_at_end);
    EXPECT_EQ(incidents[0].end_ns, model.sessions[0].end_ns);
    EXPECT_EQ(sequences(model, incidents[0].uses.at(0).running), (Numbers{1, 2}));
}

TEST(PortIncidents, APortThatComesUpIsNone) {
    Job job;
    job.ring.node[0].carrier(10.5, true);
    EXPECT_TRUE(find_port_incidents(job.model()).empty());
}

TEST(PortIncidents, TextAndJsonSayTheSame) {
    Job job(15.5);
    job.ring.node[1].carrier(14.05, false).carrier(15.2, true);
    const model::Model model = job.model();
    const std::string text = report::text_report(model, {.width = 400});
    EXPECT_NE(text.find("port incidents node1 rxe0 port 1 (at leaf0 swp2): down for 1.1 s at "
                        "03:04:19.050, while 1 operation(s) used it"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("rank(s) 1: 1 collective(s) (seq 1) ran then; the longest, AllGather 1, "
                        "took 1.5 s"),
              std::string::npos)
        << text;
    std::ostringstream out;
    report::write_json(model, out);
    const nlohmann::json json = nlohmann::json::parse(out.str());
    ASSERT_EQ(json["port_incidents"].size(), 1U);
    const nlohmann::json &incident = json["port_incidents"][0];
    EXPECT_EQ(incident["host"], "node1");
    EXPECT_EQ(incident["device"], "rxe0");
    EXPECT_EQ(incident["down_ns"], seconds(1.15));
    EXPECT_EQ(incident["processes"][0]["pid"], 200);
    const nlohmann::json &use = incident["communicators"][0];
    EXPECT_EQ(use["ranks"], (std::vector<int>{1}));
    EXPECT_EQ(use["running"], 1);
    EXPECT_EQ(use["running_operations"][0]["seq"], 1);
    EXPECT_EQ(use["longest"]["op"], "AllGather");
    EXPECT_EQ(use["usual_of"], 2);
}

} // namespace
} // namespace collwire::nccl
