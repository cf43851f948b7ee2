// SPDX-License-Identifier: Apache-2.0
// The memory for CUPTI's records: taken in one piece when a trace starts, given back when it ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace collwire::cupti {

class Buffers {
public:
    static constexpr size_t BUFFER_BYTES = size_t{512} * 1024;
    static constexpr size_t COUNT = 64;

    // False: the system has no memory for it.
    bool take();

    // Unmaps the memory if CUPTI holds none of it. False: it does, and everything stays.
    bool give_back();

    // A free buffer, or null. Without a lock: called in CUPTI's callbacks.
    uint8_t *lend();
    void return_buffer(const uint8_t *buffer);

    bool is_own(const uint8_t *buffer) const;

    // For a CUPTI that cannot do without a buffer. What it writes there is never read: it may get
    // the same memory again before it returned it.
    uint8_t *lend_waste();
    bool is_waste(const uint8_t *buffer) const;
    static constexpr size_t WASTE_BYTES = 4096;

    size_t lent() const { return lent_.load(std::memory_order_relaxed); }
    uint64_t lacking() const { return lacking_.load(std::memory_order_relaxed); }
    size_t bytes() const {
        return memory_.load(std::memory_order_relaxed) ? BUFFER_BYTES * COUNT : 0;
    }

private:
    static constexpr size_t WASTE_COUNT = 16;

    std::atomic<uint8_t *> memory_ = nullptr;
    std::atomic<uint64_t> is_lent_ = 0; // a bit for each
    std::atomic<size_t> lent_ = 0;
    std::atomic<uint64_t> lacking_ = 0, wasted_ = 0;
    alignas(8) uint8_t waste_[WASTE_BYTES * WASTE_COUNT] = {};
};

} // namespace collwire::cupti
