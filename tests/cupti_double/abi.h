// SPDX-License-Identifier: Apache-2.0
// CUPTI's binary interface, as far as the double plays it. Numbers and offsets are those of
// CUPTI 12.9 and 13.0; the text is written for this test double.
#pragma once

#include <cstddef>
#include <cstdint>

namespace collwire::cupti_double {

// CUptiResult
enum class Result : int {
    Success = 0,
    InvalidParameter = 1,
    InvalidContext = 3,
    InvalidOperation = 7,
    ParameterSizeNotSufficient = 10,
    ApiNotImplemented = 11,
    MaxLimitReached = 12,
    NotCompatible = 14,
    InvalidKind = 21,
    NotSupported = 27,
    MultipleSubscribersNotSupported = 39,
    Unknown = 999
};
const char *name_of(Result result); // null: CUPTI has no such code

// CUpti_ActivityKind
inline constexpr std::uint32_t KIND_KERNEL = 3;
inline constexpr std::uint32_t KIND_CONCURRENT_KERNEL = 10;
inline constexpr std::uint32_t LAST_KIND = 54; // 13.0; 12.9: 54, too

inline constexpr std::uint32_t FLUSH_FORCED = 1;

using RequestBuffer = void (*)(std::uint8_t **buffer, std::size_t *bytes,
                               std::size_t *most_records);
using CompleteBuffer = void (*)(void *context, std::uint32_t stream, std::uint8_t *buffer,
                                std::size_t bytes, std::size_t valid_bytes);
using ReadTimestamp = std::uint64_t (*)();
using SubscriberCallback = void (*)(void *user, int domain, std::uint32_t callback,
                                    const void *data);

// First API version whose request callback may return no buffer: CUDA 12.9.
inline constexpr std::uint32_t FIRST_VERSION_WITH_REFUSAL = 27;
// Versions are numbered xxyyzz from 13.0 on. 13.2 has another record.
inline constexpr std::uint32_t FIRST_VERSION_OF_13 = 130'000;
inline constexpr std::uint32_t FIRST_VERSION_OF_13_2 = 130'200;

// CUpti_ActivityKernel9 (12.0 to 12.9) and CUpti_ActivityKernel10 (13.0): the first without the
// last eight bytes. CUPTI declares it packed; the natural offsets are the same.
struct KernelRecord {
    std::uint32_t kind;
    std::uint8_t cache_config;
    std::uint8_t shared_memory_config;
    std::uint16_t registers;
    std::uint32_t cache_requested;
    std::uint32_t cache_executed;
    std::uint64_t start;
    std::uint64_t end;
    std::uint64_t completed;
    std::uint32_t device;
    std::uint32_t context;
    std::uint32_t stream;
    std::int32_t grid[3];
    std::int32_t block[3];
    std::int32_t static_shared_bytes;
    std::int32_t dynamic_shared_bytes;
    std::uint32_t local_bytes_per_thread;
    std::uint32_t local_bytes;
    std::uint32_t correlation;
    std::int64_t grid_id;
    const char *name;
    void *reserved;
    std::uint64_t queued;
    std::uint64_t submitted;
    std::uint8_t launch_type;
    std::uint8_t is_carveout_requested;
    std::uint8_t carveout_requested;
    std::uint8_t padding;
    std::uint32_t shared_bytes_executed;
    std::uint64_t graph_node;
    std::uint32_t shared_limit;
    std::uint32_t graph;
    void *access_policy;
    std::uint32_t channel;
    std::uint32_t channel_type;
    std::uint32_t cluster[3];
    std::uint32_t cluster_scheduling;
    std::uint64_t local_bytes_v2;
    std::uint32_t most_cluster_blocks;
    std::uint32_t most_active_clusters;
    std::uint8_t is_device_launched; // from here on 13.0 only
    std::uint8_t padding_13[7];
};

inline constexpr std::size_t KERNEL9_BYTES = 208;
inline constexpr std::size_t KERNEL10_BYTES = 216;

static_assert(offsetof(KernelRecord, start) == 16 && offsetof(KernelRecord, end) == 24);
static_assert(offsetof(KernelRecord, completed) == 32 && offsetof(KernelRecord, device) == 40);
static_assert(offsetof(KernelRecord, context) == 44 && offsetof(KernelRecord, stream) == 48);
static_assert(offsetof(KernelRecord, grid) == 52 && offsetof(KernelRecord, block) == 64);
static_assert(offsetof(KernelRecord, correlation) == 92 && offsetof(KernelRecord, grid_id) == 96);
static_assert(offsetof(KernelRecord, name) == 104 && offsetof(KernelRecord, queued) == 120);
static_assert(offsetof(KernelRecord, submitted) == 128);
static_assert(offsetof(KernelRecord, launch_type) == 136);
static_assert(offsetof(KernelRecord, graph_node) == 144 && offsetof(KernelRecord, graph) == 156);
static_assert(offsetof(KernelRecord, channel) == 168 && offsetof(KernelRecord, cluster) == 176);
static_assert(offsetof(KernelRecord, is_device_launched) == KERNEL9_BYTES);
static_assert(sizeof(KernelRecord) == KERNEL10_BYTES);

std::size_t kernel_record_bytes(std::uint32_t api_version);

// CUpti_SubscriberParams of 13.0
struct SubscriberParameters {
    std::size_t structure_bytes;
    const char *subscriber_name;
    char *old_subscriber_name;
    std::size_t old_subscriber_bytes;
};
static_assert(sizeof(SubscriberParameters) == 32);

} // namespace collwire::cupti_double
