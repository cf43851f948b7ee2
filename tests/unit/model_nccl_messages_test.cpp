// SPDX-License-Identifier: Apache-2.0
// Wire bytes computed from the sizes of NCCL's messages: NCCL's parameters, link layers.
#include <string_view>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/node_records.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/nccl_model.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

struct NetworkParameter {
    std::string_view name;
    std::int64_t value;
};

model::Model model_with(const std::vector<NetworkParameter> &parameters, std::uint8_t link_layer,
                        std::size_t n_qps, std::uint64_t bytes) {
    NodeBuilder node({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_NCCL});
    node.device(0, "mlx5_0", 0);
    cw_port port = node.port_record(1);
    port.link_layer = link_layer;
    node.add(port).gid(1).source("qp").qp(RING_QPS[0][0]);
    if (n_qps == 2)
        node.qp({.qpn = 99, .local = 1, .remote = 2, .remote_qpn = 98, .pid = 100});
    NcclBuilder rank(node, {});
    for (const auto &[name, value] : parameters) {
        auto param = make_record<cw_nccl_param>(CW_KIND_NCCL_PARAM, seconds(11));
        param.tgid = 100;
        param.value = value;
        set_text(param.name, name);
        node.add(param);
    }
    const CallOptions call{.count = bytes / 4};
    rank.comm();
    if (n_qps == 2)
        rank.connection(11.2, SENDS_AT, true, 1, {17, 99});
    else
        rank.connection(11.2, SENDS_AT, true, 1, {17});
    rank.call(12, call);
    rank.shape(12, 1, {call},
               {rank.ring({.connection = SENDS_AT, .bytes = static_cast<std::uint32_t>(bytes)})});
    rank.launch(12.1, 1, {call});
    return model_of({node.clock(20).end().bytes()});
}

// Messages of several queue pairs, or with adaptive routing. 58 bytes of headers a packet of 1024,
// RETH 16, ImmDt 4.
TEST(NcclMessages, ComputedHeadersFollowNcclsParameters) {
    using Parameters = std::vector<NetworkParameter>;
    const auto wire_bytes = [](const Parameters &parameters, std::size_t n_qps,
                               std::uint64_t bytes) {
        return model_with(parameters, CW_LINK_ETHERNET, n_qps, bytes).total.derived_tx_wire_bytes;
    };
    // Whole messages take turns on the queue pairs.
    EXPECT_EQ(wire_bytes({{"IbQpsPerConn", 2}, {"IbSplitDataOnQps", 0}}, 2, 4000),
              4000 + 4 * 58 + 20U);
    // 2048 and 1952.
    EXPECT_EQ(wire_bytes({{"IbQpsPerConn", 2}, {"IbSplitDataOnQps", 1}}, 2, 4000),
              4000 + 4 * 58 + 2 * 20U);
    // A queue pair on each of two devices.
    EXPECT_EQ(wire_bytes({{"IbQpsPerConn", 1}, {"IbSplitDataOnQps", 0}}, 2, 4000),
              4000 + 4 * 58 + 2 * 20U);
    EXPECT_FALSE(wire_bytes({{"IbQpsPerConn", 3}, {"IbSplitDataOnQps", 0}}, 2, 4000));
    EXPECT_EQ(wire_bytes({{"IbAdaptiveRouting", 1}}, 1, 8192), 8192 + 8 * 58 + 20U);
    EXPECT_EQ(wire_bytes({{"IbAdaptiveRouting", 1}}, 1, 8196), 8196 + (9 + 1) * 58 + 16 + 20U);
    EXPECT_EQ(wire_bytes({{"IbAdaptiveRouting", 1}, {"IbArThreshold", 16384}}, 1, 8196),
              8196 + 9 * 58 + 20U);
    EXPECT_EQ(wire_bytes({{"IbAdaptiveRouting", 1}, {"IbArThreshold", -2}}, 1, 8192),
              8192 + 8 * 58 + 20U);
    EXPECT_EQ(wire_bytes({{"IbAdaptiveRouting", -2}}, 1, 8196), 8196 + 9 * 58 + 20U);
    EXPECT_FALSE(wire_bytes({{"IbAdaptiveRouting", 1}, {"IbOooRq", 1}}, 1, 8196));
}

// There adaptive routing is on if nothing else is asked for. Headers: LRH 8, BTH 12, ICRC 4,
// VCRC 2.
TEST(NcclMessages, ComputedHeadersOfInfinibandNeedTheParameter) {
    EXPECT_FALSE(model_with({}, CW_LINK_INFINIBAND, 1, 8196).total.derived_tx_wire_bytes);
    const auto adaptive = model_with({{"IbAdaptiveRouting", -2}}, CW_LINK_INFINIBAND, 1, 8196);
    const auto plain = model_with({{"IbAdaptiveRouting", 0}}, CW_LINK_INFINIBAND, 1, 8196);
    ASSERT_TRUE(adaptive.total.derived_tx_wire_bytes && plain.total.derived_tx_wire_bytes);
    EXPECT_EQ(*plain.total.derived_tx_wire_bytes, 8196 + 9 * 66 + 20U);
    EXPECT_EQ(*adaptive.total.derived_tx_wire_bytes, 8196 + (9 + 1) * 66 + 16 + 20U);
}

// A frame that was sent again follows from no message.
TEST(NcclMessages, MeasuredBytesAreComparedWithoutRetransmissions) {
    RingPair ring;
    const CallOptions call{.count = 1000};
    for (int i = 0; i < 2; ++i) {
        auto wire = make_record<cw_qp_wire>(CW_KIND_QP_WIRE, seconds(13));
        const QpOptions &qp = RING_QPS[i][0];
        wire.key = {qp.dev_index, qp.qpn, seconds(qp.created)};
        cw_wire_direction &tx = wire.counters.tx;
        tx.frames[CW_WIRE_REQUEST] = 4;
        tx.payload_bytes[CW_WIRE_REQUEST] = 4000;
        tx.wire_bytes[CW_WIRE_REQUEST] = 4000 + 4 * FRAME_HEADERS + 20;
        tx.frames[CW_WIRE_RETRANSMIT] = i == 0 ? 1 : 0;
        tx.payload_bytes[CW_WIRE_RETRANSMIT] = i == 0 ? 1024 : 0;
        tx.wire_bytes[CW_WIRE_RETRANSMIT] = i == 0 ? RESENT_FRAME : 0;
        NcclBuilder &rank = ring.rank[i];
        rank.call(12, call);
        rank.shape(12, 1, {call},
                   {rank.ring({.connection = SENDS_AT, .bytes = 4000, .peer = 1 - i})});
        rank.launch(12.1, 1, {call});
        ring.node[i].add(wire);
    }
    const model::Model model = model_of(ring.captures());
    EXPECT_EQ(model.nccl.messages.data.equal, 2U);
    EXPECT_EQ(model.nccl.messages.data.equal_bytes, 2 * (4000 + 4 * FRAME_HEADERS + 20));
    EXPECT_TRUE(model.nccl.messages.data.different.empty());
}

} // namespace
} // namespace collwire::nccl
