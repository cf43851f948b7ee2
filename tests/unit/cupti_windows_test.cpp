// SPDX-License-Identifier: Apache-2.0
#include "cupti/windows.h"

#include "cupti/clock.h"
#include "cupti_received.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace collwire::cupti {
namespace {

constexpr uint64_t WINDOW_NS = Windows::WINDOW_NS;

class CuptiWindows : public testing::Test {
protected:
    void SetUp() override {
        take_received();
        ASSERT_TRUE(windows_.take());
        // The next window: the oldest one is that of now.
        begin_ns_ = (monotonic_ns() / WINDOW_NS + 1) * WINDOW_NS;
    }
    void TearDown() override { windows_.give_back(); }

    uint64_t at(uint64_t window, uint64_t ns = 0) const {
        return begin_ns_ + window * WINDOW_NS + ns;
    }

    Windows windows_;
    uint64_t begin_ns_ = 0;
};

struct Interval {
    uint64_t start_ns, end_ns;
    uint32_t device;
    bool is_nccl;
};

struct Sums {
    uint64_t busy_ns = 0, nccl_ns = 0, overlap_ns = 0;
    uint32_t kernels = 0, nccl_kernels = 0;
    bool operator==(const Sums &) const = default;
};

// Each microsecond by itself: what is true of it, of all intervals.
std::map<std::pair<uint16_t, uint64_t>, Sums> brute_force(const std::vector<Interval> &intervals,
                                                          uint64_t begin_ns, size_t windows) {
    const size_t us = windows * WINDOW_NS / 1'000;
    std::map<std::pair<uint16_t, uint64_t>, Sums> sums;
    for (uint16_t device = 0; device < Windows::DEVICES; ++device) {
        std::vector<uint8_t> classes(us);
        std::vector<Sums> of_device(windows);
        for (const Interval &interval : intervals) {
            if (interval.device != device)
                continue;
            const uint64_t first = (interval.start_ns - begin_ns + 500) / 1'000;
            const uint64_t last = (interval.end_ns - begin_ns + 500) / 1'000;
            for (uint64_t bit = first; bit < std::min<uint64_t>(last, us); ++bit)
                classes[bit] = static_cast<uint8_t>(classes[bit] | (interval.is_nccl ? 2 : 1));
            Sums &start = of_device[(interval.start_ns - begin_ns) / WINDOW_NS];
            ++(interval.is_nccl ? start.nccl_kernels : start.kernels);
        }
        for (size_t bit = 0; bit < us; ++bit) {
            Sums &window = of_device[bit * 1'000 / WINDOW_NS];
            window.busy_ns += classes[bit] & 1 ? 1'000 : 0;
            window.nccl_ns += classes[bit] & 2 ? 1'000 : 0;
            window.overlap_ns += classes[bit] == 3 ? 1'000 : 0;
        }
        for (size_t window = 0; window < windows; ++window)
            if (of_device[window] != Sums{})
                sums[{device, begin_ns + window * WINDOW_NS}] = of_device[window];
    }
    return sums;
}

std::map<std::pair<uint16_t, uint64_t>, Sums> handed_over() {
    std::map<std::pair<uint16_t, uint64_t>, Sums> sums;
    for (const cw_gpu_window_item &item : take_received().windows) {
        EXPECT_EQ(item.window_ns, WINDOW_NS);
        const bool is_new = sums.try_emplace({item.device, item.start_ns},
                                             Sums{item.busy_ns, item.nccl_ns, item.overlap_ns,
                                                  item.kernels, item.nccl_kernels})
                                .second;
        EXPECT_TRUE(is_new) << "device " << item.device << " window of " << item.start_ns;
    }
    return sums;
}

// In any order, from four threads: the sums are those of the union of all intervals of a class.
TEST_F(CuptiWindows, SumsAreThoseOfEachMicrosecondByItself) {
    constexpr size_t SUMMED = 40;
    for (const unsigned seed : {1U, 2U, 3U}) {
        std::mt19937_64 random(seed);
        std::vector<Interval> intervals;
        constexpr uint64_t longest_ns[] = {900, 40'000, 3'000'000, 60'000'000};
        for (int i = 0; i < 1'500; ++i) {
            const uint64_t start_ns = begin_ns_ + random() % (SUMMED * WINDOW_NS);
            const uint64_t took_ns = 1 + random() % longest_ns[random() % 4];
            intervals.push_back({start_ns, std::min(start_ns + took_ns, at(SUMMED)),
                                 static_cast<uint32_t>(random() % Windows::DEVICES),
                                 random() % 3 == 0});
        }
        // The edges of windows and of words of bits.
        for (const uint64_t edge_ns : {uint64_t{0}, WINDOW_NS, 3 * WINDOW_NS, uint64_t{64'000}})
            for (const uint64_t around_ns : {uint64_t{400}, uint64_t{500}, uint64_t{600}})
                intervals.push_back(
                    {at(2, edge_ns) - around_ns, at(2, edge_ns) + around_ns, 3, true});
        std::shuffle(intervals.begin(), intervals.end(), random);
        {
            std::vector<std::jthread> threads;
            for (size_t t = 0; t < 4; ++t)
                threads.emplace_back([&, t] {
                    for (size_t i = t; i < intervals.size(); i += 4)
                        windows_.add(intervals[i].device, intervals[i].start_ns,
                                     intervals[i].end_ns, intervals[i].is_nccl);
                });
        }
        windows_.hand_over_until(at(SUMMED));
        const auto expected = brute_force(intervals, begin_ns_, SUMMED);
        EXPECT_EQ(handed_over(), expected) << "seed " << seed;
        EXPECT_GT(expected.size(), SUMMED * 10);
        begin_ns_ = at(SUMMED);
    }
    EXPECT_EQ(windows_.not_summed(), 0U);
}

// Four threads set each a fourth of the same words: no microsecond is lost.
TEST_F(CuptiWindows, ThreadsLoseNoMicrosecondOfEachOther) {
    constexpr uint64_t SUMMED = 20;
    {
        std::vector<std::jthread> threads;
        for (uint64_t t = 0; t < 4; ++t)
            threads.emplace_back([&, t] {
                for (uint64_t us = t; us < SUMMED * WINDOW_NS / 1'000; us += 4)
                    windows_.add(0, at(0, us * 1'000), at(0, us * 1'000 + 1'000), false);
            });
    }
    windows_.hand_over_until(at(SUMMED));
    const auto sums = handed_over();
    EXPECT_EQ(sums.size(), SUMMED);
    for (const auto &[place, sum] : sums) {
        EXPECT_EQ(sum.busy_ns, WINDOW_NS);
        EXPECT_EQ(sum.kernels, WINDOW_NS / 1'000);
    }
}

TEST_F(CuptiWindows, EachIsHandedOverOnceAndOnlyAfterItsEnd) {
    windows_.add(0, at(1, 1'000), at(1, 6'000), false);
    windows_.add(0, at(4, 1'000), at(4, 8'000), true);
    windows_.hand_over_until(at(1, WINDOW_NS - 1));
    EXPECT_TRUE(handed_over().empty());
    windows_.hand_over_until(at(4));
    auto sums = handed_over();
    ASSERT_EQ(sums.size(), 1U);
    EXPECT_EQ((sums.at({0, at(1)})), (Sums{5'000, 0, 0, 1, 0}));
    windows_.hand_over_until(at(5));
    sums = handed_over();
    ASSERT_EQ(sums.size(), 1U);
    EXPECT_EQ((sums.at({0, at(4)})), (Sums{0, 7'000, 0, 0, 1}));
    windows_.hand_over_until(at(300));
    EXPECT_TRUE(handed_over().empty());
}

TEST_F(CuptiWindows, AKernelAfterItsWindowIsCountedAsNotSummed) {
    windows_.hand_over_until(at(10));
    windows_.add(0, at(8), at(9), false);
    EXPECT_EQ(windows_.not_summed(), 1U);
    windows_.add(0, at(9), at(10), false); // ends with the last window that was handed over
    EXPECT_EQ(windows_.not_summed(), 2U);
    // Of a longer one the rest: its start is handed over.
    windows_.add(0, at(8), at(10, 3'000), false);
    EXPECT_EQ(windows_.not_summed(), 2U);
    windows_.hand_over_until(at(20));
    const auto sums = handed_over();
    ASSERT_EQ(sums.size(), 1U);
    EXPECT_EQ((sums.at({0, at(10)})), (Sums{3'000, 0, 0, 0, 0}));
}

TEST_F(CuptiWindows, AKernelTooFarAheadIsCountedAsNotSummed) {
    windows_.hand_over_until(at(10));
    windows_.add(0, at(10), at(10 + Windows::KEPT), false);
    EXPECT_EQ(windows_.not_summed(), 0U);
    windows_.add(0, at(10), at(10 + Windows::KEPT) + 1, false);
    EXPECT_EQ(windows_.not_summed(), 1U);
    windows_.hand_over_until(at(10 + 2 * Windows::KEPT));
    const auto sums = handed_over();
    EXPECT_EQ(sums.size(), Windows::KEPT);
    for (const auto &[place, sum] : sums)
        EXPECT_EQ(sum.busy_ns, WINDOW_NS);
}

TEST_F(CuptiWindows, SixteenDevicesAreSummedAndTheNextIsCounted) {
    for (uint32_t device = 0; device <= Windows::DEVICES; ++device)
        windows_.add(device, at(1), at(1, uint64_t{1'000} * (device + 1)), device % 2 == 0);
    windows_.hand_over_until(at(2));
    const auto sums = handed_over();
    EXPECT_EQ(sums.size(), Windows::DEVICES);
    for (const auto &[place, sum] : sums)
        EXPECT_EQ(place.first % 2 == 0 ? sum.nccl_ns : sum.busy_ns, 1'000U * (place.first + 1U));
    EXPECT_EQ(windows_.not_summed(), 1U);
}

TEST_F(CuptiWindows, AHandOverHas64AtMost) {
    for (uint32_t device = 0; device < 5; ++device)
        for (uint64_t window = 0; window < 30; ++window)
            windows_.add(device, at(window), at(window, 5'000), true);
    windows_.hand_over_until(at(30));
    const Received received = take_received();
    EXPECT_EQ(received.windows.size(), 150U);
    ASSERT_EQ(received.batches.size(), 3U);
    EXPECT_EQ(received.batches[0].count, 64U);
    EXPECT_EQ(received.batches[2].count, 22U);
}

TEST_F(CuptiWindows, ANewTraceBeginsWithEmptyWindows) {
    windows_.add(0, at(1), at(2), true);
    ASSERT_TRUE(windows_.take()); // not given back: CUPTI held a buffer
    windows_.hand_over_until(at(200));
    EXPECT_TRUE(handed_over().empty());
    windows_.add(0, at(201), at(202), true);
    windows_.give_back();
    windows_.add(0, at(201), at(202), true); // without memory: nothing
    windows_.hand_over_until(at(210));
    ASSERT_TRUE(windows_.take());
    windows_.hand_over_until(at(250));
    EXPECT_TRUE(handed_over().empty());
}

TEST_F(CuptiWindows, KernelsWithoutAnEndAreInNone) {
    windows_.add(0, at(1), 0, true);
    windows_.add(0, at(2), at(1), true);
    windows_.hand_over_until(at(10));
    EXPECT_TRUE(handed_over().empty());
}

} // namespace
} // namespace collwire::cupti
