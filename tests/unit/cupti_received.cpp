// SPDX-License-Identifier: Apache-2.0
#include "cupti_received.h"

#include "cupti/probes.h"

#include <gtest/gtest.h>
#include <mutex>
#include <utility>

volatile unsigned short collwire_gpu_arm_semaphore = 0;

namespace collwire::cupti {
namespace {

std::mutex lock;
Received received;

template <class Item> void keep(const cw_gpu_batch &batch, std::vector<Item> &items) {
    ASSERT_EQ(batch.item_bytes, sizeof(Item));
    // An address, as the recorder gets it. NOLINTNEXTLINE(performance-no-int-to-ptr)
    const auto *first = reinterpret_cast<const Item *>(batch.items);
    items.insert(items.end(), first, first + batch.count);
}

} // namespace

Received take_received() {
    const std::scoped_lock held(lock);
    return std::exchange(received, {});
}

void want_trace(bool is_wanted) {
    want_traces(is_wanted ? 1 : 0);
}

void want_traces(unsigned short recorders) {
    collwire_gpu_arm_semaphore = recorders;
}

} // namespace collwire::cupti

void collwire_gpu_batch(const cw_gpu_batch *batch) {
    using namespace collwire::cupti;
    const std::scoped_lock held(lock);
    EXPECT_EQ(batch->magic, static_cast<__u32>(CW_GPU_BATCH_MAGIC));
    EXPECT_EQ(batch->version, CW_GPU_BATCH_VERSION);
    EXPECT_GE(batch->count, 1U);
    EXPECT_LE(batch->count, static_cast<__u32>(CW_GPU_BATCH_ITEMS));
    received.batches.push_back(*batch);
    switch (batch->item) {
    case CW_GPU_ITEM_KERNEL:
        return keep(*batch, received.kernels);
    case CW_GPU_ITEM_NAME:
        return keep(*batch, received.names);
    case CW_GPU_ITEM_WINDOW:
        return keep(*batch, received.windows);
    case CW_GPU_ITEM_STATE:
        return keep(*batch, received.states);
    case CW_GPU_ITEM_CHANNEL:
        return keep(*batch, received.channels);
    case CW_GPU_ITEM_PROFILER:
        return keep(*batch, received.profilers);
    default:
        ADD_FAILURE() << "unknown item " << batch->item;
    }
}
