// SPDX-License-Identifier: Apache-2.0
// The guest's two probes, of the provider `collwire`. gpu_arm: its semaphore is above zero while a
// recorder wants a trace. gpu_batch: one hit for each hand-over of records.
#pragma once

#include "collwire/gpu_records.h"

#include <cstdint>

#define COLLWIRE_EXPORT __attribute__((visibility("default")))

extern "C" {
// No initializer is here. NOLINTNEXTLINE(bugprone-dynamic-static-initializers)
COLLWIRE_EXPORT extern volatile unsigned short collwire_gpu_arm_semaphore;
COLLWIRE_EXPORT void collwire_gpu_arm();
COLLWIRE_EXPORT void collwire_gpu_batch(const cw_gpu_batch *batch);
}

namespace collwire::cupti {

// How many recorders want a trace.
inline unsigned wanting_recorders() {
    return collwire_gpu_arm_semaphore;
}

// Hands over `count` items, at most CW_GPU_BATCH_ITEMS. Without a recorder it costs a call.
template <class Item> void hand_over(cw_gpu_item kind, const Item *items, uint32_t count) {
    const cw_gpu_batch batch = {
        CW_GPU_BATCH_MAGIC, CW_GPU_BATCH_VERSION,          static_cast<__u16>(kind), count,
        sizeof(Item),       reinterpret_cast<__u64>(items)};
    collwire_gpu_batch(&batch);
}

} // namespace collwire::cupti
