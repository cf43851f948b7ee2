// SPDX-License-Identifier: Apache-2.0
// Bytes between two ranks of one node, from records to operations, pairs of ranks and windows.
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/nvlink_records.h"
#include "collwire/record_kinds.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/nccl_model.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::uint64_t BYTES = 4000; // of an AllGather, by each rank
constexpr std::uint64_t BUS_IDS[] = {0x1b000, 0x1c000};
constexpr LaunchOptions LOCAL = {.flags = CW_NCCL_LAUNCH_LAUNCHED | CW_NCCL_LAUNCH_LOCAL,
                                 .launched = 1};

struct LocalPair {
    NodeBuilder node{{.flags = NCCL_NODE_FLAGS}};
    NcclBuilder rank[2];

    explicit LocalPair(RankOptions options = {.n_nodes = 1})
        : rank{NcclBuilder(node, RingPair::of_rank(options, 0)),
               NcclBuilder(node, RingPair::of_rank(options, 1))} {
        node.usual(1);
    }

    // Both have one channel with a ring.
    LocalPair &comm(int i) {
        cw_nccl_comm comm = rank[i].comm_record();
        comm.local_ranks = 2;
        comm.node = 0;
        comm.local_rank = i;
        comm.bus_id = BUS_IDS[i];
        node.add(comm);
        auto channel = make_record<cw_nccl_channel>(CW_KIND_NCCL_CHANNEL, seconds(11.1));
        channel.tgid = comm.tgid;
        channel.comm = comm.comm;
        channel.ring_prev = channel.ring_next = 1 - i;
        channel.ring_index = i;
        channel.tree_up = channel.tree_down[0] = channel.tree_down[1] = channel.tree_down[2] = -1;
        node.add(channel);
        return *this;
    }
    [[nodiscard]] cw_nccl_local connected(int i) const {
        auto local = make_record<cw_nccl_local>(CW_KIND_NCCL_LOCAL, seconds(12.5));
        local.tgid = rank[i].options().pid;
        local.comm = rank[i].options().comm;
        local.peer = 1 - i;
        return local;
    }
    LocalPair &through_memory(int i) {
        cw_nccl_local local = connected(i);
        local.shm_send[0] = local.shm_recv[0] = 1;
        node.add(local);
        return *this;
    }
    LocalPair &launched(int i, std::uint8_t channels = 1) {
        const CallOptions call{.count = BYTES / 4};
        rank[i]
            .call(12, call)
            .shape(12, 70, {call}, {}, channels)
            .launch(12.001, 70, {call}, LOCAL);
        return *this;
    }
    [[nodiscard]] model::Model model() {
        node.clock(20).end();
        return model_of({node.bytes()});
    }
};

LocalState state_of_first(const model::Model &model) {
    return model.nccl.local.collectives.at(0).state;
}

TEST(NcclLocal, BothRanksSendTheirShare) {
    LocalPair pair;
    for (const int i : {0, 1})
        pair.comm(i).launched(i).through_memory(i);
    const model::Model model = pair.model();
    const LocalFacts &local = model.nccl.local;
    ASSERT_EQ(local.collectives.size(), 1U);
    EXPECT_EQ(state_of_first(model), LocalState::Modelled);
    EXPECT_EQ(local.collectives[0].payload_bytes, 2 * BYTES);
    ASSERT_EQ(local.matrix.size(), 2U);
    for (const auto &[key, bytes] : local.matrix) {
        EXPECT_EQ(key.transport, LocalTransport::Shm);
        EXPECT_EQ(key.destination, 1 - key.source);
        EXPECT_EQ(bytes.payload_bytes, BYTES);
        EXPECT_EQ(bytes.data_bytes, BYTES);
    }
    EXPECT_EQ(Parts(model).local_of(collective(model, 0)).size(), 4U) << "both ends of both";
    EXPECT_EQ(collective(model, 0).payload_bytes, 0U) << "nothing on the network";
    const LocalSums &sums = local.sums.begin()->second;
    EXPECT_EQ(sums.operations, 1U);
    EXPECT_EQ(sums.modelled, 1U);
}

// Both heads read all of what the other has and their own, and write what they added up to both.
TEST(NcclLocal, NvlsGoesThroughTheSwitch) {
    for (const bool is_recorded : {true, false}) {
        LocalPair pair;
        for (const int i : {0, 1}) {
            const CallOptions call{.func = CW_NCCL_ALL_REDUCE, .count = BYTES / 4};
            pair.comm(i).rank[i].call(12, call).shape(12, 70, {call}, {}, 1, CW_NCCL_NVLS);
            pair.rank[i].launch(12.001, 70, {call}, LOCAL);
            if (is_recorded)
                pair.rank[i].nvls(11.5, 2, i);
        }
        const model::Model model = pair.model();
        const LocalFacts &local = model.nccl.local;
        ASSERT_EQ(local.collectives.size(), 1U);
        if (!is_recorded) {
            EXPECT_EQ(state_of_first(model), LocalState::NotModelled);
            EXPECT_EQ(local.collectives[0].reason, NotModelled::Nvls);
            continue;
        }
        EXPECT_EQ(state_of_first(model), LocalState::Modelled);
        // Less than 16 KiB: the first head has all of it.
        EXPECT_EQ(local.collectives[0].payload_bytes, (BYTES + BYTES) + BYTES);
        ASSERT_EQ(local.matrix.size(), 4U) << "each rank to the switch and from it";
        for (const auto &[key, bytes] : local.matrix) {
            EXPECT_EQ(key.transport, LocalTransport::Nvls);
            EXPECT_EQ(std::min(key.source, key.destination), NVLINK_SWITCH);
            EXPECT_EQ(bytes.payload_bytes,
                      std::max(key.source, key.destination) == 0 ? 2 * BYTES : BYTES);
        }
        EXPECT_EQ(Parts(model).local_of(collective(model, 0)).size(), 4U);
    }
}

TEST(NcclLocal, TheTransportIsTheConnectionsOwn) {
    LocalPair pair;
    for (const int i : {0, 1}) {
        cw_nccl_local local = pair.comm(i).launched(i).connected(i);
        local.p2p_send[0] = local.p2p_recv[0] = 1;
        local.shm_send[1] = local.shm_recv[1] = 1; // of sends and receives
        pair.node.add(local);
    }
    for (const auto &[key, bytes] : pair.model().nccl.local.matrix)
        EXPECT_EQ(key.transport, LocalTransport::P2p);
}

// `first`: NVML's record of the first rank's GPU.
LocalTransport p2p_transport(cw_nvlink_gpu first, std::uint32_t epoch = 1) {
    LocalPair pair;
    for (const int i : {0, 1}) {
        cw_nccl_local local = pair.comm(i).launched(i).connected(i);
        local.p2p_send[0] = local.p2p_recv[0] = 1;
        pair.node.add(local);
    }
    first.header = make_record<cw_nvlink_gpu>(CW_KIND_NVLINK_GPU, seconds(10)).header;
    first.epoch = 1;
    first.bus_id = BUS_IDS[0];
    pair.node.add(first);
    cw_nvlink_gpu second = first;
    second.gpu = 1;
    second.epoch = epoch;
    second.bus_id = BUS_IDS[1];
    second.links = 2;
    second.nvlink_peers = second.other_peers = 0;
    pair.node.add(second);
    const model::Model model = pair.model();
    for (const auto &[key, bytes] : model.nccl.local.matrix)
        if (key.source == 0)
            return key.transport;
    return LocalTransport::Shm;
}

TEST(NcclLocal, NvmlSaysWhatP2pGoesOver) {
    EXPECT_EQ(p2p_transport({.links = 2, .nvlink_peers = 2}), LocalTransport::Nvlink);
    EXPECT_EQ(p2p_transport({.links = 2, .other_peers = 2}), LocalTransport::Pcie);
    EXPECT_EQ(p2p_transport({.links = 0}), LocalTransport::Pcie) << "a GPU without NVLinks";
    EXPECT_EQ(p2p_transport({.links = 0, .result = 3}), LocalTransport::P2p)
        << "their number is not known";
    EXPECT_EQ(p2p_transport({.links = 2, .nvlink_peers = 4}), LocalTransport::P2p)
        << "an answer about another GPU";
    EXPECT_EQ(p2p_transport({.links = 2, .nvlink_peers = 2}, 2), LocalTransport::P2p)
        << "indices of another start of NVML";
}

TEST(NcclLocal, WithoutItsRecordTheTransportIsUnknown) {
    LocalPair pair;
    for (const int i : {0, 1})
        pair.comm(i).launched(i);
    const model::Model model = pair.model();
    EXPECT_EQ(model.nccl.local.matrix.size(), 2U);
    for (const auto &[key, bytes] : model.nccl.local.matrix)
        EXPECT_EQ(key.transport, LocalTransport::Unknown);
}

// NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1
TEST(NcclLocal, RanksOfANodeThatUseTheNetworkHaveNoLocalBytes) {
    LocalPair pair;
    for (const int i : {0, 1}) {
        cw_nccl_local local = pair.comm(i).launched(i).connected(i);
        local.net_send[0] = local.net_recv[0] = 1;
        pair.node.add(local);
    }
    EXPECT_TRUE(pair.model().nccl.local.matrix.empty());
}

TEST(NcclLocal, AnUnrecordedLaunchIsNot0Bytes) {
    LocalPair pair;
    for (const int i : {0, 1}) {
        pair.comm(i).through_memory(i);
        pair.rank[i].call(12, {.count = BYTES / 4});
    }
    const model::Model model = pair.model();
    EXPECT_EQ(state_of_first(model), LocalState::NotRecorded);
    EXPECT_TRUE(model.nccl.local.matrix.empty());
}

// 2.27 and later, over several nodes: only ranks with a connection to another node have launches.
TEST(NcclLocal, ARankWithoutALaunchDidWhatTheOthersDid) {
    LocalPair pair;
    for (const int i : {0, 1})
        pair.comm(i).through_memory(i);
    pair.launched(0);
    pair.rank[1].call(12, {.count = BYTES / 4});
    const model::Model model = pair.model();
    EXPECT_EQ(state_of_first(model), LocalState::Modelled);
    EXPECT_EQ(model.nccl.local.collectives[0].payload_bytes, 2 * BYTES);
    EXPECT_EQ(Parts(model).local_of(collective(model, 0)).size(), 4U);
    const auto gpus = local_bytes_between(model, 0, seconds(12), seconds(13));
    ASSERT_EQ(gpus.size(), 2U);
    EXPECT_EQ(gpus[0].calls_without_launch + gpus[1].calls_without_launch, 1U);
}

TEST(NcclLocal, BytesOfAnUnrecordedSenderAreThoseOfItsReceiver) {
    LocalPair pair;
    pair.comm(0).launched(0).through_memory(0);
    const model::Model model = pair.model();
    EXPECT_EQ(state_of_first(model), LocalState::Partial);
    EXPECT_EQ(model.nccl.local.matrix.size(), 2U);
    EXPECT_EQ(model.nccl.local.collectives[0].payload_bytes, 2 * BYTES);
}

TEST(NcclLocal, ASendCountsOnceAndNotWithoutItsSender) {
    for (const bool is_sender_launched : {true, false}) {
        SCOPED_TRACE(is_sender_launched);
        LocalPair pair;
        for (const int i : {0, 1}) {
            cw_nccl_local local = pair.comm(i).connected(i);
            local.shm_send[1] = local.shm_recv[1] = 1;
            pair.node.add(local);
            const CallOptions call{
                .func = static_cast<std::uint8_t>(i == 0 ? CW_NCCL_SEND : CW_NCCL_RECV),
                .count = BYTES / 4,
                .root = 1 - i};
            pair.rank[i].call(12, call);
            if (i == 1 || is_sender_launched)
                pair.rank[i].shape(12, 70, {call}, {}, 1).launch(12.001, 70, {call}, LOCAL);
        }
        const model::Model model = pair.model();
        ASSERT_EQ(model.nccl.local.p2p.size(), 1U);
        const LocalOperation &operation = model.nccl.local.p2p[0];
        EXPECT_EQ(operation.state,
                  is_sender_launched ? LocalState::Modelled : LocalState::NotRecorded);
        EXPECT_EQ(operation.payload_bytes, is_sender_launched ? 2 * BYTES : 0U) << "LL";
        EXPECT_EQ(model.nccl.local.matrix.size(), is_sender_launched ? 1U : 0U);
    }
}

// Each rank has a part with a rank on another node, too.
TEST(NcclLocal, AnAlltoAllHasTheBytesOfItsRecordedParts) {
    for (const int ranks_with_parts : {0, 1, 2}) {
        SCOPED_TRACE(ranks_with_parts);
        LocalPair pair({.n_ranks = 3, .n_nodes = 2});
        for (const int i : {0, 1}) {
            cw_nccl_local local = pair.comm(i).connected(i);
            local.p2p_send[1] = local.p2p_recv[1] = 1;
            pair.node.add(local);
            const CallOptions call{.func = CW_NCCL_ALL_TO_ALL, .count = BYTES / 4};
            std::vector<CallOptions> parts;
            for (const std::uint8_t is_send : {std::uint8_t{0}, std::uint8_t{1}})
                for (const std::int32_t peer : {2, 1 - i})
                    if (peer == 2 || i < ranks_with_parts)
                        parts.push_back({.func = CW_NCCL_ALL_TO_ALL,
                                         .count = BYTES / 4,
                                         .root = peer,
                                         .flags = is_send});
            pair.rank[i]
                .call(12, call)
                .shape(12, 70, parts, {}, 1)
                .launch(12.001, 70, parts, {.flags = CW_NCCL_LAUNCH_LAUNCHED, .launched = 1});
        }
        const model::Model model = pair.model();
        const LocalOperation &operation = model.nccl.local.collectives.at(0);
        EXPECT_EQ(operation.state, ranks_with_parts == 0   ? LocalState::NotRecorded
                                   : ranks_with_parts == 1 ? LocalState::Partial
                                                           : LocalState::Modelled);
        EXPECT_EQ(operation.payload_bytes, static_cast<std::uint64_t>(ranks_with_parts) * 2 * BYTES)
            << "LL";
        EXPECT_EQ(model.nccl.local.matrix.size(), static_cast<std::size_t>(ranks_with_parts));
    }
}

TEST(NcclLocal, ASymmetricKernelIsNotModelled) {
    LocalPair pair({.version = 23203, .n_nodes = 1});
    for (const int i : {0, 1})
        pair.comm(i).launched(i, 0).through_memory(i);
    const model::Model model = pair.model();
    EXPECT_EQ(state_of_first(model), LocalState::NotModelled);
    EXPECT_EQ(model.nccl.local.collectives[0].reason, NotModelled::OtherKernel);
    EXPECT_TRUE(model.nccl.local.matrix.empty());
}

TEST(NcclLocal, OneRankANodeCostsNothing) {
    RingPair ring;
    ring.all_gather(12, 1000);
    const model::Model model = model_of(ring.captures());
    EXPECT_FALSE(model.nccl.local.has_nodes);
    EXPECT_TRUE(model.nccl.local.collectives.empty());
    EXPECT_TRUE(model.nccl.local.tasks.empty());
}

TEST(NcclLocal, WindowsHaveTheBytesOfTheirLaunches) {
    LocalPair pair;
    for (const int i : {0, 1})
        pair.comm(i).launched(i).through_memory(i);
    const model::Model model = pair.model();
    const Index session = model.nccl.instances[0].session;
    const auto gpus = local_bytes_between(model, session, seconds(12), seconds(13));
    ASSERT_EQ(gpus.size(), 2U);
    for (const GpuLocalBytes &gpu : gpus) {
        EXPECT_EQ(gpu.pid, gpu.rank == 0 ? 100U : 200U);
        EXPECT_EQ(gpu.launches, 1U);
        EXPECT_EQ(gpu.not_modelled, 0U);
        const auto shm = static_cast<std::size_t>(LocalTransport::Shm);
        EXPECT_EQ(gpu.sent[shm].payload_bytes, BYTES);
        EXPECT_EQ(gpu.received[shm].payload_bytes, BYTES);
    }
    EXPECT_TRUE(local_bytes_between(model, session, seconds(13), seconds(14)).empty());
}

} // namespace
} // namespace collwire::nccl
