// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/inventory_source.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/set_text.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/port_records.h"
#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "userspace/inventory/files.h"

namespace collwire::sources {
namespace {

// A GID table is some hundred small files: read after an event, and once a minute in case
// that no event arrived.
constexpr std::uint64_t rescan_ns = 60'000'000'000ULL;

template <typename Record> bool same(const Record &a, const Record &b) {
    Record left = a;
    left.header.time_ns = b.header.time_ns;
    return std::memcmp(&left, &b, sizeof(Record)) == 0;
}

template <typename Key, typename Record>
void write_if_changed(source::RecordSink &sink, std::map<Key, Record> &written, const Key &key,
                      const Record &record, bool everything) {
    const auto known = written.find(key);
    if (!everything && known != written.end() && same(known->second, record))
        return;
    Record stamped = record;
    stamped.header.time_ns = monotonic_ns();
    sink.append(stamped.header);
    written[key] = stamped;
}

template <typename Record> const Record *as(const cw_header &header) {
    return header.length_bytes >= sizeof(Record) ? reinterpret_cast<const Record *>(&header)
                                                 : nullptr;
}

} // namespace

InventorySource::InventorySource(InventoryOptions options) : options_(std::move(options)) {}

Result<void> InventorySource::prepare() {
    scan();
    return {};
}

void InventorySource::scan() {
    names_ = inventory::rdma_device_names(options_.root);
    devices_ = scan_rdma_devices(options_.root, options_.netlink());
    pci_functions_ = read_pci_functions(options_.root, devices_);
    scanned_ns_ = monotonic_ns();
    stale_ = false;
}

std::vector<source::SourceState> InventorySource::states() const {
    if (devices_.empty())
        return {{CW_SOURCE_DEGRADED,
                 "no RDMA device on this node. Fix: load the NIC driver (modprobe mlx5_ib), or "
                 "create a software device (rdma link add rxe0 type rxe netdev eth0)",
                 ~0u}};
    for (const inventory::RdmaDevice &device : devices_) {
        if (!device.indexed)
            return {{CW_SOURCE_DEGRADED,
                     device.name + " has no index in RDMA netlink: its queue pairs cannot be "
                                   "matched to it. Fix: run in the network namespace of the host",
                     device.record.dev_index}};
    }
    return {{CW_SOURCE_ON, "", ~0u}};
}

void InventorySource::on_record(const cw_header &record) {
    switch (record.kind) {
    case CW_KIND_QP_CREATE:
    case CW_KIND_QP_STATE:
    case CW_KIND_QP_EXISTING:
    case CW_KIND_QP_ERROR:
        if (const auto *event = as<cw_qp_event>(record))
            see_process(event->tgid, event->start_boottime_ns, event->comm);
        break;
    case CW_KIND_NCCL_COMM: // over sockets a process has no queue pair
        if (const auto *event = as<cw_nccl_comm>(record))
            see_process(event->tgid, event->start_boottime_ns, "");
        break;
    case CW_KIND_VERBS_QP:
        if (const auto *event = as<cw_verbs_qp>(record))
            see_process(event->key.tgid, event->start_boottime_ns, "");
        break;
    case CW_KIND_DEVICE_GONE:
        if (const auto *event = as<cw_device_gone>(record))
            reported_gone_.insert(event->dev_index);
        stale_ = true;
        break;
    case CW_KIND_ASYNC_EVENT:
        stale_ = true;
        break;
    case CW_KIND_CARRIER:
        // Containers that start and end have many; none of theirs changes a port or an address.
        if (const auto *event = as<cw_carrier>(record))
            stale_ = stale_ || knows_netdev(event->ifindex, event->netdev);
        break;
    default:
        break;
    }
}

bool InventorySource::knows_netdev(std::uint32_t ifindex, const char *name) const {
    const auto is_named = [name](const char *other) {
        return strncmp(name, other, CW_IFNAME_BYTES) == 0;
    };
    for (const inventory::RdmaDevice &device : devices_) {
        for (const inventory::RdmaPort &port : device.ports) {
            if ((ifindex != 0 && port.record.ifindex == ifindex) || is_named(port.record.netdev) ||
                std::any_of(port.gids.begin(), port.gids.end(),
                            [&](const cw_gid &gid) { return is_named(gid.netdev); }))
                return true;
        }
    }
    return false;
}

void InventorySource::see_process(std::uint32_t tgid, std::uint64_t start_boottime_ns,
                                  const char *comm) {
    if (tgid == 0)
        return;
    const ProcessKey key{tgid, start_boottime_ns};
    // A source may have the start from /proc, rounded down to a clock tick.
    for (auto known = processes_.lower_bound({tgid, 0});
         known != processes_.end() && known->first.first == tgid; ++known)
        if (inventory::same_start(known->first.second, start_boottime_ns))
            return;
    cw_process process{};
    auto read = read_process(options_.root, tgid, options_.processes);
    // Another start time: the owner has ended and its pid is in use again.
    if (read && (start_boottime_ns == 0 ||
                 inventory::same_start(start_boottime_ns, read->start_boottime_ns))) {
        process = *read;
        if (start_boottime_ns != 0 && start_boottime_ns != process.start_boottime_ns) {
            process.start_boottime_ns = start_boottime_ns;
            process.flags &= ~static_cast<std::uint32_t>(CW_PROCESS_START_ROUNDED);
        }
    } else {
        process.header = {sizeof(process), CW_KIND_PROCESS, CW_CPU_USERSPACE, 0};
        process.pid = tgid;
        process.start_boottime_ns = start_boottime_ns;
        process.numa_node = -1;
        process.flags = CW_PROCESS_GONE;
        set_text(process.comm, {comm, strnlen(comm, CW_COMM_BYTES)});
    }
    processes_.emplace(key, Process{process});
}

void InventorySource::sample(source::RecordSink &sink, bool everything) {
    const bool due = monotonic_ns() - scanned_ns_ >= rescan_ns;
    if (everything || stale_ || due || inventory::rdma_device_names(options_.root) != names_)
        scan();
    write_changes(sink, everything);
    write_processes(sink, everything);
}

void InventorySource::write_changes(source::RecordSink &sink, bool everything) {
    write_gone_devices(sink);
    for (const inventory::RdmaDevice &device : devices_) {
        const std::uint32_t index = device.record.dev_index;
        write_if_changed(sink, written_devices_, index, device.record, everything);
        for (const inventory::RdmaPort &port : device.ports) {
            write_if_changed(sink, written_ports_, {index, port.record.port}, port.record,
                             everything);
            write_gids(sink, port, everything);
        }
    }
    for (const cw_pci_function &function : pci_functions_)
        write_if_changed(sink, written_pci_functions_, std::string(function.pci_address), function,
                         everything);
}

void InventorySource::write_gids(source::RecordSink &sink, const inventory::RdmaPort &port,
                                 bool everything) {
    const std::pair key{port.record.dev_index, port.record.port};
    std::set<std::uint32_t> present;
    for (const cw_gid &gid : port.gids) {
        present.insert(gid.gid_index);
        write_if_changed(sink, written_gids_, {key, gid.gid_index}, gid, everything);
    }
    for (auto known = written_gids_.lower_bound({key, 0});
         known != written_gids_.end() && known->first.first == key;) {
        if (present.contains(known->first.second)) {
            ++known;
            continue;
        }
        // An address that went away is written as an empty one.
        cw_gid empty = known->second;
        std::memset(empty.gid, 0, sizeof(empty.gid));
        empty.type = CW_GID_UNKNOWN;
        set_text(empty.netdev, "");
        empty.header.time_ns = monotonic_ns();
        sink.append(empty.header);
        known = written_gids_.erase(known);
    }
}

void InventorySource::write_gone_devices(source::RecordSink &sink) {
    for (auto known = written_devices_.begin(); known != written_devices_.end();) {
        const std::uint32_t index = known->first;
        const bool present =
            std::any_of(devices_.begin(), devices_.end(), [&](const inventory::RdmaDevice &device) {
                return device.record.dev_index == index;
            });
        if (present) {
            ++known;
            continue;
        }
        if (!reported_gone_.contains(index)) {
            cw_device_gone gone{};
            gone.header = {sizeof(gone), CW_KIND_DEVICE_GONE, CW_CPU_USERSPACE, monotonic_ns()};
            gone.dev_index = index;
            set_text(gone.device, known->second.name);
            sink.append(gone.header);
        }
        reported_gone_.erase(index);
        std::erase_if(written_ports_,
                      [&](const auto &entry) { return entry.first.first == index; });
        std::erase_if(written_gids_,
                      [&](const auto &entry) { return entry.first.first.first == index; });
        known = written_devices_.erase(known);
    }
}

void InventorySource::write_processes(source::RecordSink &sink, bool everything) {
    const std::uint64_t now_ns = monotonic_ns();
    const bool look = everything || now_ns - looked_ns_ >= options_.look_at_processes_ns;
    if (look)
        looked_ns_ = now_ns;
    for (auto entry = processes_.begin(); entry != processes_.end();) {
        Process &process = entry->second;
        if (everything || !process.written) {
            process.record.header.time_ns = monotonic_ns();
            sink.append(process.record.header);
            process.written = true;
        }
        // A segment holds those that lived in it: without this the list would grow for ever. Within
        // a segment, who ended stays for one more look: events of it may be on their way.
        bool over = false;
        if (look) {
            const auto start = inventory::process_start_ns(options_.root, entry->first.first);
            const bool ended =
                !start || !inventory::same_start(process.record.start_boottime_ns, *start);
            over = ended && (everything || process.ended);
            process.ended = ended;
        }
        entry = over ? processes_.erase(entry) : std::next(entry);
    }
}

} // namespace collwire::sources
