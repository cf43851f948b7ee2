// SPDX-License-Identifier: Apache-2.0
// Source "inventory": which devices, ports and addresses a node has, where its GPUs are, and which
// processes own queue pairs or NCCL communicators. Nothing in the kernel: it works without
// privileges as far as sysfs and /proc allow.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collwire/node_records.h"
#include "collwire/record.h"
#include "userspace/inventory/pci_functions.h"
#include "userspace/inventory/process.h"
#include "userspace/inventory/rdma_devices.h"
#include "userspace/source/source.h"

namespace collwire::sources {

struct InventoryOptions {
    std::string root; // before every path; empty: the machine itself
    inventory::ProcessOptions processes;
    std::function<inventory::NetlinkFacts()> netlink = inventory::read_netlink_facts;
    // How often it is looked which processes have ended.
    std::uint64_t look_at_processes_ns = 60'000'000'000;
};

class InventorySource : public source::Source {
public:
    explicit InventorySource(InventoryOptions options);

    [[nodiscard]] std::string_view name() const override { return "inventory"; }
    Result<void> prepare() override;
    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const override { return {}; }
    Result<void> attach() override { return {}; }
    [[nodiscard]] std::vector<source::SourceState> states() const override;
    // Looks at the owner of a queue pair or communicator when it is seen first: it may end any
    // moment.
    void on_record(const cw_header &record) override;
    void sample(source::RecordSink &sink, bool everything) override;
    void detach() override {}

    // As of the last sample, or of prepare.
    [[nodiscard]] const std::vector<inventory::RdmaDevice> &devices() const { return devices_; }

private:
    using ProcessKey = std::pair<std::uint32_t, std::uint64_t>; // tgid, start as the event had it
    struct Process {
        cw_process record;
        bool written = false;
        bool ended = false; // when last looked at
    };

    void scan();
    void write_changes(source::RecordSink &sink, bool everything);
    void write_gids(source::RecordSink &sink, const inventory::RdmaPort &port, bool everything);
    void write_gone_devices(source::RecordSink &sink);
    void write_processes(source::RecordSink &sink, bool everything);
    // A port's, or one that an address of a port belongs to.
    [[nodiscard]] bool knows_netdev(std::uint32_t ifindex, const char *name) const;
    void see_process(std::uint32_t tgid, std::uint64_t start_boottime_ns, const char *comm);

    InventoryOptions options_;
    std::vector<inventory::RdmaDevice> devices_;
    std::vector<cw_pci_function> pci_functions_;
    std::vector<std::string> names_;
    std::uint64_t scanned_ns_ = 0;
    std::uint64_t looked_ns_ = 0; // at processes
    bool stale_ = false;
    // what was written last, by device index, port, GID index, PCI address
    std::map<std::uint32_t, cw_device> written_devices_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, cw_port> written_ports_;
    std::map<std::pair<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>, cw_gid>
        written_gids_;
    std::map<std::string, cw_pci_function> written_pci_functions_;
    std::set<std::uint32_t> reported_gone_; // by the kernel's own event
    std::map<ProcessKey, Process> processes_;
};

} // namespace collwire::sources
