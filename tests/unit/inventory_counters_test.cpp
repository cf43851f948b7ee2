// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file_limit.h"
#include "collwire/port_records.h"
#include "tests/unit/inventory_tree.h"
#include "userspace/inventory/counters.h"

namespace collwire::inventory {
namespace {

using test::Tree;

const cw_counter_def *find(const std::vector<CounterGroup> &groups, cw_counter_source source,
                           std::string_view name) {
    for (const CounterGroup &group : groups) {
        for (const cw_counter_def &definition : group.definitions()) {
            if (definition.source == source && name == definition.name)
                return &definition;
        }
    }
    return nullptr;
}

std::optional<std::uint64_t> value_of(std::vector<CounterGroup> &groups, std::uint32_t id) {
    std::vector<cw_counter_sample> samples;
    for (CounterGroup &group : groups)
        group.read(samples);
    for (const cw_counter_sample &sample : samples) {
        if (sample.id == id)
            return sample.value;
    }
    return std::nullopt;
}

class PortCounters : public testing::Test {
protected:
    void SetUp() override {
        tree_.netdev("eth0", 2);
        tree_.file(port_path_ + "/counters/port_xmit_data", "18446744073709551615\n");
        tree_.file(port_path_ + "/counters/link_downed", "255\n");
        tree_.file(port_path_ + "/counters/symbol_error", "N/A (no PMA)\n");
        tree_.file(port_path_ + "/hw_counters/lifespan", "10\n");
        tree_.file(port_path_ + "/hw_counters/sent_pkts", "12\n");
        tree_.file(port_path_ + "/hw_counters/some_vendor_thing", "1\n");
        tree_.file(port_path_ + "/hw_counters/rdma_tx_bytes", "99\n");
    }
    std::vector<CounterGroup> open(const std::string &netdev) {
        return open_port_counters(tree_.root(), "rxe0", 5, 1, netdev, next_id_);
    }
    const std::string port_path_ = "/sys/class/infiniband/rxe0/ports/1";
    Tree tree_;
    std::uint32_t next_id_ = 40;
};

TEST_F(PortCounters, DefinitionsSayUnitAndSource) {
    const auto groups = open("eth0");
    const auto *data = find(groups, CW_COUNTER_PORT, "port_xmit_data");
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(data->unit, CW_UNIT_OCTETS_4);
    EXPECT_EQ(data->dev_index, 5u);
    EXPECT_EQ(data->port, 1u);
    EXPECT_GE(data->id, 40u);
    EXPECT_EQ(find(groups, CW_COUNTER_HW, "sent_pkts")->unit, CW_UNIT_PACKETS);
    EXPECT_EQ(find(groups, CW_COUNTER_HW, "some_vendor_thing")->unit, CW_UNIT_UNKNOWN);
    EXPECT_EQ(find(groups, CW_COUNTER_HW, "rdma_tx_bytes")->unit, CW_UNIT_BYTES);
    EXPECT_EQ(find(groups, CW_COUNTER_HW, "lifespan"), nullptr);
    EXPECT_EQ(find(groups, CW_COUNTER_NETDEV, "tx_bytes")->unit, CW_UNIT_LINK_BYTES);
    EXPECT_EQ(find(groups, CW_COUNTER_NETDEV, "carrier_down_count")->unit, CW_UNIT_EVENTS);
    EXPECT_EQ(find(groups, CW_COUNTER_PORT, "symbol_error"), nullptr) << "not a number: absent";
    std::vector<std::uint32_t> ids;
    for (const CounterGroup &group : groups) {
        for (const cw_counter_def &definition : group.definitions())
            ids.push_back(definition.id);
    }
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
    EXPECT_EQ(next_id_, 40u + ids.size());
}

TEST_F(PortCounters, ReadAgainWithTheFileOpen) {
    auto groups = open("eth0");
    const std::uint32_t id = find(groups, CW_COUNTER_HW, "sent_pkts")->id;
    EXPECT_EQ(value_of(groups, id), 12u);
    tree_.file(port_path_ + "/hw_counters/sent_pkts", "13\n");
    EXPECT_EQ(value_of(groups, id), 13u);
    const std::uint32_t data = find(groups, CW_COUNTER_PORT, "port_xmit_data")->id;
    EXPECT_EQ(value_of(groups, data), UINT64_MAX);
}

TEST_F(PortCounters, SeriesEndsWhenItCannotBeRead) {
    auto groups = open("");
    const std::uint32_t id = find(groups, CW_COUNTER_HW, "sent_pkts")->id;
    tree_.file(port_path_ + "/hw_counters/sent_pkts", "");
    EXPECT_EQ(value_of(groups, id), std::nullopt);
    tree_.file(port_path_ + "/hw_counters/sent_pkts", "20\n");
    EXPECT_EQ(value_of(groups, id), std::nullopt) << "it does not come back under the same number";
}

TEST_F(PortCounters, LegacyCounterAtItsLimit) {
    auto groups = open("");
    ASSERT_EQ(value_of(groups, find(groups, CW_COUNTER_PORT, "link_downed")->id), 255u);
    EXPECT_EQ(groups[0].saturated(), std::vector<std::string>{"link_downed"});
    tree_.file(port_path_ + "/counters/link_downed", "254\n");
    (void)value_of(groups, 0);
    EXPECT_TRUE(groups[0].saturated().empty());
}

TEST_F(PortCounters, BondAddsTheCarriersOfItsSlaves) {
    tree_.netdev("bond0", 7);
    tree_.file("/sys/class/net/bond0/bonding/slaves", "eth0\n");
    const auto groups = open("bond0");
    EXPECT_NE(find(groups, CW_COUNTER_NETDEV, "eth0:carrier_changes"), nullptr);
    EXPECT_NE(find(groups, CW_COUNTER_NETDEV, "carrier_changes"), nullptr);
}

TEST_F(PortCounters, TooManyOpenFilesAreSaid) {
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const int next = ::open("/dev/null", O_RDONLY);
    ASSERT_GE(next, 0);
    close(next);
    const rlimit four_more{static_cast<rlim_t>(next) + 4, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &four_more), 0);
    const auto groups = open("eth0");
    raise_file_limit();
    rlimit raised{};
    getrlimit(RLIMIT_NOFILE, &raised);
    setrlimit(RLIMIT_NOFILE, &limit);
    std::size_t opened = 0;
    std::size_t refused = 0;
    for (const CounterGroup &group : groups) {
        opened += group.definitions().size();
        refused += group.n_refused();
    }
    EXPECT_GT(opened, 0u);
    EXPECT_GT(refused, 0u);
    EXPECT_EQ(raised.rlim_cur, limit.rlim_max);
    EXPECT_EQ(open("eth0").back().n_refused(), 0u);
}

TEST_F(PortCounters, NothingThere) {
    auto groups = open_port_counters(tree_.root(), "gone0", 1, 1, "gone", next_id_);
    for (const CounterGroup &group : groups)
        EXPECT_TRUE(group.empty());
}

TEST(CounterUnits, IpOverInfiniBandIsNoLinkFrame) {
    EXPECT_EQ(counter_unit(CW_COUNTER_NETDEV, "tx_bytes", 1), CW_UNIT_LINK_BYTES);
    EXPECT_EQ(counter_unit(CW_COUNTER_NETDEV, "tx_bytes", 32), CW_UNIT_BYTES);
    EXPECT_EQ(counter_unit(CW_COUNTER_PORT, "port_xmit_wait", 0), CW_UNIT_TICKS);
    EXPECT_EQ(counter_unit(CW_COUNTER_PORT, "port_rcv_packets", 0), CW_UNIT_PACKETS);
    EXPECT_EQ(counter_unit(CW_COUNTER_PORT, "something_new", 0), CW_UNIT_UNKNOWN);
    EXPECT_EQ(counter_unit(CW_COUNTER_HW, "ip4OutOctets", 0), CW_UNIT_BYTES);
    EXPECT_EQ(counter_unit(CW_COUNTER_HW, "packet_seq_err", 0), CW_UNIT_EVENTS);
    EXPECT_EQ(saturation_limit("symbol_error"), 65535u);
    EXPECT_EQ(saturation_limit("port_xmit_data"), 0u);
}

} // namespace
} // namespace collwire::inventory
