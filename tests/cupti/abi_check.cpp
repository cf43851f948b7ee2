// SPDX-License-Identifier: Apache-2.0
// The guest's own declarations of CUPTI against NVIDIA's headers, where they are installed: it
// compiles, or they differ.
#include "cupti/abi.h"

#include <cstddef>
#include <cupti.h>
#include <type_traits>

namespace collwire::cupti {
namespace {

template <class Theirs> constexpr bool has_our_layout() {
#define SAME(ours, theirs)                                                                         \
    static_assert(offsetof(KernelRecord, ours) == offsetof(Theirs, theirs) &&                      \
                  sizeof(KernelRecord::ours) == sizeof(Theirs::theirs))
#define SAME_THREE(ours, first, last)                                                              \
    static_assert(offsetof(KernelRecord, ours) == offsetof(Theirs, first) &&                       \
                  offsetof(KernelRecord, ours) + 8 == offsetof(Theirs, last) &&                    \
                  sizeof(KernelRecord::ours) == 3 * sizeof(Theirs::first))
    SAME(kind, kind);
    SAME(start, start);
    SAME(end, end);
    SAME(completed, completed);
    SAME(device, deviceId);
    SAME(context, contextId);
    SAME(stream, streamId);
    SAME_THREE(grid, gridX, gridZ);
    SAME_THREE(block, blockX, blockZ);
    SAME(static_shared_memory, staticSharedMemory);
    SAME(dynamic_shared_memory, dynamicSharedMemory);
    SAME(local_memory_per_thread, localMemoryPerThread);
    SAME(local_memory, localMemoryTotal);
    SAME(correlation, correlationId);
    SAME(grid_id, gridId);
    SAME(name, name);
    SAME(queued, queued);
    SAME(submitted, submitted);
    SAME(graph_node, graphNodeId);
    SAME(graph, graphId);
    SAME_THREE(cluster, clusterX, clusterZ);
    return sizeof(Theirs) >= sizeof(KernelRecord);
}

static_assert(has_our_layout<CUpti_ActivityKernel9>());
#if CUPTI_API_VERSION >= 130000
static_assert(has_our_layout<CUpti_ActivityKernel10>());
static_assert(offsetof(SubscriberParams, struct_bytes) ==
              offsetof(CUpti_SubscriberParams, structSize));
static_assert(offsetof(SubscriberParams, name) == offsetof(CUpti_SubscriberParams, subscriberName));
static_assert(offsetof(SubscriberParams, owner) ==
              offsetof(CUpti_SubscriberParams, oldSubscriberName));
static_assert(offsetof(SubscriberParams, owner_bytes) ==
              offsetof(CUpti_SubscriberParams, oldSubscriberSize));
#endif
#if CUPTI_API_VERSION >= 130500
static_assert(has_our_layout<CUpti_ActivityKernel13>());
#endif

static_assert(static_cast<Result>(CUPTI_SUCCESS) == SUCCESS);
static_assert(static_cast<Result>(CUPTI_ERROR_INVALID_OPERATION) == INVALID_OPERATION);
static_assert(static_cast<Result>(CUPTI_ERROR_MAX_LIMIT_REACHED) == MAX_LIMIT_REACHED);
static_assert(static_cast<Result>(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) ==
              MULTIPLE_SUBSCRIBERS);
static_assert(static_cast<Kind>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CONCURRENT_KERNEL);
static_assert(static_cast<int>(CUPTI_ACTIVITY_KIND_COUNT) <= MAX_KINDS);
static_assert(static_cast<uint32_t>(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) == FLUSH_FORCED);
static_assert(sizeof(CUptiResult) == sizeof(Result) && sizeof(CUpti_ActivityKind) == sizeof(Kind));

// The number of arguments, and the size of each.
template <class Ours, class Theirs> struct IsSameCall : std::false_type {};
template <class Ours, class Theirs, class... OurArguments, class... TheirArguments>
struct IsSameCall<Ours (*)(OurArguments...), Theirs(TheirArguments...)> {
    static constexpr bool value = [] {
        if constexpr (sizeof...(OurArguments) != sizeof...(TheirArguments))
            return false;
        else
            return sizeof(Ours) == sizeof(Theirs) &&
                   ((sizeof(OurArguments) == sizeof(TheirArguments)) && ...);
    }();
};

#define SAME_CALL(ours, theirs)                                                                    \
    static_assert(IsSameCall<decltype(Functions::ours), decltype(theirs)>::value)
SAME_CALL(get_version, cuptiGetVersion);
SAME_CALL(get_timestamp, cuptiGetTimestamp);
SAME_CALL(subscribe, cuptiSubscribe);
SAME_CALL(unsubscribe, cuptiUnsubscribe);
SAME_CALL(register_callbacks, cuptiActivityRegisterCallbacks);
SAME_CALL(register_timestamp_callback, cuptiActivityRegisterTimestampCallback);
SAME_CALL(enable, cuptiActivityEnable);
SAME_CALL(disable, cuptiActivityDisable);
SAME_CALL(enable_context, cuptiActivityEnableContext);
SAME_CALL(disable_context, cuptiActivityDisableContext);
SAME_CALL(flush_all, cuptiActivityFlushAll);
SAME_CALL(flush_period, cuptiActivityFlushPeriod);
SAME_CALL(get_next_record, cuptiActivityGetNextRecord);
SAME_CALL(get_dropped, cuptiActivityGetNumDroppedRecords);
SAME_CALL(finalize, cuptiFinalize);
#if CUPTI_API_VERSION >= 130000
SAME_CALL(subscribe_v2, cuptiSubscribe_v2);
#endif

} // namespace
} // namespace collwire::cupti
