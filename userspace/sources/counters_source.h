// SPDX-License-Identifier: Apache-2.0
// Source "counters": what ports and their network devices count, and each change of a port's state.
// Nothing in the kernel: it works without privileges as far as sysfs allows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/record.h"
#include "userspace/inventory/counters.h"
#include "userspace/inventory/rdma_devices.h"
#include "userspace/source/record_buffer.h"
#include "userspace/source/source.h"

namespace collwire::sources {

struct CountersOptions {
    std::string root; // before every path; empty: the machine itself
    // On hardware each read is a firmware command: some reads a second are fine, 100 are not.
    std::uint64_t interval_ns = 1'000'000'000;
    std::function<inventory::NetlinkFacts()> netlink = inventory::read_netlink_facts;
    std::function<std::uint64_t()> clock; // CLOCK_MONOTONIC in ns; empty: the machine's
};

class CountersSource : public source::Source {
public:
    explicit CountersSource(CountersOptions options);

    [[nodiscard]] std::string_view name() const override { return "counters"; }
    Result<void> prepare() override;
    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const override { return {}; }
    Result<void> attach() override { return {}; }
    [[nodiscard]] std::vector<source::SourceState> states() const override;
    // An event of a port or its carrier: the ports are looked at again at the next sample. A device
    // that went away: another may have its name and its index by then.
    void on_record(const cw_header &record) override;
    // Writes nothing before the interval is over, unless everything is asked for or after detach.
    void sample(source::RecordSink &sink, bool everything) override;
    // Queue pairs are not counted any more when their probes are taken off, which takes a while.
    void end() override;
    void detach() override { last_sample_ = true; }

private:
    struct Port {
        inventory::RdmaDevice device; // without its ports
        cw_port record{};
        std::string netdev; // whose counters are open
        std::vector<inventory::CounterGroup> groups;
        std::string netdev_state; // what the netdev said at the last look
        unsigned looks_due = 0; // how many samples are to look at the port whatever the netdev says
        std::uint64_t next_look_ns = 0;
        bool port_written = false;
        bool definitions_written = false;
        std::uint64_t retry_ns = 0; // when its ended counters are tried again
        std::uint64_t retry_after_ns = 0;
    };

    void refresh();
    [[nodiscard]] bool refresh_is_due();
    [[nodiscard]] static bool is_of(const cw_carrier &edge, const Port &port);
    void reopen_ended(Port &port);
    [[nodiscard]] bool look_is_due(Port &port) const;
    void update_port(Port &port);
    void open_counters(Port &port);
    void write_port(source::RecordSink &sink, Port &port, bool everything);
    void write_samples(source::RecordSink &sink, inventory::CounterGroup &group);

    CountersOptions options_;
    inventory::NetlinkFacts facts_;
    std::vector<std::string> names_;
    std::vector<Port> ports_;
    bool device_gone_ = false;
    std::uint32_t next_id_ = 1;
    std::uint64_t due_ns_ = 0;
    bool last_sample_ = false;
    bool has_ended_ = false;
    source::RecordBuffer last_; // of the end
    std::vector<cw_counter_sample> samples_;
    std::vector<std::uint64_t> buffer_; // of one COUNTER_SAMPLES record
};

} // namespace collwire::sources
