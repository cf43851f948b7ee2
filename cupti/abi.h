// SPDX-License-Identifier: Apache-2.0
// The part of CUPTI's interface that the guest uses: own declarations, so that one file works with
// libcupti 12 and 13. tests/cupti/abi_check.cpp compares them with NVIDIA's headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace collwire::cupti {

using Result = int;
inline constexpr Result SUCCESS = 0;
inline constexpr Result INVALID_OPERATION = 7;
inline constexpr Result MAX_LIMIT_REACHED = 12;
inline constexpr Result MULTIPLE_SUBSCRIBERS = 39;

using Kind = int;
inline constexpr Kind CONCURRENT_KERNEL = 10;
inline constexpr int MAX_KINDS = 192; // 13.5 knows fewer than 70

inline constexpr uint32_t FLUSH_FORCED = 1;

// CUPTI_API_VERSION of the first release with CUpti_ActivityKernel9 (CUDA 12.0), and of the first
// one that drops records for lack of a buffer without a crash (12.9).
inline constexpr uint32_t FIRST_API = 18;
inline constexpr uint32_t NULL_BUFFER_API = 27;
inline constexpr uint32_t NAMED_SUBSCRIBERS_API = 130000;
// cuptiFinalize with graphs crashes in earlier ones (NVIDIA's release notes of CUDA 12.6).
inline constexpr uint32_t FINALIZE_API = 24;

using RequestBuffer = void (*)(uint8_t **buffer, size_t *bytes, size_t *max_records);
using BufferCompleted = void (*)(void *context, uint32_t stream, uint8_t *buffer, size_t bytes,
                                 size_t valid_bytes);
using CallbackFunction = void (*)(void *user_data, int domain, uint32_t id, const void *data);
using TimestampFunction = uint64_t (*)();

// CUpti_SubscriberParams of 13.0.
struct SubscriberParams {
    size_t struct_bytes;
    const char *name;
    char *owner; // who has the slot, where the subscription fails
    size_t owner_bytes;
    uint8_t allow_others; // 13.3
    uint8_t padding[7];
};

// CUpti_ActivityKernel9 (12.x), 10 (13.0) and 13 (13.5) agree in these fields; later ones only grew
// at their end. Read by the compiler as a struct of its own with gaps.
struct KernelRecord {
    uint32_t kind;
    uint8_t gap_4[12];
    uint64_t start;
    uint64_t end;
    uint64_t completed;
    uint32_t device;
    uint32_t context;
    uint32_t stream;
    int32_t grid[3];
    int32_t block[3];
    int32_t static_shared_memory;
    int32_t dynamic_shared_memory;
    uint32_t local_memory_per_thread;
    uint32_t local_memory;
    uint32_t correlation;
    int64_t grid_id;
    const char *name;
    void *reserved;
    uint64_t queued;
    uint64_t submitted;
    uint8_t gap_136[8];
    uint64_t graph_node;
    uint32_t gap_152;
    uint32_t graph;
    uint8_t gap_160[16];
    uint32_t cluster[3];
};

static_assert(offsetof(KernelRecord, start) == 16);
static_assert(offsetof(KernelRecord, device) == 40);
static_assert(offsetof(KernelRecord, grid) == 52);
static_assert(offsetof(KernelRecord, block) == 64);
static_assert(offsetof(KernelRecord, correlation) == 92);
static_assert(offsetof(KernelRecord, name) == 104);
static_assert(offsetof(KernelRecord, graph_node) == 144);
static_assert(offsetof(KernelRecord, graph) == 156);
static_assert(offsetof(KernelRecord, cluster) == 176);

// The functions of libcupti, as found at run time.
struct Functions {
    Result (*get_version)(uint32_t *);
    Result (*get_timestamp)(uint64_t *);
    Result (*subscribe)(void **subscriber, CallbackFunction, void *user_data);
    Result (*subscribe_v2)(void **subscriber, CallbackFunction, void *user_data,
                           SubscriberParams *); // 13.0 and later
    Result (*unsubscribe)(void *subscriber);
    Result (*register_callbacks)(RequestBuffer, BufferCompleted);
    Result (*register_timestamp_callback)(TimestampFunction);
    Result (*enable)(Kind);
    Result (*disable)(Kind);
    Result (*enable_context)(void *context, Kind);
    Result (*disable_context)(void *context, Kind);
    Result (*flush_all)(uint32_t flags);
    Result (*flush_period)(uint32_t ms);
    Result (*get_next_record)(uint8_t *buffer, size_t valid_bytes, void **record);
    Result (*get_dropped)(void *context, uint32_t stream, size_t *dropped);
    Result (*finalize)();
};

} // namespace collwire::cupti
