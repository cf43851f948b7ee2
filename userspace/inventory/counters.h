// SPDX-License-Identifier: Apache-2.0
// The cumulative counters of ports and network devices in sysfs. Files stay open and are read again
// with pread. An unreadable counter is absent, never 0.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collwire/port_records.h"

namespace collwire::inventory {

// The unit of a counter, by its name; CW_UNIT_UNKNOWN if neither its name nor its documentation
// gives one (Documentation/ABI/stable/sysfs-class-infiniband, drivers' own lists).
cw_counter_unit counter_unit(cw_counter_source source, std::string_view name,
                             std::uint32_t netdev_type);

// The limit of a counter of .../ports/N/counters: the fields of the InfiniBand PortCounters
// attribute are narrow and do not wrap (IBA 16.1.3.5). 0: 64 bits. The data and packet counters
// have 64 bits wherever the extended attribute exists.
std::uint64_t saturation_limit(std::string_view name);

// The counters of one directory, read together. Move-only: it owns the open files.
class CounterGroup {
public:
    CounterGroup(std::uint32_t dev_index, std::uint32_t port, cw_counter_source source);
    CounterGroup(CounterGroup &&other) noexcept;
    CounterGroup &operator=(CounterGroup &&) = delete;
    CounterGroup(const CounterGroup &) = delete;
    CounterGroup &operator=(const CounterGroup &) = delete;
    ~CounterGroup();

    // Opens the counter if it can be read now; next_id gives it its number and goes on. It stays
    // open: each counter takes a file descriptor.
    void add(const std::string &path, std::string_view name, cw_counter_unit unit,
             std::uint32_t &next_id);
    [[nodiscard]] const std::vector<cw_counter_def> &definitions() const { return definitions_; }
    [[nodiscard]] bool empty() const { return open_.empty(); }
    // Files and directories that failed to open because of too many open files.
    [[nodiscard]] std::size_t n_refused() const { return n_refused_; }
    void note_refused() { ++n_refused_; }

    // Reads every counter. One that fails is closed: its series has ended.
    void read(std::vector<cw_counter_sample> &samples);
    [[nodiscard]] bool any_ended() const { return !ended_.empty(); }
    // Reopens ended counters that can be read now (after a device was recreated or reset): new
    // series, new numbers. True: there are new definitions.
    bool reopen(std::uint32_t &next_id);
    // Names of legacy counters that were at their limit at the last read.
    [[nodiscard]] const std::vector<std::string> &saturated() const { return saturated_; }

private:
    struct Open {
        int file;
        std::uint32_t id;
        std::uint64_t limit; // 0: none
        std::string name;
        std::string path;
    };
    std::uint32_t dev_index_;
    std::uint32_t port_;
    cw_counter_source source_;
    std::vector<cw_counter_def> definitions_; // of all opened counters without a later series
    std::vector<Open> open_;
    std::vector<Open> ended_; // without a file
    std::vector<std::string> saturated_;
    std::size_t n_refused_ = 0;
};

// The groups of a port: its counters, its hw_counters, and those of its netdev (empty: none). The
// slaves of a bond add their carrier counters as "SLAVE:carrier_changes". Groups may be empty.
std::vector<CounterGroup> open_port_counters(const std::string &root, const std::string &device,
                                             std::uint32_t dev_index, std::uint32_t port,
                                             const std::string &netdev, std::uint32_t &next_id);

} // namespace collwire::inventory
