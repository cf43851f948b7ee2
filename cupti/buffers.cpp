// SPDX-License-Identifier: Apache-2.0
#include "buffers.h"

#include <bit>
#include <sys/mman.h>

namespace collwire::cupti {

static_assert(Buffers::COUNT == 64, "a bit of is_lent_ for each");

bool Buffers::take() {
    if (memory_.load(std::memory_order_acquire))
        return true;
    void *memory = mmap(nullptr, BUFFER_BYTES * COUNT, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    // A fork of the program does not need it.
    madvise(memory, BUFFER_BYTES * COUNT, MADV_DONTFORK);
    memory_.store(static_cast<uint8_t *>(memory), std::memory_order_release);
    return true;
}

bool Buffers::give_back() {
    uint8_t *memory = memory_.load(std::memory_order_acquire);
    if (!memory)
        return true;
    // From here on lend() finds none free.
    uint64_t none = 0;
    if (!is_lent_.compare_exchange_strong(none, ~uint64_t{0}, std::memory_order_acq_rel))
        return false;
    memory_.store(nullptr, std::memory_order_release);
    munmap(memory, BUFFER_BYTES * COUNT);
    is_lent_.store(0, std::memory_order_release);
    return true;
}

uint8_t *Buffers::lend() {
    uint64_t lent = is_lent_.load(std::memory_order_acquire);
    while (lent != ~uint64_t{0}) {
        const int free = std::countr_one(lent);
        if (!is_lent_.compare_exchange_weak(lent, lent | uint64_t{1} << free,
                                            std::memory_order_acq_rel))
            continue;
        uint8_t *memory = memory_.load(std::memory_order_acquire);
        if (!memory) {
            is_lent_.fetch_and(~(uint64_t{1} << free), std::memory_order_acq_rel);
            break;
        }
        lent_.fetch_add(1, std::memory_order_relaxed);
        return memory + static_cast<size_t>(free) * BUFFER_BYTES;
    }
    lacking_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
}

bool Buffers::is_own(const uint8_t *buffer) const {
    const uint8_t *memory = memory_.load(std::memory_order_acquire);
    return memory && buffer >= memory && buffer < memory + BUFFER_BYTES * COUNT;
}

uint8_t *Buffers::lend_waste() {
    return waste_ + wasted_.fetch_add(1, std::memory_order_relaxed) % WASTE_COUNT * WASTE_BYTES;
}

bool Buffers::is_waste(const uint8_t *buffer) const {
    return buffer >= waste_ && buffer < waste_ + sizeof waste_;
}

void Buffers::return_buffer(const uint8_t *buffer) {
    if (!is_own(buffer))
        return;
    const uint8_t *memory = memory_.load(std::memory_order_acquire);
    const auto index = static_cast<size_t>(buffer - memory) / BUFFER_BYTES;
    lent_.fetch_sub(1, std::memory_order_relaxed);
    is_lent_.fetch_and(~(uint64_t{1} << index), std::memory_order_acq_rel);
}

} // namespace collwire::cupti
