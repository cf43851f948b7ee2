// SPDX-License-Identifier: Apache-2.0
// How long each device was busy with NCCL's kernels, with other kernels, and with both, in windows
// of 10 ms. A window is a row of bits of 1 us for each of the two: kernels arrive in any order and
// overlap, and a bit is set once.
#pragma once

#include "collwire/gpu_records.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace collwire::cupti {

class Windows {
public:
    static constexpr uint64_t WINDOW_NS = 10'000'000;
    static constexpr uint64_t BIT_NS = 1'000;
    static constexpr size_t KEPT = 256; // 2.56 s
    static constexpr size_t DEVICES = 16;

    // Memory for the windows, all empty. False: the system has none.
    bool take();

    // Nothing may be in add().
    void give_back();
    static size_t bytes();

    // Called in CUPTI's callbacks: no lock, no allocation. Times: CLOCK_MONOTONIC.
    void add(uint32_t device, uint64_t start_ns, uint64_t end_ns, bool is_nccl);

    // Hands over the windows that ended before `until_ns`. For the one thread that holds the
    // control lock.
    void hand_over_until(uint64_t until_ns);

    // Kernels of devices beyond DEVICES, and those that ended before the oldest window that is
    // kept: in no window.
    uint64_t not_summed() const { return not_summed_.load(std::memory_order_relaxed); }

private:
    static constexpr size_t WORDS = (WINDOW_NS / BIT_NS + 63) / 64;

    struct Window {
        std::atomic<uint64_t> bits[2][WORDS];
        std::atomic<uint32_t> started[2];
    };

    struct Device {
        Window windows[KEPT];
        std::atomic<uint32_t> is_used;
    };

    static void mark(std::atomic<uint64_t> *bits, uint64_t first, uint64_t last);
    static uint64_t count_and_clear(Window &window, cw_gpu_window_item &item);

    std::atomic<Device *> devices_ = nullptr;
    std::atomic<uint64_t> oldest_ = 0; // number of the oldest window that is not handed over
    std::atomic<uint64_t> not_summed_ = 0;
};

} // namespace collwire::cupti
