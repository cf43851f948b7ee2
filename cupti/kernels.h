// SPDX-License-Identifier: Apache-2.0
// CUPTI's kernel records as hand-overs: each kernel of NCCL as an item, the others as sums. Runs in
// CUPTI's callback: no lock, no allocation, no call of CUPTI but that which reads the next record.
#pragma once

#include "abi.h"
#include "clock.h"
#include "collwire/gpu_records.h"
#include "windows.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace collwire::cupti {

class Kernels {
public:
    constexpr Kernels(const Clock &clock, Windows &windows) : clock_(clock), windows_(windows) {}

    // A new trace: names are handed over again.
    void begin();

    // Those of this trace once more, for a recorder that came later.
    void hand_over_names() const;

    // Reads a buffer that CUPTI has completed.
    void read(const Functions &functions, uint8_t *buffer, size_t valid_bytes);

    // CUPTI's first error while records were read: the rest of that buffer is lost.
    Result error() const { return error_.load(std::memory_order_relaxed); }

    void add_counts(cw_gpu_state_item &state) const;

private:
    static constexpr size_t NAMES = 256;

    struct Name {
        std::atomic<uint32_t> state; // FREE, TAKEN, then READY
        char text[CW_GPU_NAME_BYTES];
        bool is_truncated;
    };

    static constexpr uint32_t FREE = 0, TAKEN = 1, READY = 2;

    uint16_t number_of(const char *text);
    void add(const KernelRecord &record, cw_gpu_kernel_item *items, uint32_t &count);

    const Clock &clock_;
    Windows &windows_;
    Name names_[NAMES] = {};
    std::atomic<Result> error_ = SUCCESS;
    std::atomic<uint64_t> kernels_ = 0, unknown_ = 0, unnamed_ = 0, others_ = 0, before_armed_ = 0;
};

// The name without the prefix of C++ mangling if the kernel is NCCL's, else null.
const char *nccl_kernel_name(const char *mangled);

// One of the names that NCCL 2.18 to 2.32 gives its kernels.
bool is_known_nccl_kernel(const char *name);

} // namespace collwire::cupti
