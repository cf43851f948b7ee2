// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/record_kinds.h"
#include "tests/unit/source_tree.h"

namespace collwire::sources {
namespace {

class CountersOfPorts : public test::SourceTree {};

TEST_F(CountersOfPorts, CountersAreDefinedOnceAndSampledAtTheInterval) {
    CountersSource source(counters());
    ASSERT_TRUE(source.prepare());
    EXPECT_EQ(source.states().at(0).state, CW_SOURCE_ON) << source.states().at(0).reason;
    source.sample(records_, false);
    const auto definitions = records_.of<cw_counter_def>(CW_KIND_COUNTER_DEF);
    EXPECT_EQ(records_.samples().size(), definitions.size());
    EXPECT_EQ(records_.of<cw_port>(CW_KIND_PORT).size(), 1u);
    records_.clear();
    now_ns_ += 500'000'000;
    source.sample(records_, false);
    EXPECT_EQ(records_.size(), 0u);
    now_ns_ += 450'000'000; // a tick that is 50 ms early
    source.sample(records_, false);
    EXPECT_EQ(records_.samples().size(), definitions.size());
    EXPECT_TRUE(records_.of<cw_counter_def>(CW_KIND_COUNTER_DEF).empty());
    EXPECT_TRUE(records_.of<cw_port>(CW_KIND_PORT).empty());
    records_.clear();
    source.sample(records_, true);
    EXPECT_EQ(records_.of<cw_counter_def>(CW_KIND_COUNTER_DEF).size(), definitions.size());
    records_.clear();
    source.detach();
    source.sample(records_, false);
    EXPECT_EQ(records_.samples().size(), definitions.size()) << "the last counts";
}

// Queue pairs are not counted while probes are taken off.
TEST_F(CountersOfPorts, CountersAreThoseOfTheEnd) {
    CountersSource source(counters());
    ASSERT_TRUE(source.prepare());
    source.sample(records_, true);
    records_.clear();
    source.end();
    const std::uint64_t ended_ns = now_ns_;
    now_ns_ += 5'000'000'000;
    source.detach();
    source.sample(records_, false);
    EXPECT_FALSE(records_.samples().empty());
    for (const auto &samples : records_.of<cw_counter_samples>(CW_KIND_COUNTER_SAMPLES))
        EXPECT_LE(samples.header.time_ns, ended_ns);
    records_.clear();
    source.sample(records_, false);
    EXPECT_EQ(records_.size(), 0U);
}

TEST_F(CountersOfPorts, PortIsWrittenAgainWhenItsStateChanges) {
    CountersSource source(counters());
    ASSERT_TRUE(source.prepare());
    source.sample(records_, false);
    records_.clear();
    tree_.file(port_path_ + "/state", "1: DOWN\n");
    tree_.file("/sys/class/net/eth0/carrier", "0\n");
    now_ns_ += 1'000'000'000;
    source.sample(records_, false);
    const auto ports = records_.of<cw_port>(CW_KIND_PORT);
    ASSERT_EQ(ports.size(), 1u);
    EXPECT_EQ(ports[0].state, 1u);
    EXPECT_EQ(ports[0].carrier, 0u);
    EXPECT_EQ(ports[0].header.time_ns, now_ns_);
}

// A look makes the driver query its port, and some kernels log a line for each.
TEST_F(CountersOfPorts, EthernetPortIsLookedAtWhenItsNetdevOrAnEventSaysSo) {
    CountersSource source(counters());
    ASSERT_TRUE(source.prepare());
    source.sample(records_, false);
    records_.clear();
    tree_.file(port_path_ + "/state", "1: DOWN\n");
    const auto ports_after = [&](std::uint64_t step_ns) {
        now_ns_ += step_ns;
        records_.clear();
        source.sample(records_, false);
        return records_.of<cw_port>(CW_KIND_PORT).size();
    };
    EXPECT_EQ(ports_after(1'000'000'000), 0u);
    cw_async_event event{};
    event.header = {sizeof(event), CW_KIND_ASYNC_EVENT, 0, 1};
    source.on_record(event.header);
    EXPECT_EQ(ports_after(1'000'000'000), 1u);
    // The netdev shows it at once, the port only a second later.
    tree_.file("/sys/class/net/eth0/carrier_changes", "4\n");
    EXPECT_EQ(ports_after(5'000'000'000), 0u);
    tree_.file(port_path_ + "/state", "4: ACTIVE\n");
    EXPECT_EQ(ports_after(1'000'000'000), 1u);
    EXPECT_EQ(ports_after(1'000'000'000), 0u);
    EXPECT_EQ(ports_after(1'000'000'000), 0u);
    tree_.file(port_path_ + "/rate", "10 Gb/sec (4X SDR)\n");
    EXPECT_EQ(ports_after(1'000'000'000), 0u);
    EXPECT_EQ(ports_after(60'000'000'000), 1u);
}

TEST_F(CountersOfPorts, InfiniBandPortIsLookedAtEachTime) {
    tree_.file(port_path_ + "/link_layer", "InfiniBand\n");
    CountersSource source(counters());
    ASSERT_TRUE(source.prepare());
    source.sample(records_, false);
    records_.clear();
    tree_.file(port_path_ + "/state", "1: DOWN\n");
    now_ns_ += 1'000'000'000;
    source.sample(records_, false);
    EXPECT_EQ(records_.of<cw_port>(CW_KIND_PORT).size(), 1u);
}

TEST_F(CountersOfPorts, SeriesOfARemovedDeviceEndAndNewOnesBegin) {
    CountersSource source(counters());
    ASSERT_TRUE(source.prepare());
    source.sample(records_, false);
    std::uint32_t highest = 0;
    for (const cw_counter_def &definition : records_.of<cw_counter_def>(CW_KIND_COUNTER_DEF))
        highest = std::max(highest, definition.id);
    records_.clear();
    tree_.remove("/sys/class/infiniband/rxe0");
    now_ns_ += 1'000'000'000;
    source.sample(records_, false);
    EXPECT_EQ(records_.size(), 0u);
    EXPECT_EQ(source.states().at(0).state, CW_SOURCE_UNAVAILABLE);
    dev_index_ = 9;
    add_device();
    now_ns_ += 1'000'000'000;
    source.sample(records_, false);
    const auto definitions = records_.of<cw_counter_def>(CW_KIND_COUNTER_DEF);
    ASSERT_FALSE(definitions.empty());
    for (const cw_counter_def &definition : definitions) {
        EXPECT_GT(definition.id, highest);
        EXPECT_EQ(definition.dev_index, 9u);
    }
}

// `rdma link delete` and `add` between two samples: its name, and its index, are what they were.
TEST_F(CountersOfPorts, DeviceMadeAnewBetweenTwoSamplesIsCounted) {
    CountersSource source(counters());
    ASSERT_TRUE(source.prepare());
    source.sample(records_, false);
    const auto before = records_.of<cw_counter_def>(CW_KIND_COUNTER_DEF);
    records_.clear();
    tree_.remove("/sys/class/infiniband/rxe0");
    add_device();
    cw_device_gone gone{};
    gone.header = {sizeof(gone), CW_KIND_DEVICE_GONE, 0, 1};
    gone.dev_index = dev_index_;
    source.on_record(gone.header);
    now_ns_ += 1'000'000'000;
    source.sample(records_, false);
    const auto after = records_.of<cw_counter_def>(CW_KIND_COUNTER_DEF);
    EXPECT_EQ(after.size(), before.size());
    EXPECT_EQ(records_.samples().size(), after.size());
    for (const cw_counter_def &definition : after)
        EXPECT_GT(definition.id, before.back().id);
}

TEST_F(CountersOfPorts, NetdevMadeAnewIsCounted) {
    CountersSource source(counters());
    ASSERT_TRUE(source.prepare());
    source.sample(records_, false);
    const auto before = records_.of<cw_counter_def>(CW_KIND_COUNTER_DEF);
    records_.clear();
    tree_.remove("/sys/class/net/eth0");
    tree_.netdev("eth0", 9);
    now_ns_ += 1'000'000'000;
    source.sample(records_, false);
    EXPECT_EQ(records_.of<cw_counter_def>(CW_KIND_COUNTER_DEF).size(), before.size());
    EXPECT_EQ(records_.of<cw_port>(CW_KIND_PORT).at(0).ifindex, 9u);
}

// A device in reset answers no read for some seconds.
TEST_F(CountersOfPorts, CounterThatCanBeReadAgainBeginsANewSeries) {
    CountersSource source(counters());
    ASSERT_TRUE(source.prepare());
    source.sample(records_, false);
    const auto before = records_.of<cw_counter_def>(CW_KIND_COUNTER_DEF);
    const auto step = [&] {
        now_ns_ += 1'000'000'000;
        records_.clear();
        source.sample(records_, false);
    };
    tree_.file(port_path_ + "/hw_counters/sent_pkts", "");
    step();
    EXPECT_EQ(records_.samples().size(), before.size() - 1);
    step();
    step();
    EXPECT_EQ(records_.samples().size(), before.size() - 1);
    tree_.file(port_path_ + "/hw_counters/sent_pkts", "20\n");
    std::size_t n_new = 0;
    for (int i = 0; i < 5; ++i) {
        step();
        for (const auto &definition : records_.of<cw_counter_def>(CW_KIND_COUNTER_DEF))
            n_new += definition.id > before.back().id ? 1 : 0;
    }
    EXPECT_EQ(n_new, 1u);
    EXPECT_EQ(records_.samples().size(), before.size());
    source.sample(records_, true);
    records_.clear();
    source.sample(records_, true);
    EXPECT_EQ(records_.of<cw_counter_def>(CW_KIND_COUNTER_DEF).size(), before.size());
}

TEST_F(CountersOfPorts, PortWithoutByteCounterIsSaid) {
    tree_.remove("/sys/class/net/eth0");
    CountersSource source(counters());
    ASSERT_TRUE(source.prepare());
    ASSERT_EQ(source.states().size(), 1u);
    EXPECT_EQ(source.states()[0].state, CW_SOURCE_DEGRADED);
    EXPECT_EQ(source.states()[0].dev_index, 3u);
}

} // namespace
} // namespace collwire::sources
