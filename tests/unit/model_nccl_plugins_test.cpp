// SPDX-License-Identifier: Apache-2.0
// Connections that go through a network plugin: which queue pairs are theirs.
#include <array>
#include <initializer_list>
#include <utility>
#include <vector>

#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "correlate/nccl/network_plugins.h"
#include "correlate/nccl/plugin_owners.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/nccl_model.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::uint64_t BYTES = 4000; // of an operation on a channel of a rank
constexpr int CHANNELS = 2;

// Two ranks, a ring of two channels: each has a queue pair that sends and one that receives. Those
// of later channels were made later.
struct PluginPair {
    NodeBuilder node[2] = {
        NodeBuilder({.flags = NCCL_NODE_FLAGS}),
        NodeBuilder({.hostname = "node1", .session_id = 2, .flags = NCCL_NODE_FLAGS})};
    NcclBuilder rank[2] = {NcclBuilder(node[0], RingPair::of_rank({}, 0)),
                           NcclBuilder(node[1], RingPair::of_rank({}, 1))};

    // `were_there`: the queue pairs, before the recording.
    explicit PluginPair(bool were_there = false) {
        for (int i = 0; i < 2; ++i) {
            node[i].usual(static_cast<std::uint8_t>(i + 1));
            for (int channel = 0; channel < CHANNELS; ++channel)
                for (const bool send : {true, false}) {
                    if (!were_there) {
                        node[i].qp(qp(i, channel, send));
                        continue;
                    }
                    cw_qp_event event = NodeBuilder::connect_event(
                        qp(i, channel, send), CW_KIND_QP_EXISTING, qp(i, channel, send).created);
                    event.flags |= CW_QP_PREEXISTING;
                    node[i].add(event);
                }
            rank[i].comm();
        }
    }

    // Of rank `i`: what sends has an odd number, and what receives that of the sender and one.
    static std::uint32_t qpn(int i, int channel, bool send) {
        const int sender = send ? i : 1 - i;
        return static_cast<std::uint32_t>(17 + 10 * sender + 2 * channel + (send ? 0 : 1));
    }
    static QpOptions qp(int i, int channel, bool send) {
        return {.qpn = qpn(i, channel, send),
                .created = 11.3 + 0.01 * channel, // with the first send: a plugin may
                .local = static_cast<std::uint8_t>(i + 1),
                .remote = static_cast<std::uint8_t>(2 - i),
                .remote_qpn = qpn(1 - i, channel, !send),
                .pid = i == 0 ? 100U : 200U};
    }
    static std::uint64_t address(int channel, bool send) {
        return (send ? SENDS_AT : RECEIVES_AT) + 0x1000 * static_cast<std::uint64_t>(channel);
    }
    [[nodiscard]] cw_nccl_connection record(int i, int channel, bool send, double time) const {
        cw_nccl_connection connection =
            rank[i].socket_connection_record(time, address(channel, send), send, 1 - i, 0);
        connection.transport = CW_NCCL_TRANSPORT_PLUGIN;
        connection.channel = channel;
        connection.n = connection.n_endpoints = 0;
        return connection;
    }
    void connect() {
        for (int i = 0; i < 2; ++i)
            for (int channel = 0; channel < CHANNELS; ++channel)
                for (const bool send : {true, false})
                    node[i].add(record(i, channel, send, 11.2));
    }
    // Queue pairs and how many pointers lead there.
    using Found = std::vector<std::pair<std::uint32_t, std::uint8_t>>;
    void find(int i, int channel, bool send, const Found &found, double time = 11.5) {
        cw_nccl_connection connection = record(i, channel, send, time);
        connection.flags |= CW_NCCL_CONNECTION_FOUND;
        connection.n_endpoints = static_cast<std::uint32_t>(found.size());
        for (std::size_t first = 0; first < found.size(); first += CW_NCCL_ENDPOINTS) {
            connection.first = static_cast<std::uint32_t>(first);
            connection.n = 0;
            for (std::size_t at = first; at < found.size() && connection.n < CW_NCCL_ENDPOINTS;
                 ++at)
                connection.endpoints[connection.n++] = {
                    0, found[at].first, 0,
                    static_cast<std::uint8_t>(send ? CW_NCCL_ROLE_DATA
                                                   : CW_NCCL_ROLE_CLEAR_TO_SEND),
                    found[at].second};
            node[i].add(connection);
        }
    }
    void find_all() {
        for (int i = 0; i < 2; ++i)
            for (int channel = 0; channel < CHANNELS; ++channel)
                for (const bool send : {true, false})
                    find(i, channel, send, {{qpn(i, channel, send), 2}});
    }

    // An AllGather on both channels. `more`: bytes that each queue pair carries in addition;
    // `less`: that it lacks when the recording ends.
    model::Model run(std::uint64_t more = 0, std::uint64_t less = 0) {
        const CallOptions call{.count = 1000};
        for (int i = 0; i < 2; ++i) {
            std::vector<cw_nccl_op> ops;
            for (int channel = 0; channel < CHANNELS; ++channel)
                for (const bool send : {false, true})
                    ops.push_back(rank[i].ring({.connection = address(channel, send),
                                                .bytes = bytes_of(channel),
                                                .channel = static_cast<std::uint8_t>(channel),
                                                .peer = 1 - i}));
            rank[i].call(12, call).shape(12, 1, {call}, ops);
            rank[i].launch(12.1, 1, {call}, {.launched = 1});
            for (int channel = 0; channel < CHANNELS; ++channel) {
                const Frames data{.requests = 4,
                                  .request_payload = bytes_of(channel) + more - less};
                const Frames control{.requests = 1, .request_payload = 40};
                node[i].wire(qp(i, channel, true), 15, data, control);
                node[i].wire(qp(i, channel, false), 15, control, data);
            }
            node[i].clock(20).end();
        }
        return model_of({node[0].bytes(), node[1].bytes()});
    }

    bool are_alike = false; // the channels; else there is twice as much on the second
    [[nodiscard]] std::uint64_t bytes_of(int channel) const {
        return channel == 0 || are_alike ? BYTES : 2 * BYTES;
    }
    [[nodiscard]] std::uint64_t all_bytes() const { return 2 * (bytes_of(0) + bytes_of(1)); }
};

const QpIdentity &identity_of(const model::Model &model, int i, int channel, bool send) {
    const auto &qp = qp_of(model, i == 0 ? "node0" : "node1", PluginPair::qpn(i, channel, send));
    return model.nccl.qps[static_cast<std::size_t>(&qp - model.qps.data())];
}

// What is exact of NCCL's own network is inferred here, whatever the bytes are. `by_bytes`: what
// they were chosen by confirms nothing.
void expect_joined(PluginPair &pair, bool by_bytes = false) {
    const model::Model model = pair.run();
    EXPECT_EQ(of_rung(model, Rung::Exact), 0U);
    EXPECT_EQ(of_rung(model, Rung::Inferred), pair.all_bytes());
    EXPECT_EQ(model.nccl.totals.confirmed_bytes, by_bytes ? 0 : pair.all_bytes());
    EXPECT_EQ(of_rung(model, Rung::Process), 0U);
    for (int i = 0; i < 2; ++i)
        for (int channel = 0; channel < CHANNELS; ++channel)
            for (const bool send : {true, false}) {
                const QpIdentity &identity = identity_of(model, i, channel, send);
                EXPECT_EQ(identity.role, send ? Role::Data : Role::ClearToSend);
                EXPECT_EQ(identity.rung, Rung::Inferred);
                ASSERT_NE(identity.link, NONE);
                const Link &link = model.nccl.links[identity.link];
                EXPECT_EQ(link.channels, std::vector<std::int32_t>{channel});
                EXPECT_EQ(std::pair(link.rank, link.peer), std::pair(i, 1 - i));
            }
    ASSERT_EQ(model.nccl.collectives.size(), 1U);
    EXPECT_EQ(model.nccl.collectives[0].payload_bytes, pair.all_bytes());
    EXPECT_EQ(model.nccl.collectives[0].rung, Rung::Inferred);
    EXPECT_EQ(model.nccl.matrix.begin()->first.transport, CW_NCCL_TRANSPORT_PLUGIN);
}

TEST(NcclPlugins, QueuePairsAreFoundByPointers) {
    PluginPair pair;
    pair.connect();
    pair.find_all();
    expect_joined(pair);
}

// A later segment has the record with the queue pairs alone, and an earlier one may be read after
// it.
TEST(NcclPlugins, RecordsMayComeInAnyOrder) {
    for (const bool is_emitted_before : {true, false}) {
        PluginPair pair;
        pair.find_all();
        if (is_emitted_before)
            pair.connect();
        expect_joined(pair);
    }
}

// Its addresses are another's when it has ended.
TEST(NcclPlugins, AConnectionAtTheSameAddressesIsAnotherOne) {
    PluginPair pair;
    for (const double begin : {11.2, 16.2}) {
        pair.node[0].add(pair.record(0, 0, true, begin));
        pair.find(0, 0, true, {{begin < 12 ? 17U : 91U, 2}}, begin + 0.3);
        pair.node[0].add(pair.record(0, 0, true, begin)); // of another segment
    }
    const model::Model model = pair.run();
    const auto &connections = model.nccl.gathered.connections;
    ASSERT_EQ(connections.size(), 2U);
    for (std::size_t i = 0; i < connections.size(); ++i) {
        const double begin = i == 0 ? 11.2 : 16.2;
        EXPECT_EQ(connections[i].head.header.time_ns, seconds(begin));
        EXPECT_EQ(connections[i].found_ns, seconds(begin + 0.3));
        ASSERT_EQ(connections[i].endpoints.size(), 1U);
        EXPECT_EQ(connections[i].endpoints[0].number, i == 0 ? 17U : 91U);
    }
}

// A queue pair of another connection carries something else, and the recording ends in the middle
// of it.
TEST(NcclPlugins, BytesThatDifferFromThePlanAreNotConfirmed) {
    PluginPair pair;
    pair.connect();
    pair.find_all();
    const model::Model model = pair.run(0, 1000);
    EXPECT_EQ(of_rung(model, Rung::Inferred), pair.all_bytes() - 2000UL * CHANNELS);
    EXPECT_EQ(model.nccl.totals.confirmed_bytes, 0U);
}

// Its own headers are no operation's.
TEST(NcclPlugins, OtherBytesOfAPluginCountForTheProcess) {
    PluginPair pair;
    pair.connect();
    pair.find_all();
    const model::Model model = pair.run(100);
    EXPECT_EQ(of_rung(model, Rung::Exact), 0U);
    EXPECT_EQ(of_rung(model, Rung::Inferred), pair.all_bytes());
    EXPECT_EQ(of_rung(model, Rung::Process), 2 * CHANNELS * 100U);
    EXPECT_EQ(model.nccl.totals.confirmed_bytes, 0U);
    std::uint64_t of_ranks = 0;
    for (const auto &[key, cell] : model.nccl.matrix)
        of_ranks += cell.payload_bytes;
    EXPECT_EQ(of_ranks, pair.all_bytes());
}

// The connection's own are nearer than those of others.
TEST(NcclPlugins, ShortestPointerPathIsTheOwner) {
    PluginPair pair;
    pair.connect();
    for (int i = 0; i < 2; ++i)
        for (int channel = 0; channel < CHANNELS; ++channel)
            for (const bool send : {true, false}) {
                PluginPair::Found all;
                for (int other = 0; other < CHANNELS; ++other)
                    for (const bool others : {true, false})
                        all.emplace_back(PluginPair::qpn(i, other, others),
                                         other == channel && others == send ? 1 : 2);
                pair.find(i, channel, send, all);
            }
    expect_joined(pair);
}

// Nor are they given by their bytes, where these do not fit.
TEST(NcclPlugins, EqualPointerPathsHaveNoOwner) {
    PluginPair pair;
    pair.connect();
    for (int i = 0; i < 2; ++i)
        for (int channel = 0; channel < CHANNELS; ++channel)
            for (const bool send : {true, false})
                pair.find(i, channel, send,
                          {{PluginPair::qpn(i, 0, send), 1}, {PluginPair::qpn(i, 1, send), 1}});
    const model::Model model = pair.run(100);
    EXPECT_EQ(of_rung(model, Rung::Exact), 0U);
    EXPECT_EQ(of_rung(model, Rung::Inferred), 0U);
    EXPECT_EQ(of_rung(model, Rung::Process), pair.all_bytes() + 4 * (100UL + 40UL));
    EXPECT_EQ(identity_of(model, 0, 0, true).link, NONE);
    EXPECT_EQ(model.nccl.collectives.at(0).payload_bytes, pair.all_bytes()) << "computed";
    EXPECT_EQ(model.nccl.collectives.at(0).rung, Rung::Inferred) << "nothing of a plugin is more";
}

TEST(NcclPlugins, ManyQueuePairsAreInSeveralRecords) {
    PluginPair pair;
    pair.connect();
    PluginPair::Found many;
    for (std::uint32_t other = 0; other < 20; ++other)
        many.emplace_back(900 + other, 1); // of which nothing is known
    many.emplace_back(PluginPair::qpn(0, 0, true), 3);
    pair.find_all();
    pair.find(0, 0, true, many);
    expect_joined(pair);
}

// What was found of one end is known of the other.
TEST(NcclPlugins, QueuePairFoundAtOneEndIsKnownAtTheOther) {
    PluginPair pair;
    pair.are_alike = true;
    pair.connect();
    for (int channel = 0; channel < CHANNELS; ++channel)
        for (const bool send : {true, false})
            pair.find(1, channel, send, {{PluginPair::qpn(1, channel, send), 2}});
    expect_joined(pair);
}

// Rank 1 has two connections that could be it.
TEST(NcclPlugins, QueuePairFoundAtOneEndIsNoneOfTwoAtTheOther) {
    PluginPair pair;
    pair.connect();
    cw_nccl_connection second = pair.record(1, 0, false, 11.2);
    second.connection += 0x10;
    second.net_comm += 0x10;
    pair.node[1].add(second);
    pair.find(0, 0, true, {{PluginPair::qpn(0, 0, true), 2}});
    const model::Model model = pair.run(100);
    const Index link = identity_of(model, 0, 0, true).link;
    ASSERT_NE(link, NONE);
    EXPECT_EQ(model.nccl.links[link].channels, std::vector<std::int32_t>{0});
    const Index other = identity_of(model, 1, 0, false).link;
    ASSERT_NE(other, NONE) << "known from its other end";
    EXPECT_TRUE(model.nccl.links[other].is_mirrored);
}

// No pointer leads there: what two ranks have with each other, and carried what their operations
// come to.
TEST(NcclPlugins, QueuePairsMatchByPeerAndBytes) {
    for (const bool were_there : {false, true}) {
        PluginPair pair(were_there);
        pair.connect();
        expect_joined(pair, true);
    }
}

TEST(NcclPlugins, EqualBytesMatchByOrder) {
    PluginPair pair;
    pair.are_alike = true;
    pair.connect();
    expect_joined(pair, true);
}

// Those that were there before come in an order of their own.
TEST(NcclPlugins, UnknownCreationOrderDoesNotMatch) {
    PluginPair pair(true);
    pair.are_alike = true;
    pair.connect();
    const model::Model model = pair.run();
    EXPECT_EQ(of_rung(model, Rung::Inferred), 0U);
    EXPECT_EQ(identity_of(model, 0, 0, true).link, NONE);
}

// More were made than are used, and they cannot be distinguished.
TEST(NcclPlugins, DifferentNumbersDoNotMatchByOrder) {
    PluginPair pair;
    pair.are_alike = true;
    pair.connect();
    constexpr QpOptions more[2] = {
        {.qpn = 91, .local = 1, .remote = 2, .remote_qpn = 92, .pid = 100},
        {.qpn = 92, .local = 2, .remote = 1, .remote_qpn = 91, .pid = 200}};
    for (int i = 0; i < 2; ++i) {
        pair.node[i].qp(more[i]);
        const Frames data{.requests = 1, .request_payload = i == 0 ? BYTES : 0};
        pair.node[i].wire(more[i], 15, data, {});
    }
    const model::Model model = pair.run();
    EXPECT_EQ(of_rung(model, Rung::Inferred), 2 * BYTES) << "of the other rank";
    EXPECT_EQ(identity_of(model, 0, 0, true).link, NONE);
    EXPECT_EQ(identity_of(model, 1, 0, true).role, Role::Data);
}

TEST(NcclPlugins, NetworksAreNamed) {
    PluginPair pair;
    pair.connect();
    auto network = make_record<cw_nccl_network>(CW_KIND_NCCL_NETWORK, seconds(11.5));
    network.net = 0x7e7;
    network.tgid = 100;
    set_text(network.name, "IBext_v8");
    set_text(network.path, "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so");
    pair.node[0].add(network).add(network);
    const model::Model model = pair.run();
    const std::vector<NetworkUse> uses = network_uses(model);
    ASSERT_EQ(uses.size(), 2U);
    EXPECT_EQ(uses[0].name, "IBext_v8");
    EXPECT_EQ(uses[0].path, "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so");
    EXPECT_EQ(uses[0].n_connections, 2U * CHANNELS);
    EXPECT_EQ(uses[0].n_with_queue_pairs, 2U * CHANNELS);
    EXPECT_EQ(uses[1].name, "") << "it could not be read";
    const auto finding = plugin_finding(model);
    ASSERT_TRUE(finding);
    EXPECT_EQ(finding->kind, "network_plugin");
    EXPECT_NE(finding->what.find("IBext_v8 (/opt/hpcx"), std::string::npos) << finding->what;
    EXPECT_EQ(finding->evidence.at("connections"), 4U * CHANNELS);
}

TEST(NcclPlugins, OwnersHaveTheShortestPointerPath) {
    PluginOwners owners;
    owners.add(1, 0xa, 2);
    EXPECT_TRUE(owners.is_of(1, 0xa));
    EXPECT_FALSE(owners.is_of(1, 0xb));
    owners.add(1, 0xb, 2);
    EXPECT_FALSE(owners.is_of(1, 0xa) || owners.is_of(1, 0xb));
    owners.add(1, 0xb, 1);
    owners.add(1, 0xa, 2);
    EXPECT_TRUE(owners.is_of(1, 0xb));
    EXPECT_FALSE(owners.is_of(NONE, 0xb));
}

} // namespace
} // namespace collwire::nccl
