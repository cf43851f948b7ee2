// SPDX-License-Identifier: Apache-2.0
#include "cupti_fake_cupti.h"

#include "cupti/clock.h"
#include "cupti_records.h"

#include <cstring>
#include <gtest/gtest.h>
#include <utility>

namespace collwire::cupti {
namespace {

FakeCupti *one = nullptr;

} // namespace

FakeCupti::FakeCupti() {
    one = this;
}

FakeCupti::~FakeCupti() {
    EXPECT_EQ(subscribers_, 0) << "a subscription was left";
    one = nullptr;
}

bool FakeCupti::load(Functions &functions, uint32_t &api_version, bool) {
    if (one->is_missing)
        return false;
    functions = {};
    functions.get_timestamp = [](uint64_t *time) {
        *time = monotonic_ns();
        return SUCCESS;
    };
    functions.subscribe = subscribe;
    if (one->api_version >= NAMED_SUBSCRIBERS_API)
        functions.subscribe_v2 = subscribe_v2;
    functions.unsubscribe = unsubscribe;
    functions.register_callbacks = register_callbacks;
    functions.enable = enable;
    functions.disable = disable;
    functions.flush_all = flush_all;
    functions.flush_period = [](uint32_t ms) {
        one->period_ms = ms;
        return SUCCESS;
    };
    functions.get_next_record = next_record;
    functions.get_dropped = [](void *, uint32_t, size_t *records) {
        *records = one->dropped.exchange(0);
        return SUCCESS;
    };
    functions.finalize = [] {
        ++one->finalizes;
        return SUCCESS;
    };
    api_version = one->api_version;
    return true;
}

Result FakeCupti::subscribe(void **subscriber, CallbackFunction, void *) {
    const std::scoped_lock held(one->lock_);
    ++one->subscriptions;
    if (one->subscribe_result != SUCCESS)
        return one->subscribe_result;
    ++one->subscribers_;
    *subscriber = one;
    return SUCCESS;
}

Result FakeCupti::subscribe_v2(void **subscriber, CallbackFunction function, void *user_data,
                               SubscriberParams *params) {
    EXPECT_STREQ(params->name, "collwire");
    const Result result = subscribe(subscriber, function, user_data);
    if (result == MULTIPLE_SUBSCRIBERS)
        strncpy(params->owner, one->owner.c_str(), params->owner_bytes - 1);
    return result;
}

Result FakeCupti::unsubscribe(void *subscriber) {
    const std::scoped_lock held(one->lock_);
    EXPECT_EQ(subscriber, one);
    --one->subscribers_;
    return SUCCESS;
}

Result FakeCupti::register_callbacks(RequestBuffer request, BufferCompleted completed) {
    const std::scoped_lock held(one->lock_);
    ++one->registrations;
    one->request_ = request;
    one->completed_ = completed;
    return one->register_result;
}

Result FakeCupti::enable(Kind kind) {
    const std::scoped_lock held(one->lock_);
    EXPECT_EQ(kind, CONCURRENT_KERNEL);
    EXPECT_FALSE(one->is_enabled_) << "enabled twice";
    ++one->enables;
    if (one->enable_result == SUCCESS)
        one->is_enabled_ = true;
    return one->enable_result;
}

Result FakeCupti::disable(Kind kind) {
    const std::scoped_lock held(one->lock_);
    EXPECT_EQ(kind, CONCURRENT_KERNEL);
    EXPECT_TRUE(one->is_enabled_) << "disabled twice";
    ++one->disables;
    one->is_enabled_ = false;
    return one->disable_result;
}

void FakeCupti::complete(const Held &held) {
    completed_(nullptr, 0, held.buffer, held.bytes, held.records * RECORD_BYTES);
}

Result FakeCupti::flush_all(uint32_t flags) {
    const std::scoped_lock held(one->lock_);
    if (one->keeps_buffers_always || (one->keeps_buffers && (flags & FLUSH_FORCED) == 0))
        return SUCCESS;
    for (const Held &buffer : std::exchange(one->held_, {}))
        one->complete(buffer);
    return one->flush_result;
}

void FakeCupti::run_kernels(int count, const char *name, uint64_t took_ns) {
    const std::scoped_lock held(lock_);
    for (int i = 0; i < count && is_enabled_; ++i) {
        if (held_.empty() || (held_.back().records + 1) * RECORD_BYTES > held_.back().bytes) {
            Held next = {nullptr, 0, 0};
            size_t most_records = 1;
            request_(&next.buffer, &next.bytes, &most_records);
            EXPECT_EQ(most_records, 0U);
            if (!next.buffer) {
                ++dropped;
                continue;
            }
            buffers_.insert(next.buffer);
            held_.push_back(next);
        }
        const uint64_t now_ns = monotonic_ns();
        write_record(held_.back().buffer, held_.back().records++,
                     kernel_record(name, now_ns - took_ns, now_ns));
    }
}

uint64_t FakeCupti::held_buffers() const {
    const std::scoped_lock held(lock_);
    return held_.size();
}

std::set<uint8_t *> FakeCupti::buffers() const {
    const std::scoped_lock held(lock_);
    return buffers_;
}

} // namespace collwire::cupti
