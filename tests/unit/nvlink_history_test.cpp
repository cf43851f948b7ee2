// SPDX-License-Identifier: Apache-2.0
// Counters of NVLinks over time, and modelled bytes against them.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "correlate/gpu/nvlink_failure.h"
#include "correlate/gpu/nvlink_history.h"
#include "correlate/gpu/reconcile_nvlink.h"

namespace collwire::gpu {
namespace {

constexpr std::uint64_t S = 1'000'000'000, MS = 1'000'000;
constexpr std::uint16_t ALL = CW_NVLINK_ALL_LINKS, U32 = 1, U64 = 3, DOUBLE = 0;
constexpr std::uint16_t DATA_TX = 138, DATA_RX = 139, RAW_TX = 140, RAW_RX = 141, RECOVERY = 162,
                        XMIT = 202, RCV = 204, RECOVERIES_5 = 215;
constexpr std::uint16_t NOT_SUPPORTED = 3;

class Recorded {
public:
    Recorded &sample(std::uint64_t time_ns, std::vector<cw_nvlink_value> values,
                     std::uint32_t epoch = 1) {
        cw_nvlink_sample head{};
        head.header.time_ns = time_ns;
        head.read_begin_ns = time_ns - MS;
        head.epoch = epoch;
        history.add(head, values);
        return *this;
    }
    NvlinkHistory history;
};

cw_nvlink_value value(std::uint16_t field, std::uint16_t link, std::uint64_t number,
                      std::uint16_t type = U64) {
    return {field, link, type, 0, number};
}
cw_nvlink_value refused(std::uint16_t field, std::uint16_t link) {
    return {field, link, 0, NOT_SUPPORTED, 0};
}

TEST(NvlinkCounter, AWrapIsNoRestart) {
    NvlinkCounter counter;
    counter.add(0xfffffff0, true, 1);
    const auto step = counter.add(0x10, true, 1);
    EXPECT_EQ(step.delta, 0x20U);
    EXPECT_FALSE(step.is_restart);
    EXPECT_EQ(counter.wraps(), 1U);
    EXPECT_EQ(counter.restarts(), 0U);
}

TEST(NvlinkCounter, ADecreaseIsARestartUnlessAWrapIsPossible) {
    NvlinkCounter wide, low, reloaded;
    wide.add(0xfffffff0, false, 1); // 64 bits
    EXPECT_TRUE(wide.add(0x10, false, 1).is_restart);
    EXPECT_EQ(wide.increase(), 0x10U);
    low.add(1000, true, 1);
    EXPECT_TRUE(low.add(10, true, 1).is_restart);
    EXPECT_EQ(low.increase(), 10U);
    reloaded.add(0xfffffff0, true, 1);
    EXPECT_TRUE(reloaded.add(0x10, true, 2).is_restart); // NVML was started again
}

TEST(NvlinkHistory, PayloadIsPreferredAndInBytes) {
    Recorded of;
    of.sample(1 * S, {value(DATA_TX, ALL, 100), value(DATA_RX, ALL, 10), value(RAW_TX, ALL, 130),
                      value(RAW_RX, ALL, 13)})
        .sample(2 * S, {value(DATA_TX, ALL, 103), value(RAW_TX, ALL, 134)});
    ASSERT_TRUE(of.history.byte_source());
    EXPECT_EQ(of.history.byte_source()->extent, NvlinkExtent::Payload);
    ASSERT_EQ(of.history.readings().size(), 2U);
    EXPECT_EQ(of.history.readings()[0].tx_bytes, 0U);
    EXPECT_EQ(of.history.readings()[1].tx_bytes, 3U * 1024);
    EXPECT_EQ(of.history.readings()[1].rx_bytes, 0U); // unchanged, so it was left out
    EXPECT_FALSE(of.history.readings()[1].is_lower_bound);
}

TEST(NvlinkHistory, RawAndNvLink5AreLabelled) {
    Recorded raw, fifth;
    raw.sample(1 * S, {refused(DATA_TX, ALL), refused(DATA_RX, ALL), value(RAW_TX, ALL, 1),
                       value(RAW_RX, ALL, 1)});
    EXPECT_EQ(raw.history.byte_source()->extent, NvlinkExtent::WithOverhead);
    fifth
        .sample(1 * S, {refused(DATA_TX, ALL), refused(RAW_TX, ALL), value(XMIT, 0, 100),
                        value(RCV, 0, 1), value(XMIT, 1, 1000), value(RCV, 1, 1)})
        .sample(2 * S, {value(XMIT, 0, 107), value(XMIT, 1, 1011)});
    EXPECT_EQ(fifth.history.byte_source()->extent, NvlinkExtent::Undocumented);
    EXPECT_EQ(fifth.history.readings()[1].tx_bytes, 18U);
}

TEST(NvlinkHistory, AbsentIsNotZero) {
    Recorded none, of_double, later;
    none.sample(1 * S, {refused(DATA_TX, ALL), refused(DATA_RX, ALL)});
    EXPECT_FALSE(none.history.byte_source());
    EXPECT_TRUE(none.history.readings().empty());
    EXPECT_EQ(none.history.answer(DATA_TX, ALL)->result, NOT_SUPPORTED);
    of_double.sample(1 * S, {value(DATA_TX, ALL, 5, DOUBLE), value(DATA_RX, ALL, 5, DOUBLE)});
    EXPECT_FALSE(of_double.history.byte_source()) << "a type that no counter has";
    later.sample(1 * S, {refused(DATA_TX, ALL), refused(DATA_RX, ALL)})
        .sample(2 * S, {value(DATA_TX, ALL, 7), value(DATA_RX, ALL, 7)})
        .sample(3 * S, {value(DATA_TX, ALL, 8)});
    ASSERT_EQ(later.history.readings().size(), 2U);
    EXPECT_EQ(later.history.readings()[0].tx_bytes, 0U);
    EXPECT_EQ(later.history.readings()[1].tx_bytes, 1024U);
}

TEST(NvlinkHistory, ALinkThatIsNotMeasuredMakesTheSumUnknownNotSmaller) {
    Recorded of;
    of.sample(1 * S, {value(XMIT, 0, 10), value(RCV, 0, 0), value(XMIT, 1, 10), value(RCV, 1, 0)})
        .sample(2 * S, {value(XMIT, 0, 20), refused(XMIT, 1), refused(RCV, 1)})
        .sample(3 * S, {value(XMIT, 0, 30), value(XMIT, 1, 40), value(RCV, 1, 0)});
    ASSERT_EQ(of.history.readings().size(), 2U);
    EXPECT_EQ(of.history.readings()[1].time_ns, 3 * S);
    EXPECT_EQ(of.history.readings()[1].tx_bytes, 20U + 30U);
}

TEST(NvlinkHistory, ARestartMakesALowerBound) {
    Recorded of;
    of.sample(1 * S, {value(DATA_TX, ALL, 1000), value(DATA_RX, ALL, 0)})
        .sample(2 * S, {value(DATA_TX, ALL, 2)}, 2)
        .sample(3 * S, {value(DATA_TX, ALL, 3)}, 2);
    EXPECT_TRUE(of.history.readings()[1].is_lower_bound);
    EXPECT_EQ(of.history.readings()[1].tx_bytes, 2U * 1024);
    EXPECT_FALSE(of.history.readings()[2].is_lower_bound);
}

TEST(NvlinkHistory, OldSamplesChangeNothing) {
    Recorded of;
    of.sample(2 * S, {value(DATA_TX, ALL, 5), value(DATA_RX, ALL, 5)})
        .sample(2 * S, {value(DATA_TX, ALL, 9)})
        .sample(1 * S, {value(DATA_TX, ALL, 9)});
    EXPECT_EQ(of.history.samples(), 1U);
    EXPECT_EQ(of.history.value(DATA_TX, ALL), 5U);
}

TEST(NvlinkHistory, RecoveriesRiseByLink) {
    Recorded of;
    of.sample(0 * S + MS, {value(RECOVERY, 3, 100, U32), value(RECOVERIES_5, 3, 0)});
    std::uint64_t now = 100;
    for (std::uint64_t i = 1; i <= 60; ++i)
        of.sample(i * S, {value(RECOVERY, 3, now += i > 40 ? 5 : 0, U32)});
    const auto &counter = of.history.link_counters().at({3, RECOVERY});
    EXPECT_EQ(counter.counter.increase(), 100U);
    const auto parts =
        nvlink_trend(counter.growths, of.history.first_ns(), of.history.last_ns(), 6);
    EXPECT_EQ(parts, (std::vector<std::uint64_t>{0, 0, 0, 0, 50, 50}));
    EXPECT_TRUE(is_rising(parts));
    EXPECT_FALSE(is_rising(std::vector<std::uint64_t>{50, 50, 0, 0, 0, 0}));
    EXPECT_FALSE(is_rising(std::vector<std::uint64_t>{10, 10, 10, 10, 10, 10}));
    EXPECT_FALSE(is_rising(std::vector<std::uint64_t>{0, 0, 0, 0, 0, 2}));
}

TEST(NvlinkHistory, GrowthsThatAreAddedUpLoseNone) {
    Recorded of;
    for (std::uint64_t i = 0; i <= 5000; ++i)
        of.sample((i + 1) * S, {value(RECOVERY, 0, i)});
    const auto &counter = of.history.link_counters().at({0, RECOVERY});
    EXPECT_LE(counter.growths.size(), NvlinkHistory::MAX_GROWTHS + 1);
    std::uint64_t sum = 0;
    for (const NvlinkGrowth &growth : counter.growths)
        sum += growth.delta;
    EXPECT_EQ(sum, 5000U);
}

// ---- reconciliation

// A GPU that moves bytes evenly from an operation's begin to its end, and is read once a second.
struct Simulated {
    std::vector<ModelledTransfer> transfers;
    std::vector<NvlinkReading> readings;

    void read(std::uint64_t end_ns, std::uint64_t interval_ns, std::uint64_t unit) {
        std::uint64_t before = 0;
        for (std::uint64_t at = 0; at <= end_ns; at += interval_ns) {
            std::uint64_t now = 0;
            for (const ModelledTransfer &transfer : transfers)
                now += moved_by(transfer, at);
            const std::uint64_t counted = now / unit * unit;
            readings.push_back({at, at + MS / 10, at == 0 ? 0 : counted - before, 0, false});
            before = counted;
        }
    }
    static std::uint64_t moved_by(const ModelledTransfer &of, std::uint64_t at) {
        if (at <= of.begin_ns)
            return 0;
        if (at >= of.end_ns)
            return of.tx_bytes;
        return static_cast<std::uint64_t>(static_cast<double>(of.tx_bytes) *
                                          static_cast<double>(at - of.begin_ns) /
                                          static_cast<double>(of.end_ns - of.begin_ns));
    }
};

TEST(ReconcileNvlink, WindowsGrowToIdleEdgesAndAreExactThere) {
    Simulated gpu;
    // 300 ms of every 700: some operations run while the counter is read, some do not.
    for (std::uint64_t at = 100 * MS; at < 60 * S; at += 700 * MS)
        gpu.transfers.push_back({at, at + 300 * MS, 50'000'000, 0});
    gpu.read(62 * S, S, 1024);
    const auto windows = reconcile_nvlink(gpu.readings, gpu.transfers, {.step_bytes = 1024});
    const NvlinkTotals total = total_of(windows);
    EXPECT_GT(total.windows, 10U);
    EXPECT_EQ(total.idle_edges, total.windows);
    EXPECT_EQ(total.within_bound, total.windows);
    EXPECT_EQ(total.modelled_tx_bytes, std::uint64_t{86} * 50'000'000);
    for (const NvlinkWindow &window : windows) {
        EXPECT_EQ(window.bound_tx_bytes, 1024U);
        EXPECT_LE(std::abs(window.unexplained_tx_bytes()), 1024);
    }
}

TEST(ReconcileNvlink, TrafficWithoutAPauseIsDividedByTimeWithinItsBound) {
    Simulated gpu;
    for (std::uint64_t at = 50 * MS; at < 60 * S; at += 390 * MS)
        gpu.transfers.push_back({at, at + 400 * MS, 40'000'000, 0});
    gpu.read(61 * S, S, 1);
    const auto windows = reconcile_nvlink(gpu.readings, gpu.transfers, {.most_window_ns = 5 * S});
    const NvlinkTotals total = total_of(windows);
    EXPECT_GT(total.windows, 5U);
    EXPECT_LT(total.idle_edges, total.windows);
    EXPECT_EQ(total.within_bound, total.windows);
    for (const NvlinkWindow &window : windows) {
        // Divided by time it is far better than its bound.
        EXPECT_LE(std::abs(window.unexplained_tx_bytes()),
                  static_cast<std::int64_t>(window.measured_tx_bytes / 100));
        EXPECT_LE(window.bound_tx_bytes, 4U * 40'000'000);
    }
}

TEST(ReconcileNvlink, BytesThatNobodyModelledAreUnexplained) {
    Simulated gpu;
    gpu.transfers.push_back({300 * MS, 500 * MS, 1'000'000, 0});
    gpu.transfers.push_back({2300 * MS, 2500 * MS, 3'000'000, 0});
    gpu.read(4 * S, S, 1);
    gpu.transfers.pop_back();
    const auto windows = reconcile_nvlink(gpu.readings, gpu.transfers);
    ASSERT_EQ(windows.size(), 4U);
    EXPECT_EQ(windows[0].unexplained_tx_bytes(), 0);
    EXPECT_EQ(windows[2].unexplained_tx_bytes(), 3'000'000);
    EXPECT_EQ(total_of(windows).within_bound, 3U);
    gpu.transfers.push_back({3300 * MS, 3500 * MS, 2'000'000, 0}); // modelled, and never moved
    EXPECT_EQ(reconcile_nvlink(gpu.readings, gpu.transfers)[3].unexplained_tx_bytes(), -2'000'000);
}

TEST(ReconcileNvlink, WhatMovedBeforeTheFirstReadingIsInNoWindow) {
    Simulated gpu;
    gpu.transfers.push_back({1100 * MS, 1200 * MS, 1'000'000, 0});
    gpu.read(4 * S, S, 1);
    gpu.readings.erase(gpu.readings.begin(), gpu.readings.begin() + 2);
    const auto windows = reconcile_nvlink(gpu.readings, gpu.transfers);
    EXPECT_EQ(total_of(windows).modelled_tx_bytes, 0U);
}

TEST(ReconcileNvlink, AnyTrafficStaysWithinItsBound) {
    std::mt19937 random(7);
    for (int round = 0; round < 200; ++round) {
        Simulated gpu;
        const std::uint64_t n = 1 + random() % 200;
        for (std::uint64_t i = 0; i < n; ++i) {
            const std::uint64_t at = random() % (20 * S / MS) * MS;
            gpu.transfers.push_back(
                {at, at + random() % 3000 * MS, 1'000 + random() % 1'000'000, 0});
        }
        gpu.read(24 * S, S, 1);
        const auto windows = reconcile_nvlink(gpu.readings, gpu.transfers,
                                              {.most_window_ns = 4 * S, .step_bytes = 2 * n});
        EXPECT_EQ(total_of(windows).within_bound, windows.size());
        std::uint64_t all = 0;
        for (const ModelledTransfer &transfer : gpu.transfers)
            all += transfer.tx_bytes;
        EXPECT_NEAR(static_cast<double>(total_of(windows).modelled_tx_bytes),
                    static_cast<double>(all), static_cast<double>(20 * n));
    }
}

// ---- failures

NvlinkError error_of(std::uint32_t xid, std::uint64_t bus, std::uint64_t time_ns,
                     std::uint64_t sequence, std::uint32_t host = 0) {
    NvlinkError error;
    error.xid = xid;
    error.bus_id = bus;
    error.latest_ns = time_ns;
    error.earliest_ns = time_ns - 50 * MS;
    error.sequence = sequence;
    error.host = host;
    error.is_fatal = true;
    return error;
}

TEST(NvlinkFailure, TheLinkIsTheCauseWheneverItsLineComes) {
    std::vector<NvlinkError> errors;
    for (std::uint32_t host = 0; host < 16; ++host)
        for (std::uint64_t gpu = 0; gpu < 4; ++gpu)
            errors.push_back(error_of(host == 7 && gpu == 2 ? 149 : 145, gpu, 100 * S + host * MS,
                                      10 + gpu, host));
    errors[7 * 4 + 2].latest_ns += 200 * MS;
    errors[7 * 4 + 2].link = 11;
    const auto failures = find_nvlink_failures(errors, 60 * S);
    ASSERT_EQ(failures.size(), 1U);
    EXPECT_EQ(failures[0].cause, NvlinkCause::Known);
    EXPECT_EQ(failures[0].first, 7U * 4 + 2);
    EXPECT_EQ(failures[0].gpus, 64U);
    EXPECT_EQ(failures[0].errors.size(), 64U);
}

TEST(NvlinkFailure, OnOneHostTheOrderOfTheLogDecidesBetweenHostsTheTimesDo) {
    std::vector<NvlinkError> errors{error_of(149, 1, 10 * S, 5), error_of(149, 2, 10 * S, 6)};
    EXPECT_EQ(find_nvlink_failures(errors, S)[0].cause, NvlinkCause::Known);
    EXPECT_EQ(find_nvlink_failures(errors, S)[0].first, 0U);
    errors[1].host = 1;
    const auto several = find_nvlink_failures(errors, S);
    EXPECT_EQ(several[0].cause, NvlinkCause::Several);
    EXPECT_EQ(several[0].others, (std::vector<std::size_t>{1}));
    errors[1].latest_ns += 500 * MS;
    errors[1].earliest_ns += 500 * MS;
    EXPECT_EQ(find_nvlink_failures(errors, S)[0].cause, NvlinkCause::Known);
}

TEST(NvlinkFailure, PeersAloneDoNotNameTheCause) {
    const std::vector<NvlinkError> errors{error_of(145, 1, 10 * S, 5), error_of(145, 2, 10 * S, 6)};
    const auto failures = find_nvlink_failures(errors, S);
    ASSERT_EQ(failures.size(), 1U);
    EXPECT_EQ(failures[0].cause, NvlinkCause::NotCaptured);
}

TEST(NvlinkFailure, NonfatalErrorsAreNone) {
    std::vector<NvlinkError> errors{error_of(145, 1, 10 * S, 5)};
    errors[0].is_fatal = false;
    errors[0].is_nonfatal = true;
    EXPECT_TRUE(find_nvlink_failures(errors, S).empty());
    EXPECT_TRUE(find_nvlink_failures(std::vector{error_of(31, 1, 10 * S, 5)}, S).empty());
}

TEST(NvlinkFailure, WhatTheDriverBlamesOnAnotherFollows) {
    std::vector<NvlinkError> errors{error_of(45, 1, 10 * S, 4), error_of(74, 1, 10 * S, 5)};
    errors[0].caused_by = 74;
    const auto failures = find_nvlink_failures(errors, S);
    EXPECT_EQ(failures[0].first, 1U);
    EXPECT_EQ(failures[0].gpus, 1U);
}

TEST(NvlinkFailure, FailuresFarApartAreTwo) {
    EXPECT_EQ(find_nvlink_failures(
                  std::vector{error_of(149, 1, 10 * S, 4), error_of(149, 1, 100 * S, 5)}, 60 * S)
                  .size(),
              2U);
}

} // namespace
} // namespace collwire::gpu
