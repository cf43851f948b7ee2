// SPDX-License-Identifier: Apache-2.0
// A made-up machine for the sources that read files of the system, and what they write.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "collwire/port_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "tests/unit/inventory_tree.h"
#include "userspace/sources/counters_source.h"
#include "userspace/sources/inventory_source.h"

namespace collwire::test {

class Records : public source::RecordSink {
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
    [[nodiscard]] inventory::NetlinkFacts facts() const {
        inventory::NetlinkFacts facts;
        facts.devices["rxe0"].name = "rxe0";
        facts.devices["rxe0"].dev_index = dev_index_;
        return facts;
    }
    [[nodiscard]] sources::InventoryOptions inventory() const {
        return {tree_.root(), {}, [this] { return facts(); }};
    }
    [[nodiscard]] sources::CountersOptions counters() const {
        sources::CountersOptions options;
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

} // namespace collwire::test
