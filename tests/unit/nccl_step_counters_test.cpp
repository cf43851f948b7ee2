// SPDX-License-Identifier: Apache-2.0
// Counts of steps out of the memory of this process, laid out as no NCCL has them.
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collwire/nccl_connection_records.h"
#include "userspace/nccl/memory/step_counters.h"

namespace collwire::nccl::test {
namespace {

struct Args {
    std::array<std::uint64_t, 3> subs{};
    std::int32_t state = 0, after = -1;
};
struct Resources {
    std::uint64_t net_comm = 0x4e7, step = 0;
};
struct Connection {
    std::int32_t send = 1;
    Resources *resources = nullptr;
    const Args *append = nullptr;
    const Args *const *append_at = nullptr;
};
constexpr std::uint32_t STATE = offsetof(Args, state);

class StepCounters : public testing::Test {
protected:
    void SetUp() override {
        std::memset(&bpf_layout_, 0xff, sizeof(bpf_layout_)); // nothing is known of it
        bpf_layout_.connection_resources = offsetof(Connection, resources);
        bpf_layout_.connection_append = offsetof(Connection, append_at);
        bpf_layout_.send_net_comm = bpf_layout_.recv_net_comm = offsetof(Resources, net_comm);
        bpf_layout_.send_step = offsetof(Resources, step);
        connection_.resources = &resources_;
        connection_.append_at = &connection_.append;
    }

    [[nodiscard]] static cw_nccl_connection record_of(const Connection &connection,
                                                      std::uint32_t flags) {
        cw_nccl_connection record = {};
        record.connection = reinterpret_cast<std::uint64_t>(&connection);
        record.net_comm = 0x4e7;
        record.transport = CW_NCCL_TRANSPORT_SOCKET;
        record.flags = CW_NCCL_CONNECTION_SEND | flags;
        return record;
    }
    [[nodiscard]] std::optional<StepCounter> find(std::uint32_t flags = 0) const {
        return find_step_counter(process_, bpf_layout_, record_of(connection_, flags));
    }
    [[nodiscard]] std::optional<StepReading> read(const StepCounter &counter,
                                                  std::uint32_t state_offset = STATE) const {
        return read_step_counters(process_, {{counter}}, state_offset).at(0);
    }

    process::ProcessView process_{getpid()};
    cw_nccl_layout bpf_layout_;
    Resources resources_;
    Connection connection_;
    Args args_;
};

TEST_F(StepCounters, AreIdleWaitingOrBusy) {
    const auto counter = find();
    ASSERT_TRUE(counter);
    resources_.step = 12;
    auto reading = read(*counter);
    ASSERT_TRUE(reading);
    EXPECT_EQ(reading->steps, 12U);
    EXPECT_TRUE(reading->is_idle);
    EXPECT_FALSE(reading->is_busy);
    connection_.append = &args_;
    args_.state = 1; // ready
    reading = read(*counter);
    EXPECT_FALSE(reading->is_idle);
    EXPECT_FALSE(reading->is_busy);
    args_.state = 2; // in progress
    EXPECT_TRUE(read(*counter)->is_busy);
    EXPECT_FALSE(read(*counter, CW_NCCL_NO_FIELD)->is_busy) << "where steps are counted at the end";
    connection_.append = reinterpret_cast<const Args *>(8);
    EXPECT_FALSE(read(*counter)->is_busy);
}

TEST_F(StepCounters, WhatWasGivenMayBeAnotherConnections) {
    const auto counter = find(CW_NCCL_CONNECTION_SHARED);
    ASSERT_TRUE(counter);
    connection_.append = &args_;
    args_.state = 2;
    const auto reading = read(*counter);
    ASSERT_TRUE(reading);
    EXPECT_FALSE(reading->is_idle);
    EXPECT_FALSE(reading->is_busy);
}

TEST_F(StepCounters, ConnectionsThatChangedHaveNoReading) {
    const auto counter = find();
    ASSERT_TRUE(counter);
    resources_.net_comm = 0x4e8;
    EXPECT_FALSE(read(*counter));
    resources_.net_comm = 0x4e7;
    Resources other;
    connection_.resources = &other;
    EXPECT_FALSE(read(*counter));
}

TEST_F(StepCounters, UnconnectedAndLocalConnectionsHaveNoCounter) {
    connection_.append_at = nullptr;
    EXPECT_FALSE(find());
    connection_.append_at = &connection_.append;
    connection_.resources = nullptr;
    EXPECT_FALSE(find());
    connection_.resources = &resources_;
    auto local = record_of(connection_, 0);
    local.transport = CW_NCCL_TRANSPORT_LOCAL;
    EXPECT_FALSE(find_step_counter(process_, bpf_layout_, local));
    bpf_layout_.send_step = CW_NCCL_NO_FIELD;
    EXPECT_FALSE(find());
}

// More than are read at once, and one in the middle whose memory is gone.
TEST_F(StepCounters, ManyConnectionsAreRead) {
    constexpr std::size_t N = 700, GONE = 300;
    std::vector<Resources> resources(N);
    std::vector<Connection> connections(N);
    const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void *page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    std::vector<StepCounter> counters;
    for (std::size_t i = 0; i < N; ++i) {
        resources[i].step = i;
        connections[i] = {1, &resources[i], i % 2 == 0 ? &args_ : nullptr, nullptr};
        connections[i].append_at = &connections[i].append;
        if (i == GONE) {
            connections[i].resources = static_cast<Resources *>(page);
            *connections[i].resources = resources[i];
        }
        const auto counter = find_step_counter(process_, bpf_layout_, record_of(connections[i], 0));
        ASSERT_TRUE(counter);
        counters.push_back(*counter);
    }
    args_.state = 2;
    ASSERT_EQ(munmap(page, bytes), 0);
    const auto readings = read_step_counters(process_, counters, STATE);
    ASSERT_EQ(readings.size(), N);
    for (std::size_t i = 0; i < N; ++i) {
        ASSERT_EQ(readings[i].has_value(), i != GONE) << i;
        if (i == GONE)
            continue;
        EXPECT_EQ(readings[i]->steps, i);
        EXPECT_EQ(readings[i]->is_idle, i % 2 == 1);
        EXPECT_EQ(readings[i]->is_busy, i % 2 == 0);
    }
}

} // namespace
} // namespace collwire::nccl::test
