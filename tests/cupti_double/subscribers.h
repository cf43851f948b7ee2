// SPDX-License-Identifier: Apache-2.0
// CUPTI's callback interface: the slot for one subscriber.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tests/cupti_double/abi.h"
#include "tests/cupti_double/event_log.h"
#include "tests/cupti_double/settings.h"

namespace collwire::cupti_double {

struct Subscriber {
    SubscriberCallback callback = nullptr;
    void *user = nullptr;
    std::string name;
    std::set<std::pair<int, std::uint32_t>> callbacks; // domain and id
};

class SubscriberSlot {
public:
    SubscriberSlot(const Settings &settings, EventLog &log) : settings_(settings), log_(log) {}

    // `parameters` null: none, or cuptiSubscribe.
    Result subscribe(Subscriber **subscriber, SubscriberCallback callback, void *user,
                     SubscriberParameters *parameters, bool is_cuda_initialised);
    Result unsubscribe(const Subscriber *subscriber);
    Result enable_callback(bool is_enabled, const Subscriber *subscriber, int domain,
                           std::uint32_t id);
    void finalize();

private:
    bool is_subscribed(const Subscriber *subscriber, const char *function);

    const Settings &settings_;
    EventLog &log_;
    std::mutex mutex_;
    std::unique_ptr<Subscriber> subscriber_;
};

} // namespace collwire::cupti_double
