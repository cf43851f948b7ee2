// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include "userspace/netlink/attributes.h"
#include "userspace/netlink/rdma_netlink.h"

namespace collwire::netlink {
namespace {

// Writes attributes as the kernel does: header, payload, padding to 4 bytes.
class Attributes {
public:
    Attributes &raw(std::uint16_t type, const void *data, std::size_t bytes) {
        const nlattr header{static_cast<std::uint16_t>(sizeof(nlattr) + bytes), type};
        append(&header, sizeof(header));
        append(data, bytes);
        bytes_.resize((bytes_.size() + 3) / 4 * 4);
        return *this;
    }
    template <typename T> Attributes &number(std::uint16_t type, T value) {
        return raw(type, &value, sizeof(value));
    }
    Attributes &text(std::uint16_t type, std::string_view value) {
        const std::string terminated(value);
        return raw(type, terminated.c_str(), value.size() + 1);
    }
    Attributes &nest(std::uint16_t type, const Attributes &inner) {
        return raw(type, inner.bytes_.data(), inner.bytes_.size());
    }
    [[nodiscard]] AttributeBytes bytes() const { return bytes_; }

private:
    void append(const void *data, std::size_t bytes) {
        const auto *begin = static_cast<const std::byte *>(data);
        bytes_.insert(bytes_.end(), begin, begin + bytes);
    }
    std::vector<std::byte> bytes_;
};

Attributes device_head() {
    Attributes head;
    head.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, 3).text(RDMA_NLDEV_ATTR_DEV_NAME, "rxe0");
    return head;
}

Attributes rc_qp() {
    Attributes qp;
    qp.number<std::uint32_t>(RDMA_NLDEV_ATTR_PORT_INDEX, 1)
        .number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_LQPN, 17)
        .number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_RQPN, 21)
        .number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_RQ_PSN, 0xabcdef)
        .number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_SQ_PSN, 5)
        .number<std::uint8_t>(RDMA_NLDEV_ATTR_RES_TYPE, 2)
        .number<std::uint8_t>(RDMA_NLDEV_ATTR_RES_STATE, 3)
        .number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_PDN, 9)
        .number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_PID, 4242);
    return qp;
}

TEST(NetlinkAttributes, Device) {
    Attributes answer = device_head();
    answer.number<std::uint32_t>(RDMA_NLDEV_ATTR_PORT_INDEX, 2)
        .text(RDMA_NLDEV_ATTR_FW_VERSION, "20.35.1012")
        .number<std::uint64_t>(RDMA_NLDEV_ATTR_NODE_GUID, 0x506b4b0300cb7b2aULL)
        .text(RDMA_NLDEV_ATTR_DEV_PROTOCOL, "roce")
        .number<std::uint8_t>(0x3ff, 1); // an attribute of a newer kernel
    const auto device = parse_device(answer.bytes());
    ASSERT_TRUE(device) << device.failure().message;
    EXPECT_EQ(device.value().dev_index, 3u);
    EXPECT_EQ(device.value().name, "rxe0");
    EXPECT_EQ(device.value().n_ports, 2u);
    EXPECT_EQ(device.value().firmware, "20.35.1012");
    EXPECT_EQ(device.value().node_guid, 0x506b4b0300cb7b2aULL);
    EXPECT_EQ(device.value().protocol, "roce");
}

TEST(NetlinkAttributes, DeviceWithoutIndexIsRefused) {
    Attributes answer;
    answer.text(RDMA_NLDEV_ATTR_DEV_NAME, "rxe0");
    const auto device = parse_device(answer.bytes());
    ASSERT_FALSE(device);
    EXPECT_EQ(device.failure().kind, ErrorKind::BadInput);
    EXPECT_FALSE(parse_device({}));
}

TEST(NetlinkAttributes, Port) {
    Attributes answer = device_head();
    answer.number<std::uint32_t>(RDMA_NLDEV_ATTR_PORT_INDEX, 1)
        .number<std::uint32_t>(RDMA_NLDEV_ATTR_LID, 26)
        .number<std::uint8_t>(RDMA_NLDEV_ATTR_PORT_STATE, 4)
        .number<std::uint32_t>(RDMA_NLDEV_ATTR_NDEV_INDEX, 2)
        .text(RDMA_NLDEV_ATTR_NDEV_NAME, "eth0");
    const auto port = parse_port(answer.bytes());
    ASSERT_TRUE(port) << port.failure().message;
    EXPECT_EQ(port.value().port, 1u);
    EXPECT_EQ(port.value().lid, 26u);
    EXPECT_EQ(port.value().state, 4u);
    EXPECT_EQ(port.value().phys_state, std::nullopt);
    EXPECT_EQ(port.value().ifindex, 2u);
    EXPECT_EQ(port.value().netdev, "eth0");
}

TEST(NetlinkAttributes, QueuePairsOfADump) {
    Attributes kernel_qp;
    kernel_qp.number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_LQPN, 1)
        .number<std::uint8_t>(RDMA_NLDEV_ATTR_RES_TYPE, 1)
        .number<std::uint8_t>(RDMA_NLDEV_ATTR_RES_STATE, 3)
        .text(RDMA_NLDEV_ATTR_RES_KERN_NAME, "ib_core");
    Attributes list;
    list.nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY, kernel_qp).nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY, rc_qp());
    Attributes answer = device_head();
    // newer kernels mark nested attributes
    answer.nest(RDMA_NLDEV_ATTR_RES_QP | NLA_F_NESTED, list);
    std::vector<NetlinkQp> qps;
    ASSERT_TRUE(parse_qps(answer.bytes(), qps));
    ASSERT_EQ(qps.size(), 2u);
    EXPECT_EQ(qps[0].lqpn, 1u);
    EXPECT_EQ(qps[0].kernel_name, "ib_core");
    EXPECT_EQ(qps[0].pid, std::nullopt);
    EXPECT_EQ(qps[0].rqpn, std::nullopt);
    EXPECT_EQ(qps[1].dev_index, 3u);
    EXPECT_EQ(qps[1].device, "rxe0");
    EXPECT_EQ(qps[1].lqpn, 17u);
    EXPECT_EQ(qps[1].rqpn, 21u);
    EXPECT_EQ(qps[1].port, 1u);
    EXPECT_EQ(qps[1].rq_psn, 0xabcdefu);
    EXPECT_EQ(qps[1].sq_psn, 5u);
    EXPECT_EQ(qps[1].type, 2);
    EXPECT_EQ(qps[1].state, 3);
    EXPECT_EQ(qps[1].pdn, 9u);
    EXPECT_EQ(qps[1].pid, 4242u);
}

TEST(NetlinkAttributes, DumpWithoutQueuePairs) {
    std::vector<NetlinkQp> qps;
    EXPECT_TRUE(parse_qps(device_head().bytes(), qps));
    EXPECT_TRUE(qps.empty());
}

TEST(NetlinkAttributes, QueuePairWithoutNumberIsRefused) {
    Attributes qp;
    qp.number<std::uint8_t>(RDMA_NLDEV_ATTR_RES_TYPE, 2);
    Attributes list;
    list.nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY, qp);
    Attributes answer = device_head();
    answer.nest(RDMA_NLDEV_ATTR_RES_QP, list);
    std::vector<NetlinkQp> qps;
    const auto parsed = parse_qps(answer.bytes(), qps);
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.failure().kind, ErrorKind::BadInput);
}

TEST(NetlinkAttributes, ShortNumberIsAbsent) {
    Attributes answer = device_head();
    answer.number<std::uint16_t>(RDMA_NLDEV_ATTR_PORT_INDEX, 2)
        .number<std::uint32_t>(RDMA_NLDEV_ATTR_NODE_GUID, 1);
    const auto device = parse_device(answer.bytes());
    ASSERT_TRUE(device);
    EXPECT_EQ(device.value().n_ports, 0u);
    EXPECT_EQ(device.value().node_guid, std::nullopt);
}

// Every prefix of an answer parses or is refused, and never brings a queue pair that is not there.
TEST(NetlinkAttributes, Truncated) {
    Attributes list;
    list.nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY, rc_qp());
    Attributes answer = device_head();
    answer.nest(RDMA_NLDEV_ATTR_RES_QP, list);
    for (std::size_t length = 0; length < answer.bytes().size(); ++length) {
        std::vector<NetlinkQp> qps;
        (void)parse_qps(answer.bytes().subspan(0, length), qps);
        EXPECT_TRUE(qps.empty()) << length;
    }
}

TEST(NetlinkAttributes, OptionalCounters) {
    const auto counter = [](std::string_view name, std::optional<std::uint8_t> dynamic) {
        Attributes entry;
        entry.text(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, name)
            .number<std::uint32_t>(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_INDEX, 1);
        if (dynamic)
            entry.number<std::uint8_t>(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_DYNAMIC, *dynamic);
        return entry;
    };
    Attributes list;
    list.nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY, counter("out_of_sequence", {}))
        .nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY, counter("rdma_tx_bytes", 0))
        .nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY, counter("rdma_rx_bytes", 1));
    Attributes answer = device_head();
    answer.nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, list);
    const auto counters = parse_optional_counters(answer.bytes());
    ASSERT_TRUE(counters);
    ASSERT_EQ(counters.value().size(), 2u);
    EXPECT_EQ(counters.value()[0].name, "rdma_tx_bytes");
    EXPECT_FALSE(counters.value()[0].enabled);
    EXPECT_TRUE(counters.value()[1].enabled);
}

TEST(NetlinkAttributes, SystemMode) {
    Attributes answer;
    answer.number<std::uint8_t>(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 0);
    const auto mode = parse_system_mode(answer.bytes());
    ASSERT_TRUE(mode);
    EXPECT_FALSE(mode.value().netns_shared);
    EXPECT_FALSE(parse_system_mode({}));
}

TEST(NetlinkAttributes, DriverId) {
    Attributes answer;
    answer.number<std::uint32_t>(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, 15);
    EXPECT_EQ(parse_driver_id(answer.bytes()).value(), 15u);
    EXPECT_EQ(parse_driver_id({}).value(), std::nullopt);
}

TEST(NetlinkNames, OfTheKernelsEnums) {
    EXPECT_EQ(qp_type_name(2), "RC");
    EXPECT_EQ(qp_type_name(10), "XRC_TGT");
    EXPECT_EQ(qp_type_name(7), "unknown");
    EXPECT_EQ(qp_type_name(0xff), "DRIVER");
    EXPECT_EQ(qp_state_name(3), "RTS");
    EXPECT_EQ(qp_state_name(0xff), "unknown");
}

} // namespace
} // namespace collwire::netlink
