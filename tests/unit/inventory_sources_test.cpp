// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/unit/inventory_tree.h"
#include "userspace/inventory/files.h"
#include "userspace/sources/counters_source.h"
#include "userspace/sources/inventory_source.h"

namespace collwire {
namespace {

using test::Tree;

class Records : public RecordSink {
public:
    void append(const cw_header &record) override {
        const auto *begin = reinterpret_cast<const char *>(&record);
        records_.emplace_back(begin, begin + record.length_bytes);
    }
    template <typename Record> [[nodiscard]] std::vector<Record> of(cw_kind kind) const {
        std::vector<Record> found;
        for (const std::vector<char> &bytes : records_) {
            cw_header header{};
            std::memcpy(&header, bytes.data(), sizeof(header));
            if (header.kind != kind)
                continue;
            Record record{};
            std::memcpy(&record, bytes.data(), std::min(sizeof(record), bytes.size()));
            found.push_back(record);
        }
        return found;
    }
    // Every sample in order, whatever record it came in.
    [[nodiscard]] std::vector<cw_counter_sample> samples() const {
        std::vector<cw_counter_sample> all;
        for (const std::vector<char> &bytes : records_) {
            cw_counter_samples head{};
            std::memcpy(&head, bytes.data(), std::min(sizeof(head), bytes.size()));
            if (head.header.kind != CW_KIND_COUNTER_SAMPLES)
                continue;
            EXPECT_EQ(bytes.size(), sizeof(head) + head.n * sizeof(cw_counter_sample));
            EXPECT_LE(head.read_begin_ns, head.header.time_ns);
            for (std::uint32_t i = 0; i < head.n; ++i) {
                cw_counter_sample sample{};
                std::memcpy(&sample, bytes.data() + sizeof(head) + i * sizeof(sample),
                            sizeof(sample));
                all.push_back(sample);
            }
        }
        return all;
    }
    [[nodiscard]] std::size_t size() const { return records_.size(); }
    void clear() { records_.clear(); }

private:
    std::vector<std::vector<char>> records_;
};

class SourceTree : public testing::Test {
protected:
    void SetUp() override {
        tree_.netdev("eth0", 2);
        add_device();
    }
    void add_device() const {
        tree_.port("rxe0", 1, "Ethernet", "2.5 Gb/sec (1X SDR)");
        tree_.file("/sys/class/infiniband/rxe0/parent", "eth0\n");
        tree_.file(port_path_ + "/hw_counters/sent_pkts", "12\n");
    }
    void process(int pid, std::uint64_t start_ticks) const {
        std::string text = std::to_string(pid) + " (job) S 1";
        for (int field = 5; field < 22; ++field)
            text += " 0";
        tree_.file("/proc/" + std::to_string(pid) + "/stat",
                   text + " " + std::to_string(start_ticks) + " 1\n");
    }
    static cw_qp_event qp_of(std::uint32_t tgid, std::uint64_t start_ns) {
        cw_qp_event event{};
        event.header = {sizeof(event), CW_KIND_QP_CREATE, 0, 1};
        event.tgid = tgid;
        event.start_boottime_ns = start_ns;
        std::memcpy(event.comm, "job", 4);
        return event;
    }
    [[nodiscard]] NetlinkFacts facts() const {
        NetlinkFacts facts;
        facts.devices["rxe0"].name = "rxe0";
        facts.devices["rxe0"].dev_index = dev_index_;
        return facts;
    }
    [[nodiscard]] InventoryOptions inventory() const {
        return {tree_.root(), {}, [this] { return facts(); }};
    }
    [[nodiscard]] CountersOptions counters() const {
        CountersOptions options;
        options.root = tree_.root();
        options.netlink = [this] { return facts(); };
        options.clock = [this] { return now_ns_; };
        return options;
    }
    const std::string port_path_ = "/sys/class/infiniband/rxe0/ports/1";
    Tree tree_;
    Records records_;
    std::uint32_t dev_index_ = 3;
    std::uint64_t now_ns_ = 5'000'000'000;
};

TEST_F(SourceTree, PlacesOfGpusAreWrittenOnce) {
    tree_.pci_function("pci0000:00/0000:00:01.0/0000:01:00.0", "0x030200");
    InventorySource source(inventory());
    ASSERT_TRUE(source.prepare());
    source.sample(records_, true);
    const auto written = records_.of<cw_pci_function>(CW_KIND_PCI_FUNCTION);
    ASSERT_EQ(written.size(), 1u);
    EXPECT_STREQ(written[0].pci_address, "0000:01:00.0");
    EXPECT_GT(written[0].header.time_ns, 0u);
    records_.clear();
    cw_async_event changed{};
    changed.header = {sizeof(changed), CW_KIND_ASYNC_EVENT, 0, 1};
    source.on_record(changed.header);
    source.sample(records_, false);
    EXPECT_EQ(records_.size(), 0u);
    source.sample(records_, true);
    EXPECT_EQ(records_.of<cw_pci_function>(CW_KIND_PCI_FUNCTION).size(), 1u) << "a new segment";
}

TEST_F(SourceTree, InventoryWritesOnceAndOnChange) {
    InventorySource source(inventory());
    ASSERT_TRUE(source.prepare());
    EXPECT_EQ(source.states().at(0).state, CW_SOURCE_ON);
    source.sample(records_, true);
    ASSERT_EQ(records_.of<cw_device>(CW_KIND_DEVICE).size(), 1u);
    EXPECT_EQ(records_.of<cw_device>(CW_KIND_DEVICE)[0].dev_index, 3u);
    EXPECT_GT(records_.of<cw_device>(CW_KIND_DEVICE)[0].header.time_ns, 0u);
    EXPECT_EQ(records_.of<cw_port>(CW_KIND_PORT).size(), 1u);
    EXPECT_EQ(records_.of<cw_gid>(CW_KIND_GID).size(), 1u);
    records_.clear();
    source.sample(records_, false);
    EXPECT_EQ(records_.size(), 0u);

    tree_.file(port_path_ + "/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
    tree_.file(port_path_ + "/gid_attrs/types/1", "RoCE v2\n");
    cw_async_event changed{};
    changed.header = {sizeof(changed), CW_KIND_ASYNC_EVENT, 0, 1};
    source.on_record(changed.header);
    source.sample(records_, false);
    ASSERT_EQ(records_.size(), 1u) << "the new address alone";
    EXPECT_EQ(records_.of<cw_gid>(CW_KIND_GID).at(0).gid_index, 1u);
    records_.clear();

    tree_.file(port_path_ + "/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    source.on_record(changed.header);
    source.sample(records_, false);
    ASSERT_EQ(records_.size(), 1u);
    EXPECT_EQ(records_.of<cw_gid>(CW_KIND_GID).at(0).gid[15], 0u) << "gone: written as empty";
    EXPECT_EQ(records_.of<cw_gid>(CW_KIND_GID).at(0).type, CW_GID_UNKNOWN);
}

TEST_F(SourceTree, InventorySeesADeviceGoAndComeBack) {
    InventorySource source(inventory());
    ASSERT_TRUE(source.prepare());
    source.sample(records_, true);
    records_.clear();
    tree_.remove("/sys/class/infiniband/rxe0");
    source.sample(records_, false);
    ASSERT_EQ(records_.size(), 1u);
    EXPECT_EQ(records_.of<cw_device_gone>(CW_KIND_DEVICE_GONE).at(0).dev_index, 3u);
    EXPECT_EQ(source.states().at(0).state, CW_SOURCE_DEGRADED);
    records_.clear();
    dev_index_ = 4;
    add_device();
    source.sample(records_, false);
    ASSERT_EQ(records_.of<cw_device>(CW_KIND_DEVICE).size(), 1u);
    EXPECT_EQ(records_.of<cw_device>(CW_KIND_DEVICE)[0].dev_index, 4u);
}

TEST_F(SourceTree, InventoryLeavesTheKernelsOwnEventAlone) {
    InventorySource source(inventory());
    ASSERT_TRUE(source.prepare());
    source.sample(records_, true);
    records_.clear();
    tree_.remove("/sys/class/infiniband/rxe0");
    cw_device_gone gone{};
    gone.header = {sizeof(gone), CW_KIND_DEVICE_GONE, 0, 1};
    gone.dev_index = 3;
    source.on_record(gone.header);
    source.sample(records_, false);
    EXPECT_EQ(records_.size(), 0u);
}

TEST_F(SourceTree, CarrierOfAnotherNetdevChangesNothing) {
    InventorySource source(inventory());
    CountersSource counting(counters());
    ASSERT_TRUE(source.prepare());
    ASSERT_TRUE(counting.prepare());
    source.sample(records_, true);
    counting.sample(records_, false);
    tree_.file(port_path_ + "/state", "1: DOWN\n");
    cw_carrier edge{};
    edge.header = {sizeof(edge), CW_KIND_CARRIER, 0, 1};
    edge.ifindex = 77;
    set_text(edge.netdev, "veth1a2b");
    const auto ports_after = [&] {
        records_.clear();
        now_ns_ += 1'000'000'000;
        source.on_record(edge.header);
        counting.on_record(edge.header);
        source.sample(records_, false);
        const auto n = records_.of<cw_port>(CW_KIND_PORT).size();
        counting.sample(records_, false);
        return std::pair{n, records_.of<cw_port>(CW_KIND_PORT).size() - n};
    };
    EXPECT_EQ(ports_after(), (std::pair<std::size_t, std::size_t>{0, 0}));
    edge.ifindex = 2;
    EXPECT_EQ(ports_after(), (std::pair<std::size_t, std::size_t>{1, 1}));
}

TEST_F(SourceTree, OwnerIsReadOnceWithItsExactStart) {
    process(4242, 500);
    const std::uint64_t start_ns = 500 * clock_tick_ns() + 123;
    InventorySource source(inventory());
    ASSERT_TRUE(source.prepare());
    source.on_record(qp_of(4242, start_ns).header);
    source.on_record(qp_of(4242, start_ns).header);
    source.on_record(qp_of(0, 0).header);
    source.sample(records_, false);
    auto processes = records_.of<cw_process>(CW_KIND_PROCESS);
    ASSERT_EQ(processes.size(), 1u);
    EXPECT_EQ(processes[0].pid, 4242u);
    EXPECT_EQ(processes[0].start_boottime_ns, start_ns);
    EXPECT_EQ(processes[0].flags & CW_PROCESS_START_ROUNDED, 0u);
    records_.clear();
    source.sample(records_, false);
    EXPECT_TRUE(records_.of<cw_process>(CW_KIND_PROCESS).empty());
    source.sample(records_, true);
    EXPECT_EQ(records_.of<cw_process>(CW_KIND_PROCESS).size(), 1u) << "in every segment";
}

TEST_F(SourceTree, OwnerThatEndedIsKnownByItsEvent) {
    process(4242, 900); // the pid has been used again
    InventorySource source(inventory());
    ASSERT_TRUE(source.prepare());
    source.on_record(qp_of(4242, 500 * clock_tick_ns()).header);
    source.on_record(qp_of(77, 600 * clock_tick_ns()).header);
    source.sample(records_, false);
    const auto processes = records_.of<cw_process>(CW_KIND_PROCESS);
    ASSERT_EQ(processes.size(), 2u);
    for (const cw_process &process : processes) {
        EXPECT_EQ(process.flags, CW_PROCESS_GONE);
        EXPECT_STREQ(process.comm, "job");
        EXPECT_STREQ(process.executable, "");
    }
    records_.clear();
    source.sample(records_, true);
    EXPECT_EQ(records_.of<cw_process>(CW_KIND_PROCESS).size(), 2u);
    records_.clear();
    source.sample(records_, true);
    EXPECT_TRUE(records_.of<cw_process>(CW_KIND_PROCESS).empty()) << "not in the segment after";
}

TEST_F(SourceTree, OwnersThatEndedAreForgottenWithoutANewSegment) {
    process(4242, 500);
    InventoryOptions options = inventory();
    options.look_at_processes_ns = 0;
    InventorySource source(std::move(options));
    ASSERT_TRUE(source.prepare());
    const cw_qp_event event = qp_of(4242, 500 * clock_tick_ns());
    const auto processes_after_event = [&] {
        records_.clear();
        source.on_record(event.header);
        source.sample(records_, false);
        return records_.of<cw_process>(CW_KIND_PROCESS).size();
    };
    EXPECT_EQ(processes_after_event(), 1u);
    EXPECT_EQ(processes_after_event(), 0u) << "known";
    tree_.remove("/proc/4242");
    EXPECT_EQ(processes_after_event(), 0u) << "an event that was on its way";
    EXPECT_EQ(processes_after_event(), 0u);
    EXPECT_EQ(processes_after_event(), 1u) << "forgotten, so it is new";
}

TEST_F(SourceTree, ShortRecordsAreIgnored) {
    InventorySource source(inventory());
    ASSERT_TRUE(source.prepare());
    cw_qp_event event = qp_of(1, 1);
    event.header.length_bytes = sizeof(cw_header);
    source.on_record(event.header);
    source.sample(records_, false);
    EXPECT_TRUE(records_.of<cw_process>(CW_KIND_PROCESS).empty());
}

TEST_F(SourceTree, CountersAreDefinedOnceAndSampledAtTheInterval) {
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

TEST_F(SourceTree, PortIsWrittenAgainWhenItsStateChanges) {
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
TEST_F(SourceTree, EthernetPortIsLookedAtWhenItsNetdevOrAnEventSaysSo) {
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
    // The netdev tells at once, the port only a second later.
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

TEST_F(SourceTree, InfiniBandPortIsLookedAtEachTime) {
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

TEST_F(SourceTree, SeriesOfARemovedDeviceEndAndNewOnesBegin) {
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
TEST_F(SourceTree, DeviceMadeAnewBetweenTwoSamplesIsCounted) {
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

TEST_F(SourceTree, NetdevMadeAnewIsCounted) {
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
TEST_F(SourceTree, CounterThatCanBeReadAgainBeginsANewSeries) {
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

TEST_F(SourceTree, PortWithoutByteCounterIsSaid) {
    tree_.remove("/sys/class/net/eth0");
    CountersSource source(counters());
    ASSERT_TRUE(source.prepare());
    ASSERT_EQ(source.states().size(), 1u);
    EXPECT_EQ(source.states()[0].state, CW_SOURCE_DEGRADED);
    EXPECT_EQ(source.states()[0].dev_index, 3u);
}

} // namespace
} // namespace collwire
