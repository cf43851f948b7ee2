// SPDX-License-Identifier: Apache-2.0
// CUPTI's records of kernels as CUPTI lays them into a buffer, for tests: made by hand, and read by
// a test double of cuptiActivityGetNextRecord.
#pragma once

#include "cupti/abi.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace collwire::cupti {

// Records of CUPTI 13.0 are this long: longer than what the guest reads of them.
constexpr size_t RECORD_BYTES = 216;
static_assert(RECORD_BYTES >= sizeof(KernelRecord) && RECORD_BYTES % 8 == 0);

inline KernelRecord kernel_record(const char *name, uint64_t start, uint64_t end) {
    KernelRecord record = {};
    record.kind = CONCURRENT_KERNEL;
    record.name = name;
    record.start = start;
    record.end = end;
    for (int i = 0; i < 3; ++i)
        record.grid[i] = record.block[i] = 1;
    return record;
}

inline void write_record(uint8_t *buffer, size_t index, const KernelRecord &record) {
    std::memcpy(buffer + index * RECORD_BYTES, &record, sizeof record);
}

// 12: CUPTI_ERROR_MAX_LIMIT_REACHED, as CUPTI says at the end of a buffer.
inline Result next_record(uint8_t *buffer, size_t valid_bytes, void **record) {
    uint8_t *next = *record ? static_cast<uint8_t *>(*record) + RECORD_BYTES : buffer;
    if (next + RECORD_BYTES > buffer + valid_bytes)
        return 12;
    *record = next;
    return SUCCESS;
}

} // namespace collwire::cupti
