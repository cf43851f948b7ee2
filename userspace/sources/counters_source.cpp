// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/counters_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "collwire/record_kinds.h"
#include "userspace/inventory/files.h"

namespace collwire::sources {
namespace {

// The port's state follows its netdev's a little later, so a change is looked at more than once.
constexpr unsigned looks_after_change = 3;
constexpr std::uint64_t look_anyway_ns = 60'000'000'000;
// A reset of a device takes some seconds; each read of one that stays dead waits for its firmware.
constexpr std::uint64_t max_retry_ns = 60'000'000'000;

// Shows a change of an Ethernet port without asking the RDMA driver.
std::string netdev_state(const std::string &root, const std::string &netdev) {
    std::string state;
    for (const char *file :
         {"/ifindex", "/flags", "/carrier", "/operstate", "/carrier_changes", "/mtu", "/speed"})
        state +=
            inventory::read_line(inventory::concatenated(root, "/sys/class/net/", netdev, file))
                .value_or("-") +
            " ";
    return state;
}

bool counts_bytes(const inventory::CounterGroup &group) {
    const auto &definitions = group.definitions();
    return !group.empty() &&
           std::any_of(definitions.begin(), definitions.end(), [](const cw_counter_def &counter) {
               return counter.unit == CW_UNIT_LINK_BYTES || counter.unit == CW_UNIT_OCTETS_4 ||
                      counter.unit == CW_UNIT_BYTES;
           });
}

std::size_t n_refused(const std::vector<inventory::CounterGroup> &groups) {
    std::size_t n = 0;
    for (const inventory::CounterGroup &group : groups)
        n += group.n_refused();
    return n;
}

} // namespace

CountersSource::CountersSource(CountersOptions options) : options_(std::move(options)) {
    if (!options_.clock)
        options_.clock = monotonic_ns;
}

Result<void> CountersSource::prepare() {
    refresh();
    return {};
}

// Opens the counters of what is new and drops what is gone. Series of ports that stay go on.
void CountersSource::refresh() {
    names_ = inventory::rdma_device_names(options_.root);
    facts_ = options_.netlink();
    std::vector<Port> ports;
    for (inventory::RdmaDevice &device :
         scan_rdma_devices(options_.root, facts_, inventory::GidTables::Skip)) {
        const std::vector<inventory::RdmaPort> scanned = std::move(device.ports);
        device.ports.clear();
        for (const inventory::RdmaPort &entry : scanned) {
            const auto known = std::find_if(ports_.begin(), ports_.end(), [&](const Port &port) {
                return port.device.name == device.name &&
                       port.record.dev_index == entry.record.dev_index &&
                       port.record.port == entry.record.port;
            });
            if (known != ports_.end()) {
                ports.push_back(std::move(*known));
                continue;
            }
            Port port;
            port.device = device;
            port.record = entry.record;
            open_counters(port);
            ports.push_back(std::move(port));
        }
    }
    ports_ = std::move(ports);
}

void CountersSource::open_counters(Port &port) {
    port.netdev = port.record.netdev;
    port.groups =
        inventory::open_port_counters(options_.root, port.device.name, port.record.dev_index,
                                      port.record.port, port.netdev, next_id_);
    port.definitions_written = false;
    if (!port.netdev.empty())
        port.netdev_state = netdev_state(options_.root, port.netdev);
    port.next_look_ns = options_.clock() + look_anyway_ns;
}

bool CountersSource::refresh_is_due() {
    if (std::exchange(device_gone_, false) || inventory::rdma_device_names(options_.root) != names_)
        return true;
    // Its name is the same; netlink shows whether it is the same device.
    const std::uint64_t now = options_.clock();
    return std::any_of(ports_.begin(), ports_.end(), [now](const Port &port) {
        return port.retry_after_ns != 0 && now >= port.retry_ns;
    });
}

void CountersSource::reopen_ended(Port &port) {
    const bool ended =
        std::any_of(port.groups.begin(), port.groups.end(),
                    [](const inventory::CounterGroup &group) { return group.any_ended(); });
    if (!ended) {
        port.retry_after_ns = 0;
        return;
    }
    const std::uint64_t now = options_.clock();
    if (port.retry_after_ns != 0 && now < port.retry_ns)
        return;
    const bool first = port.retry_after_ns == 0;
    port.retry_after_ns =
        first ? options_.interval_ns : std::min(2 * port.retry_after_ns, max_retry_ns);
    port.retry_ns = now + port.retry_after_ns;
    if (first) // the next sample asks first whether it is the same device
        return;
    for (inventory::CounterGroup &group : port.groups) {
        if (group.any_ended() && group.reopen(next_id_))
            port.definitions_written = false;
    }
}

bool CountersSource::is_of(const cw_carrier &edge, const Port &port) {
    return (edge.ifindex != 0 && edge.ifindex == port.record.ifindex) ||
           port.netdev == std::string_view(edge.netdev, strnlen(edge.netdev, sizeof(edge.netdev)));
}

void CountersSource::on_record(const cw_header &record) {
    if (record.kind == CW_KIND_DEVICE_GONE && record.length_bytes >= sizeof(cw_device_gone)) {
        const std::uint32_t index = reinterpret_cast<const cw_device_gone &>(record).dev_index;
        std::erase_if(ports_, [&](const Port &port) { return port.record.dev_index == index; });
        device_gone_ = true;
        return;
    }
    const bool carrier =
        record.kind == CW_KIND_CARRIER && record.length_bytes >= sizeof(cw_carrier);
    if (record.kind != CW_KIND_ASYNC_EVENT && !carrier)
        return;
    for (Port &port : ports_) {
        if (!carrier || is_of(reinterpret_cast<const cw_carrier &>(record), port))
            port.looks_due = looks_after_change;
    }
}

// Each look makes the driver query its port. On hardware that is a firmware command, and below a
// NIC of unknown speed the kernel logs a line each time (ib_get_eth_speed), so an Ethernet port is
// looked at when its netdev changed. An InfiniBand port has no such sign.
bool CountersSource::look_is_due(Port &port) const {
    if (port.record.link_layer != CW_LINK_ETHERNET || port.netdev.empty())
        return true;
    std::string state = netdev_state(options_.root, port.netdev);
    if (state != port.netdev_state) {
        port.netdev_state = std::move(state);
        port.looks_due = looks_after_change;
    }
    const std::uint64_t now = options_.clock();
    if (port.looks_due == 0 && now < port.next_look_ns)
        return false;
    port.looks_due -= port.looks_due > 0 ? 1 : 0;
    port.next_look_ns = now + look_anyway_ns;
    return true;
}

void CountersSource::update_port(Port &port) {
    if (!look_is_due(port))
        return;
    cw_port now = read_port(options_.root, port.device, port.record.port, facts_);
    if (now.netdev[0] == '\0' && !port.netdev.empty()) { // renamed, or gone
        facts_ = options_.netlink();
        now = read_port(options_.root, port.device, port.record.port, facts_);
    }
    now.header.time_ns = port.record.header.time_ns;
    if (std::memcmp(&now, &port.record, sizeof(now)) == 0)
        return;
    const std::uint32_t ifindex = port.record.ifindex;
    port.record = now;
    port.port_written = false;
    if (now.netdev[0] != '\0' && (port.netdev != now.netdev || ifindex != now.ifindex))
        open_counters(port);
}

std::vector<source::SourceState> CountersSource::states() const {
    if (ports_.empty())
        return {{CW_SOURCE_UNAVAILABLE,
                 "no RDMA port on this node. Fix: load the NIC driver (modprobe mlx5_ib)", ~0u}};
    std::vector<source::SourceState> states;
    for (const Port &port : ports_) {
        const std::string name =
            port.device.name + " port " + std::to_string(port.record.port) + ": ";
        if (const std::size_t refused = n_refused(port.groups); refused != 0)
            states.push_back({CW_SOURCE_DEGRADED,
                              name + "counters are missing: " + std::to_string(refused) +
                                  " files exceed the limit of open files. Fix: raise the hard "
                                  "limit (ulimit -Hn, LimitNOFILE=)",
                              port.record.dev_index});
        if (std::none_of(port.groups.begin(), port.groups.end(), counts_bytes)) {
            states.push_back(
                {CW_SOURCE_DEGRADED,
                 name + "no byte counter, so its traffic cannot be compared with known connections",
                 port.record.dev_index});
        }
        for (const inventory::CounterGroup &group : port.groups) {
            for (const std::string &counter : group.saturated())
                states.push_back(
                    {CW_SOURCE_DEGRADED,
                     name + counter +
                         " is at its maximum and no longer counts. Fix: reset it (perfquery -R)",
                     port.record.dev_index});
        }
    }
    if (states.empty())
        states.push_back({CW_SOURCE_ON, "", ~0u});
    return states;
}

void CountersSource::end() {
    last_sample_ = true;
    sample(last_, false);
    has_ended_ = true;
}

void CountersSource::sample(source::RecordSink &sink, bool everything) {
    if (has_ended_)
        return last_.hand_over([&sink](const cw_header &record) { sink.append(record); });
    const std::uint64_t now = options_.clock();
    // A tick that comes a little early counts: else a jitter of 1 ms would double the interval.
    if (!everything && !last_sample_ && now + options_.interval_ns / 10 < due_ns_)
        return;
    due_ns_ += options_.interval_ns;
    if (due_ns_ <= now)
        due_ns_ = now + options_.interval_ns;
    if (refresh_is_due())
        refresh();
    for (Port &port : ports_) {
        update_port(port);
        reopen_ended(port);
        write_port(sink, port, everything);
    }
}

void CountersSource::write_port(source::RecordSink &sink, Port &port, bool everything) {
    if (everything || !port.port_written) {
        port.record.header.time_ns = options_.clock();
        sink.append(port.record.header);
        port.port_written = true;
    }
    if (everything || !port.definitions_written) {
        for (const inventory::CounterGroup &group : port.groups) {
            for (cw_counter_def definition : group.definitions()) {
                definition.header.time_ns = options_.clock();
                sink.append(definition.header);
            }
        }
        port.definitions_written = true;
    }
    for (inventory::CounterGroup &group : port.groups)
        write_samples(sink, group);
}

void CountersSource::write_samples(source::RecordSink &sink, inventory::CounterGroup &group) {
    cw_counter_samples head{};
    samples_.clear();
    head.read_begin_ns = options_.clock();
    group.read(samples_);
    if (samples_.empty())
        return;
    const std::size_t bytes = sizeof(head) + samples_.size() * sizeof(cw_counter_sample);
    head.header = {static_cast<std::uint32_t>(bytes), CW_KIND_COUNTER_SAMPLES, CW_CPU_USERSPACE,
                   options_.clock()};
    head.n = static_cast<std::uint32_t>(samples_.size());
    buffer_.resize(bytes / sizeof(std::uint64_t));
    std::memcpy(buffer_.data(), &head, sizeof(head));
    std::memcpy(reinterpret_cast<char *>(buffer_.data()) + sizeof(head), samples_.data(),
                bytes - sizeof(head));
    sink.append(*reinterpret_cast<const cw_header *>(buffer_.data()));
}

} // namespace collwire::sources
