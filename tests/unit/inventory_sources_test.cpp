// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "base/set_text.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "tests/unit/source_tree.h"
#include "userspace/inventory/files.h"
#include "userspace/inventory/process.h"

namespace collwire::sources {
namespace {

using test::SourceTree;

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
    const std::uint64_t start_ns = 500 * inventory::clock_tick_ns() + 123;
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

TEST_F(SourceTree, OwnerOfACommunicatorNeedsNoQueuePair) {
    process(4242, 500);
    InventorySource source(inventory());
    ASSERT_TRUE(source.prepare());
    cw_nccl_comm comm{};
    comm.header = {sizeof(comm), CW_KIND_NCCL_COMM, 0, 1};
    comm.tgid = 4242;
    comm.start_boottime_ns = 500 * inventory::clock_tick_ns();
    source.on_record(comm.header);
    source.on_record(qp_of(4242, comm.start_boottime_ns + 123).header);
    source.sample(records_, false);
    const auto processes = records_.of<cw_process>(CW_KIND_PROCESS);
    ASSERT_EQ(processes.size(), 1u);
    EXPECT_EQ(processes[0].pid, 4242u);
    EXPECT_EQ(processes[0].flags & CW_PROCESS_GONE, 0u);
}

TEST_F(SourceTree, OwnerThatEndedIsKnownByItsEvent) {
    process(4242, 900); // the pid has been used again
    InventorySource source(inventory());
    ASSERT_TRUE(source.prepare());
    source.on_record(qp_of(4242, 500 * inventory::clock_tick_ns()).header);
    source.on_record(qp_of(77, 600 * inventory::clock_tick_ns()).header);
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
    const cw_qp_event event = qp_of(4242, 500 * inventory::clock_tick_ns());
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

} // namespace
} // namespace collwire::sources
