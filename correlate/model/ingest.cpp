// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/ingest.h"

#include <fmt/format.h>

#include <algorithm>

#include "collwire/loss_records.h"
#include "collwire/port_records.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/kinds.h"
#include "correlate/model/meaning.h"

namespace collwire::model {
namespace {

constexpr std::uint64_t NS_PER_MS = 1'000'000;

void note_recovery(SourceInfo &source, std::uint64_t time_ns) {
    constexpr std::string_view RESOLVED = "; resolved after ";
    if (time_ns > source.time_ns && source.reason.find(RESOLVED) == std::string::npos)
        source.reason += fmt::format("{}{} ms", RESOLVED, (time_ns - source.time_ns) / NS_PER_MS);
}

} // namespace

using capture::record_as;
using capture::text_of;

std::size_t Ingest::Hash::operator()(const QpKey &key) const {
    return mix(mix(mix(key.generation_ns) ^ key.session) ^ (std::uint64_t{key.dev_index} << 32U) ^
               key.qpn);
}
std::size_t Ingest::Hash::operator()(const UdKey &key) const {
    return mix((std::uint64_t{key.qp} << 32U | key.dest_qpn) ^ GidHash{}(key.dgid));
}
std::size_t Ingest::Hash::operator()(const PostKey &key) const {
    return mix(mix(key.context ^ key.session) ^ (std::uint64_t{key.tgid} << 32U | key.qpn) ^
               key.epoch);
}
std::size_t Ingest::Hash::operator()(const ProcessKey &key) const {
    return mix(mix(key.start_boottime_ns) ^ (std::uint64_t{key.host} << 32U | key.pid));
}
std::size_t Ingest::Hash::operator()(const std::pair<Index, std::uint32_t> &key) const {
    return mix(std::uint64_t{key.first} << 32U | key.second);
}
std::size_t Ingest::Hash::operator()(const std::pair<Index, std::uint64_t> &key) const {
    return mix(mix(key.second) ^ key.first);
}

void Ingest::begin_capture(std::string path) {
    Capture capture;
    capture.path = std::move(path);
    model_.captures.push_back(std::move(capture));
    session_ = NONE;
    counter_by_id_.clear();
    n_events_ = n_anchors_ = n_gids_ = n_pci_functions_ = n_probes_ = 0;
    nccl_.begin_capture();
}

void Ingest::unreadable(std::string path, std::string message) {
    begin_capture(std::move(path));
    fail_capture(std::move(message));
}

void Ingest::fail_capture(std::string message) {
    model_.captures.back().end = CaptureEnd::Unreadable;
    model_.captures.back().message = std::move(message);
}

bool Ingest::end_capture(const capture::ReadSummary &summary) {
    Capture &capture = model_.captures.back();
    capture.records = summary.records;
    capture.unknown_records = summary.unknown_records;
    capture.first_time_ns = summary.first_time_ns;
    capture.last_time_ns = summary.last_time_ns;
    capture.message = summary.describe();
    if (summary.cut) {
        capture.end = CaptureEnd::Damaged;
        capture.damaged_at_bytes = summary.cut->offset_bytes;
    } else {
        capture.end = summary.end ? CaptureEnd::Complete : CaptureEnd::Open;
    }
    if (summary.end)
        capture.exit_status = summary.end->exit_status;
    if (session_ == NONE)
        return false;
    session().end_ns = std::max(session().end_ns, summary.last_time_ns);
    constexpr std::uint32_t ROTATED = 2;
    const bool ended = summary.end && summary.end->reason != ROTATED;
    session().ended = session().ended || ended;
    if (ended) // bytes read later were counted until then
        session().end_ns = summary.end->header.time_ns;
    session().probes_placed = std::max(session().probes_placed, n_probes_);
    return true;
}

void Ingest::add(const cw_header &header, std::span<const std::byte> record) {
    if (header.kind == CW_KIND_NODE) {
        add_node(record);
        return;
    }
    if (session_ == NONE) {
        ++model_.captures.back().unusable_records;
        return;
    }
    switch (header.kind) {
    case CW_KIND_DEVICE:
        return add_device(record);
    case CW_KIND_PORT:
        return add_port(record);
    case CW_KIND_GID:
        return add_gid(record);
    case CW_KIND_PCI_FUNCTION:
        return add_pci_function(record);
    case CW_KIND_CLOCK: {
        const auto clock = record_as<cw_clock>(record);
        return add_anchor(header.time_ns, clock.realtime_ns);
    }
    case CW_KIND_PROCESS:
        return add_process(record);
    case CW_KIND_PROBE:
        return add_probe(record_as<cw_probe>(record));
    case CW_KIND_SOURCE:
        return add_source(record);
    case CW_KIND_QP_CREATE:
    case CW_KIND_QP_STATE:
    case CW_KIND_QP_EXISTING:
    case CW_KIND_QP_DESTROY:
    case CW_KIND_QP_ERROR:
        return add_qp_event(record);
    case CW_KIND_ASYNC_EVENT:
        return add_async_event(record);
    case CW_KIND_CARRIER:
        return add_carrier(record);
    case CW_KIND_MODULE_EVENT:
        return add_module_event(record);
    case CW_KIND_DEVICE_GONE:
        return add_device_gone(record);
    case CW_KIND_QP_WIRE:
        return add_qp_wire(record);
    case CW_KIND_UD_PEER:
        return add_ud_peer(record);
    case CW_KIND_QP_POST:
        return add_qp_post(record);
    case CW_KIND_VERBS_QP:
        return add_verbs_qp(record);
    case CW_KIND_POST_SLICE:
        return add_post_slice(record);
    case CW_KIND_COUNTER_DEF:
        return add_counter_def(record);
    case CW_KIND_COUNTER_SAMPLES:
        return add_counter_samples(record);
    case CW_KIND_SAMPLE_GAP:
        return add_sample_gap(record_as<cw_sample_gap>(record).begin_ns, header.time_ns);
    case CW_KIND_LOSS:
        return add_loss(record);
    default: // END is in the summary; any other kind is from a newer minor version
        if (nccl_.add(session_, header, record, session().from_start))
            return;
        ++model_.captures.back().unusable_records;
        ++model_.captures.back().nccl_left_out;
    }
}

// ---- hosts, devices, processes

Index Ingest::host_of(const cw_node &node) {
    const std::string hostname(text_of(node.hostname));
    const std::string boot_id(text_of(node.boot_id));
    const std::string machine_id(text_of(node.machine_id));
    // One machine may have several host names (a container's, or a changed one). Copies of a
    // virtual machine may share a boot id.
    std::vector<Index> &known = hosts_[boot_id.empty() ? '\n' + hostname : boot_id];
    for (const Index index : known) {
        Host &host = model_.hosts[index];
        if (!machine_id.empty() && !host.machine_id.empty() && host.machine_id != machine_id)
            continue;
        if (host.machine_id.empty())
            host.machine_id = machine_id;
        return index;
    }
    const auto index = static_cast<Index>(model_.hosts.size());
    known.push_back(index);
    Host host;
    host.hostname = hostname;
    host.name = hostname.empty() ? "(no host name)" : hostname;
    host.boot_id = boot_id;
    host.machine_id = machine_id;
    host.kernel_release = text_of(node.kernel_release);
    model_.hosts.push_back(std::move(host));
    return index;
}

void Ingest::add_node(std::span<const std::byte> record) {
    if (session_ != NONE)
        return;
    const auto node = record_as<cw_node>(record);
    const Index host = host_of(node);
    const auto [found, is_new] =
        sessions_.try_emplace(std::pair<Index, std::uint64_t>{host, node.session_id},
                              static_cast<Index>(model_.sessions.size()));
    session_ = found->second;
    if (is_new) {
        Session added;
        added.id = node.session_id;
        added.host = host;
        added.tool_version = text_of(node.tool_version);
        added.begin_ns = UINT64_MAX;
        model_.sessions.push_back(std::move(added));
    }
    segment_is_first_ = (node.flags & CW_NODE_FIRST_SEGMENT) != 0;
    segment_start_ns_ = node.header.time_ns;
    Session &current = session();
    current.sample_interval_ns = node.sample_interval_ns;
    // Segments in between may be missing.
    if (!is_new)
        add_sample_gap(current.end_ns, segment_start_ns_);
    current.flags |= node.flags;
    current.segments.insert(node.segment);
    if (segment_is_first_) {
        current.from_start = true;
        current.begin_ns = node.record_start_ns != 0 ? node.record_start_ns : segment_start_ns_;
    } else if (!current.from_start) {
        current.begin_ns = std::min(current.begin_ns, segment_start_ns_);
    }
    if (node.realtime_ns != 0)
        add_anchor(node.header.time_ns, node.realtime_ns);
    Capture &capture = model_.captures.back();
    capture.session = session_;
    capture.segment = node.segment;
}

void Ingest::add_anchor(std::uint64_t monotonic_ns, std::uint64_t realtime_ns) {
    if (++n_anchors_ > MAX_CLOCK_ANCHORS) {
        ++model_.captures.back().unusable_records;
        ++model_.captures.back().anchors_left_out;
        return;
    }
    model_.hosts[session().host].anchors.push_back({monotonic_ns, realtime_ns});
}

Index Ingest::device_by_name(std::string_view name) {
    const Index host = session().host;
    const auto [found, is_new] = devices_.try_emplace(fmt::format("{}\n{}", host, name),
                                                      static_cast<Index>(model_.devices.size()));
    if (is_new) {
        Device device;
        device.host = host;
        device.name = name;
        model_.devices.push_back(std::move(device));
    }
    return found->second;
}

Index Ingest::device_by_index(std::uint32_t dev_index) {
    const auto found = devices_by_index_.find({session_, dev_index});
    return found == devices_by_index_.end() ? NONE : found->second;
}

void Ingest::add_device(std::span<const std::byte> record) {
    const auto from = record_as<cw_device>(record);
    const Index index = device_by_name(text_of(from.name));
    devices_by_index_[{session_, from.dev_index}] = index;
    gone_devices_.erase({session_, from.dev_index});
    Device &device = model_.devices[index];
    device.flags = from.flags;
    device.driver = text_of(from.driver);
    device.pci_address = text_of(from.pci_address);
    device.numa_node = from.numa_node;
    device.n_ports = from.n_ports;
}

Index Ingest::port_of(Index device, std::uint32_t number) {
    const auto [found, is_new] = ports_.try_emplace(std::pair<Index, std::uint32_t>{device, number},
                                                    static_cast<Index>(model_.ports.size()));
    if (is_new) {
        Port port;
        port.device = device;
        port.number = number;
        model_.ports.push_back(std::move(port));
        model_.devices[device].ports.push_back(found->second);
    }
    return found->second;
}

// NONE, and counted, if the device was never described or has no port with this number.
Index Ingest::device_with_port(std::uint32_t dev_index, std::uint32_t port) {
    const Index device = device_by_index(dev_index);
    if (device != NONE && port <= MAX_PORT_NUMBER)
        return device;
    ++model_.captures.back().unusable_records;
    return NONE;
}

void Ingest::add_port(std::span<const std::byte> record) {
    const auto from = record_as<cw_port>(record);
    const Index device = device_with_port(from.dev_index, from.port);
    if (device == NONE)
        return;
    const Index index = port_of(device, from.port);
    Port &port = model_.ports[index];
    if (from.header.time_ns < port.info_ns)
        return;
    if (port.info_ns != 0 && port.state != from.state && port.state != 0 && from.state != 0) {
        Event event;
        event.time_ns = from.header.time_ns;
        event.host = session().host;
        event.device = device;
        event.port = index;
        event.port_number = from.port;
        event.kind = "port_state";
        event.port_state = from.state;
        event.what = fmt::format("port state {} -> {}", capture::port_state_name(port.state),
                                 capture::port_state_name(from.state));
        add_event(std::move(event));
    }
    port.info_ns = from.header.time_ns;
    port.link_layer = from.link_layer;
    port.state = from.state;
    port.carrier = from.carrier;
    port.lid = from.lid;
    port.active_mtu_bytes =
        from.active_mtu_bytes != 0 ? from.active_mtu_bytes : port.active_mtu_bytes;
    port.ifindex = from.ifindex != 0 ? from.ifindex : port.ifindex;
    port.rate_mbps = from.rate_mbps;
    port.subnet_prefix = from.subnet_prefix;
    port.port_guid = from.port_guid;
    std::copy_n(from.mac, port.mac.size(), port.mac.begin());
    if (from.netdev[0] != 0)
        port.netdev = text_of(from.netdev);
}

void Ingest::add_gid(std::span<const std::byte> record) {
    const auto from = record_as<cw_gid>(record);
    const Index device = device_with_port(from.dev_index, from.port);
    if (device == NONE)
        return;
    Gid gid{};
    std::copy_n(from.gid, gid.size(), gid.begin());
    const Index port = port_of(device, from.port);
    if (is_zero(gid) || gids_.contains({port, gid}))
        return;
    if (++n_gids_ > MAX_GIDS) {
        ++model_.captures.back().unusable_records;
        ++model_.captures.back().gids_left_out;
        return;
    }
    gids_.insert({port, gid});
    model_.ports[port].gids.push_back(gid);
}

void Ingest::add_process(std::span<const std::byte> record) {
    const auto from = record_as<cw_process>(record);
    const auto [found, is_new] =
        processes_.try_emplace(ProcessKey{session().host, from.pid, from.start_boottime_ns},
                               static_cast<Index>(model_.processes.size()));
    if (is_new)
        model_.processes.emplace_back();
    Process &process = model_.processes[found->second];
    process.host = session().host;
    process.pid = from.pid;
    process.start_boottime_ns = from.start_boottime_ns;
    process.described = true;
    process.parent_pid = from.parent_pid;
    process.namespace_pid = from.namespace_pid;
    process.uid = from.uid;
    process.numa_node = from.numa_node;
    process.comm = text_of(from.comm);
    process.executable = text_of(from.executable);
    process.argv0 = text_of(from.argv0);
    process.script = text_of(from.script);
    process.cmdline = text_of(from.cmdline);
    process.slurm_job = text_of(from.slurm_job);
    process.slurm_step = text_of(from.slurm_step);
    process.pod_uid = text_of(from.pod_uid);
    process.container_id = text_of(from.container_id);
    process.cgroup = text_of(from.cgroup);
}

void Ingest::add_probe(const cw_probe &probe) {
    if ((probe.flags & CW_PROBE_PLACED) != 0 && segment_is_first_)
        ++n_probes_;
    // Those of --network-times and --warnings are of no count.
    const std::string_view function = text_of(probe.function);
    if ((probe.flags & CW_PROBE_TAKEN_OFF) == 0 || function.starts_with("ncclProfiler") ||
        function.starts_with("ncclDebugLog"))
        return;
    const auto [known, is_new] = session().taken_off_ns.try_emplace(
        std::string(text_of(probe.source)), probe.header.time_ns);
    known->second = std::min<std::uint64_t>(known->second, probe.header.time_ns);
}

void Ingest::add_source(std::span<const std::byte> record) {
    const auto from = record_as<cw_source>(record);
    SourceInfo &source = session().sources[{std::string(text_of(from.name)), from.dev_index}];
    const auto state = from.state <= CW_SOURCE_REFUSED ? static_cast<cw_source_state>(from.state)
                                                       : CW_SOURCE_UNAVAILABLE;
    if (state == CW_SOURCE_ON && source.state > CW_SOURCE_ON)
        return note_recovery(source, from.header.time_ns);
    // The worst state of the recording: a source that was missing for a time lacks bytes in its
    // sums.
    if (state < source.state || (state == source.state && from.header.time_ns < source.time_ns))
        return;
    source.name = text_of(from.name);
    source.device = from.dev_index == DEV_INDEX_NODE ? NONE : device_by_index(from.dev_index);
    source.state = state;
    source.reason = text_of(from.reason);
    source.time_ns = from.header.time_ns;
}

void Ingest::add_loss(std::span<const std::byte> record) {
    const auto from = record_as<cw_loss>(record);
    std::uint64_t &records = session().loss[{from.loss_class, from.header.cpu}];
    records = std::max<std::uint64_t>(records, from.records);
    if (from.records == 0)
        return;
    const auto [first, is_new] =
        session().first_loss_ns.try_emplace(from.loss_class, from.header.time_ns);
    first->second = std::min<std::uint64_t>(first->second, from.header.time_ns);
}

void Ingest::add_sample_gap(std::uint64_t begin_ns, std::uint64_t end_ns) {
    auto &gaps = session().sample_gaps;
    if (begin_ns >= end_ns)
        return;
    if (gaps.size() < MAX_SAMPLE_GAPS) {
        gaps.emplace_back(begin_ns, end_ns);
        return;
    }
    gaps.back().first = std::min(gaps.back().first, begin_ns);
    gaps.back().second = std::max(gaps.back().second, end_ns);
}

// ---- counters of ports

void Ingest::add_counter_def(std::span<const std::byte> record) {
    const auto from = record_as<cw_counter_def>(record);
    const Index device = device_with_port(from.dev_index, from.port);
    if (device == NONE)
        return;
    const std::string_view name = text_of(from.name);
    Session &current = session();
    const auto [found, is_new] = counters_.try_emplace(
        fmt::format("{}\n{}\n{}\n{}\n{}", session_, device, from.port, from.source, name),
        static_cast<Index>(current.counters.size()));
    if (is_new) {
        Counter counter;
        counter.device = device;
        counter.port = from.port;
        counter.source = from.source;
        counter.unit =
            from.unit <= CW_UNIT_TICKS ? static_cast<cw_counter_unit>(from.unit) : CW_UNIT_UNKNOWN;
        counter.name = name;
        counter.series = CounterSeries(meaning_of(name) != CounterMeaning::None);
        current.counters.push_back(std::move(counter));
        port_of(device, from.port);
    }
    counter_by_id_[from.id] = found->second;
}

void Ingest::add_counter_samples(std::span<const std::byte> record) {
    const auto head = record_as<cw_counter_samples>(record);
    Session &current = session();
    if (current.first_counters_ns == 0 || head.header.time_ns < current.first_counters_ns)
        current.first_counters_ns = head.header.time_ns;
    for (const cw_counter_sample &sample : capture::samples_of(record)) {
        const auto found = counter_by_id_.find(sample.id);
        if (found == counter_by_id_.end()) {
            ++model_.captures.back().unusable_records;
            continue;
        }
        current.counters[found->second].series.add(
            {std::min<std::uint64_t>(head.read_begin_ns, head.header.time_ns), head.header.time_ns,
             sample.value});
    }
}

} // namespace collwire::model
