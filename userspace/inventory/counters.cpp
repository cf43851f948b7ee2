// SPDX-License-Identifier: Apache-2.0
#include "userspace/inventory/counters.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include <fcntl.h>
#include <net/if_arp.h>
#include <unistd.h>

#include "base/set_text.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/inventory/files.h"
#include "userspace/inventory/netdevs.h"

namespace collwire::inventory {
namespace {

struct Limit {
    std::string_view name;
    std::uint64_t value;
};

// PortCounters (IBA 1.5 table 247): 4, 8, 16 and 32 bit fields.
constexpr std::array<Limit, 13> legacy_limits = {{{"symbol_error", 0xffff},
                                                  {"link_error_recovery", 0xff},
                                                  {"link_downed", 0xff},
                                                  {"port_rcv_errors", 0xffff},
                                                  {"port_rcv_remote_physical_errors", 0xffff},
                                                  {"port_rcv_switch_relay_errors", 0xffff},
                                                  {"port_xmit_discards", 0xffff},
                                                  {"port_xmit_constraint_errors", 0xff},
                                                  {"port_rcv_constraint_errors", 0xff},
                                                  {"local_link_integrity_errors", 0xf},
                                                  {"excessive_buffer_overrun_errors", 0xf},
                                                  {"VL15_dropped", 0xffff},
                                                  {"port_xmit_wait", 0xffffffff}}};

// hw_counters whose names do not end in a unit, and that count events by their documentation.
constexpr std::array<std::string_view, 41> hw_events = {"rx_write_requests",
                                                        "rx_read_requests",
                                                        "rx_atomic_requests",
                                                        "rx_dct_connect",
                                                        "out_of_buffer",
                                                        "out_of_sequence",
                                                        "duplicate_request",
                                                        "rnr_nak_retry_err",
                                                        "packet_seq_err",
                                                        "implied_nak_seq_err",
                                                        "local_ack_timeout_err",
                                                        "resp_local_length_error",
                                                        "resp_cqe_error",
                                                        "req_cqe_error",
                                                        "req_remote_invalid_request",
                                                        "req_remote_access_errors",
                                                        "resp_remote_access_errors",
                                                        "resp_cqe_flush_error",
                                                        "req_cqe_flush_error",
                                                        "req_transport_retries_exceeded",
                                                        "req_rnr_retries_exceeded",
                                                        "roce_adp_retrans",
                                                        "roce_adp_retrans_to",
                                                        "roce_slow_restart",
                                                        "roce_slow_restart_cnps",
                                                        "roce_slow_restart_trans",
                                                        "out_of_seq_request",
                                                        "rcvd_rnr_err",
                                                        "send_rnr_err",
                                                        "rcvd_seq_err",
                                                        "ack_deferred",
                                                        "retry_exceeded_err",
                                                        "retry_rnr_exceeded_err",
                                                        "completer_retry_err",
                                                        "send_err",
                                                        "link_downed",
                                                        "rdma_sends",
                                                        "rdma_recvs",
                                                        "rp_cnp_ignored",
                                                        "rp_cnp_handled",
                                                        "np_cnp_sent"};

constexpr std::array<std::string_view, 3> carrier_counters = {"carrier_changes", "carrier_up_count",
                                                              "carrier_down_count"};

bool ends_in_any(std::string_view name, std::initializer_list<std::string_view> endings) {
    return std::any_of(endings.begin(), endings.end(),
                       [&](std::string_view ending) { return name.ends_with(ending); });
}

cw_counter_unit netdev_unit(std::string_view name, std::uint32_t netdev_type) {
    if (name == "rx_bytes" || name == "tx_bytes")
        return netdev_type == ARPHRD_ETHER ? CW_UNIT_LINK_BYTES : CW_UNIT_BYTES;
    if (name == "rx_packets" || name == "tx_packets" || name == "multicast" ||
        ends_in_any(name, {"_dropped", "_compressed", "_nohandler"}))
        return CW_UNIT_PACKETS;
    // struct rtnl_link_stats64: packets with an error, collisions, carrier events of drivers
    return CW_UNIT_EVENTS;
}

cw_counter_unit port_unit(std::string_view name) {
    if (name == "port_xmit_data" || name == "port_rcv_data")
        return CW_UNIT_OCTETS_4;
    if (ends_in_any(name, {"_packets"}) || name == "port_xmit_discards" || name == "VL15_dropped")
        return CW_UNIT_PACKETS;
    if (name == "port_xmit_wait")
        return CW_UNIT_TICKS;
    const bool known = std::any_of(legacy_limits.begin(), legacy_limits.end(),
                                   [&](const Limit &limit) { return limit.name == name; });
    return known ? CW_UNIT_EVENTS : CW_UNIT_UNKNOWN;
}

cw_counter_unit hw_unit(std::string_view name) {
    if (ends_in_any(name, {"_bytes", "InOctets", "OutOctets"}))
        return CW_UNIT_BYTES;
    if (ends_in_any(name, {"_pkts", "_packets", "InPkts", "OutPkts"}))
        return CW_UNIT_PACKETS;
    const bool event = std::find(hw_events.begin(), hw_events.end(), name) != hw_events.end();
    return event ? CW_UNIT_EVENTS : CW_UNIT_UNKNOWN;
}

std::optional<std::uint64_t> read_counter(int file) {
    std::array<char, 64> text{};
    ssize_t n = 0;
    do {
        n = pread(file, text.data(), text.size(), 0);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        return std::nullopt;
    return parse_number(trim({text.data(), static_cast<std::size_t>(n)}));
}

bool too_many_open(int errnum) {
    return errnum == EMFILE || errnum == ENFILE;
}

void add_directory(CounterGroup &group, const std::string &directory, cw_counter_source source,
                   std::uint32_t netdev_type, std::uint32_t &next_id) {
    errno = 0;
    const std::vector<std::string> names = list_directory(directory);
    if (names.empty() && too_many_open(errno))
        group.note_refused();
    for (const std::string &name : names) {
        if (name == "lifespan") // of the kernel's cache in ms, no counter
            continue;
        group.add(concatenated(directory, "/", name), name, counter_unit(source, name, netdev_type),
                  next_id);
    }
}

} // namespace

cw_counter_unit counter_unit(cw_counter_source source, std::string_view name,
                             std::uint32_t netdev_type) {
    switch (source) {
    case CW_COUNTER_NETDEV:
        return netdev_unit(name, netdev_type);
    case CW_COUNTER_PORT:
        return port_unit(name);
    case CW_COUNTER_HW:
        return hw_unit(name);
    case CW_COUNTER_ETHTOOL:
        break;
    }
    return CW_UNIT_UNKNOWN;
}

std::uint64_t saturation_limit(std::string_view name) {
    for (const Limit &limit : legacy_limits) {
        if (limit.name == name)
            return limit.value;
    }
    return 0;
}

CounterGroup::CounterGroup(std::uint32_t dev_index, std::uint32_t port, cw_counter_source source)
    : dev_index_(dev_index), port_(port), source_(source) {}

CounterGroup::CounterGroup(CounterGroup &&other) noexcept
    : dev_index_(other.dev_index_), port_(other.port_), source_(other.source_),
      definitions_(std::move(other.definitions_)), open_(std::move(other.open_)),
      ended_(std::move(other.ended_)), saturated_(std::move(other.saturated_)),
      n_refused_(other.n_refused_) {
    other.open_.clear();
}

CounterGroup::~CounterGroup() {
    for (const Open &counter : open_)
        close(counter.file);
}

void CounterGroup::add(const std::string &path, std::string_view name, cw_counter_unit unit,
                       std::uint32_t &next_id) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        if (too_many_open(errno))
            note_refused();
        return;
    }
    if (!read_counter(file)) {
        close(file);
        return;
    }
    cw_counter_def definition{};
    definition.header = {sizeof(definition), CW_KIND_COUNTER_DEF, CW_CPU_USERSPACE, 0};
    definition.id = next_id++;
    definition.dev_index = dev_index_;
    definition.port = port_;
    definition.unit = static_cast<std::uint16_t>(unit);
    definition.source = static_cast<std::uint16_t>(source_);
    set_text(definition.name, name);
    definitions_.push_back(definition);
    const std::uint64_t limit = source_ == CW_COUNTER_PORT ? saturation_limit(name) : 0;
    open_.push_back({file, definition.id, limit, std::string(name), path});
}

void CounterGroup::read(std::vector<cw_counter_sample> &samples) {
    saturated_.clear();
    std::erase_if(open_, [&](Open &counter) {
        const auto value = read_counter(counter.file);
        if (!value) {
            close(counter.file);
            ended_.push_back(std::move(counter));
            return true;
        }
        samples.push_back({counter.id, 0, *value});
        if (counter.limit != 0 && *value == counter.limit)
            saturated_.push_back(counter.name);
        return false;
    });
}

bool CounterGroup::reopen(std::uint32_t &next_id) {
    const std::size_t before = open_.size();
    std::erase_if(ended_, [&](const Open &counter) {
        const auto old = std::find_if(
            definitions_.begin(), definitions_.end(),
            [&](const cw_counter_def &definition) { return definition.id == counter.id; });
        const auto unit = static_cast<cw_counter_unit>(old->unit);
        const auto n_open = open_.size();
        add(counter.path, counter.name, unit, next_id);
        if (open_.size() == n_open)
            return false;
        std::erase_if(definitions_, [&](const cw_counter_def &definition) {
            return definition.id == counter.id;
        });
        return true;
    });
    return open_.size() != before;
}

std::vector<CounterGroup> open_port_counters(const std::string &root, const std::string &device,
                                             std::uint32_t dev_index, std::uint32_t port,
                                             const std::string &netdev, std::uint32_t &next_id) {
    std::vector<CounterGroup> groups;
    const std::string directory =
        root + "/sys/class/infiniband/" + device + "/ports/" + std::to_string(port);
    groups.emplace_back(dev_index, port, CW_COUNTER_PORT);
    add_directory(groups.back(), directory + "/counters", CW_COUNTER_PORT, 0, next_id);
    groups.emplace_back(dev_index, port, CW_COUNTER_HW);
    add_directory(groups.back(), directory + "/hw_counters", CW_COUNTER_HW, 0, next_id);
    if (netdev.empty())
        return groups;
    const auto described = read_netdev(root, netdev);
    groups.emplace_back(dev_index, port, CW_COUNTER_NETDEV);
    CounterGroup &group = groups.back();
    const std::string net = root + "/sys/class/net/";
    add_directory(group, net + netdev + "/statistics", CW_COUNTER_NETDEV,
                  described ? described->type : 0, next_id);
    for (const std::string_view counter : carrier_counters)
        group.add(net + netdev + "/" + std::string(counter), counter, CW_UNIT_EVENTS, next_id);
    if (described) {
        for (const std::string &slave : described->slaves) {
            for (const std::string_view counter : carrier_counters)
                group.add(net + slave + "/" + std::string(counter),
                          slave + ":" + std::string(counter), CW_UNIT_EVENTS, next_id);
        }
    }
    return groups;
}

} // namespace collwire::inventory
