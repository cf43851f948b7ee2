// SPDX-License-Identifier: Apache-2.0
#include "windows.h"

#include "clock.h"
#include "probes.h"

#include <bit>
#include <new>
#include <sys/mman.h>

namespace collwire::cupti {

size_t Windows::bytes() {
    return sizeof(Device) * DEVICES;
}

bool Windows::take() {
    const uint64_t oldest = monotonic_ns() / WINDOW_NS;
    if (Device *kept = devices_.load(std::memory_order_acquire)) {
        // CUPTI still held a buffer at the end of the last trace. Its pages become zeros again.
        madvise(kept, bytes(), MADV_DONTNEED);
        oldest_.store(oldest, std::memory_order_relaxed);
        return true;
    }
    // Zero-filled, and only the windows of devices that run kernels take memory.
    void *memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    madvise(memory, bytes(), MADV_DONTFORK);
    oldest_.store(oldest, std::memory_order_relaxed);
    devices_.store(static_cast<Device *>(memory), std::memory_order_release);
    return true;
}

void Windows::give_back() {
    Device *devices = devices_.exchange(nullptr, std::memory_order_acq_rel);
    if (devices)
        munmap(devices, bytes());
}

void Windows::mark(std::atomic<uint64_t> *bits, uint64_t first, uint64_t last) {
    for (uint64_t word = first / 64; word <= (last - 1) / 64; ++word) {
        uint64_t mask = ~uint64_t{0};
        if (word == first / 64)
            mask &= ~uint64_t{0} << first % 64;
        if (word == (last - 1) / 64 && last % 64 != 0)
            mask &= (uint64_t{1} << last % 64) - 1;
        bits[word].fetch_or(mask, std::memory_order_relaxed);
    }
}

void Windows::add(uint32_t device, uint64_t start_ns, uint64_t end_ns, bool is_nccl) {
    Device *devices = devices_.load(std::memory_order_acquire);
    if (!devices || end_ns <= start_ns)
        return;
    const uint64_t oldest = oldest_.load(std::memory_order_relaxed),
                   end_window = (end_ns - 1) / WINDOW_NS;
    if (device >= DEVICES || end_window < oldest || end_window >= oldest + KEPT) {
        not_summed_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    devices[device].is_used.store(1, std::memory_order_relaxed);
    const uint64_t start_window = start_ns / WINDOW_NS;
    if (start_window >= oldest)
        devices[device].windows[start_window % KEPT].started[is_nccl].fetch_add(
            1, std::memory_order_relaxed);
    for (uint64_t number = start_window < oldest ? oldest : start_window; number <= end_window;
         ++number) {
        const uint64_t window_ns = number * WINDOW_NS;
        // Rounded to the nearest bit: short kernels are neither always lost nor always a whole bit.
        const uint64_t first =
            start_ns <= window_ns ? 0 : (start_ns - window_ns + BIT_NS / 2) / BIT_NS;
        const uint64_t last = end_ns >= window_ns + WINDOW_NS
                                  ? WINDOW_NS / BIT_NS
                                  : (end_ns - window_ns + BIT_NS / 2) / BIT_NS;
        if (first < last)
            mark(devices[device].windows[number % KEPT].bits[is_nccl], first, last);
    }
}

uint64_t Windows::count_and_clear(Window &window, cw_gpu_window_item &item) {
    uint64_t others = 0, nccl = 0, both = 0;
    for (size_t word = 0; word < WORDS; ++word) {
        const uint64_t other_bits = window.bits[0][word].exchange(0, std::memory_order_relaxed);
        const uint64_t nccl_bits = window.bits[1][word].exchange(0, std::memory_order_relaxed);
        others += static_cast<uint64_t>(std::popcount(other_bits));
        nccl += static_cast<uint64_t>(std::popcount(nccl_bits));
        both += static_cast<uint64_t>(std::popcount(other_bits & nccl_bits));
    }
    item.busy_ns = others * BIT_NS;
    item.nccl_ns = nccl * BIT_NS;
    item.overlap_ns = both * BIT_NS;
    item.kernels = window.started[0].exchange(0, std::memory_order_relaxed);
    item.nccl_kernels = window.started[1].exchange(0, std::memory_order_relaxed);
    return others + nccl + item.kernels + item.nccl_kernels;
}

void Windows::hand_over_until(uint64_t until_ns) {
    Device *devices = devices_.load(std::memory_order_acquire);
    if (!devices)
        return;
    const uint64_t end = until_ns / WINDOW_NS;
    cw_gpu_window_item items[CW_GPU_BATCH_ITEMS];
    uint32_t count = 0;
    // Before the windows are read: a kernel that ends later is counted as not summed, and never
    // lands in a window of 2.56 s later.
    const uint64_t begin = oldest_.load(std::memory_order_relaxed);
    if (end <= begin)
        return;
    oldest_.store(end, std::memory_order_relaxed);
    const uint64_t last = end - begin > KEPT ? begin + KEPT : end;
    for (uint64_t number = begin; number < last; ++number)
        for (uint16_t device = 0; device < DEVICES; ++device) {
            if (devices[device].is_used.load(std::memory_order_relaxed) == 0)
                continue;
            cw_gpu_window_item &item = items[count];
            item = {};
            if (count_and_clear(devices[device].windows[number % KEPT], item) == 0)
                continue;
            item.start_ns = number * WINDOW_NS;
            item.window_ns = WINDOW_NS;
            item.device = device;
            if (++count == CW_GPU_BATCH_ITEMS) {
                cupti::hand_over(CW_GPU_ITEM_WINDOW, items, count);
                count = 0;
            }
        }
    if (count != 0)
        cupti::hand_over(CW_GPU_ITEM_WINDOW, items, count);
}

} // namespace collwire::cupti
