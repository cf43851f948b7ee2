// SPDX-License-Identifier: Apache-2.0
#include "tests/cupti_double/subscribers.h"

#include <fmt/format.h>

#include <cstdio>

namespace collwire::cupti_double {
namespace {

constexpr std::size_t MOST_NAME_BYTES = 53;
constexpr char NAME_PREFIX[] = "CUPTI for ";
constexpr int FIRST_DOMAIN = 1;
constexpr int LAST_DOMAIN = 6; // CUPTI_CB_DOMAIN_STATE

std::string name_in(const SubscriberParameters *parameters) {
    if (parameters == nullptr || parameters->subscriber_name == nullptr)
        return "CUPTI";
    return NAME_PREFIX + std::string(parameters->subscriber_name).substr(0, MOST_NAME_BYTES);
}

void write_owner(const SubscriberParameters *parameters, const std::string &owner) {
    if (parameters != nullptr && parameters->old_subscriber_name != nullptr &&
        parameters->old_subscriber_bytes != 0)
        std::snprintf(parameters->old_subscriber_name, parameters->old_subscriber_bytes, "%s",
                      owner.c_str());
}

} // namespace

Result SubscriberSlot::subscribe(Subscriber **subscriber, SubscriberCallback callback, void *user,
                                 SubscriberParameters *parameters, bool is_cuda_initialised) {
    if (subscriber == nullptr) {
        log_.misuse("cuptiSubscribe: nowhere to write the subscriber");
        return Result::InvalidParameter;
    }
    if (parameters != nullptr && parameters->structure_bytes < sizeof(SubscriberParameters)) {
        log_.misuse(fmt::format("cuptiSubscribe_v2: structSize is {}, and {} in 13.0",
                                parameters->structure_bytes, sizeof(SubscriberParameters)));
        return Result::InvalidParameter;
    }
    const std::lock_guard lock(mutex_);
    if (!is_cuda_initialised) {
        write_owner(parameters, "");
        return Result::MultipleSubscribersNotSupported;
    }
    if (subscriber_ || !settings_.owner.empty()) {
        write_owner(parameters, subscriber_ ? subscriber_->name : settings_.owner);
        return Result::MultipleSubscribersNotSupported;
    }
    subscriber_ = std::make_unique<Subscriber>();
    subscriber_->callback = callback;
    subscriber_->user = user;
    subscriber_->name = name_in(parameters);
    *subscriber = subscriber_.get();
    return Result::Success;
}

bool SubscriberSlot::is_subscribed(const Subscriber *subscriber, const char *function) {
    if (subscriber != nullptr && subscriber == subscriber_.get())
        return true;
    log_.misuse(
        fmt::format("{}: {} is no subscriber", function, static_cast<const void *>(subscriber)));
    return false;
}

Result SubscriberSlot::unsubscribe(const Subscriber *subscriber) {
    const std::lock_guard lock(mutex_);
    if (!is_subscribed(subscriber, "cuptiUnsubscribe"))
        return Result::InvalidParameter;
    subscriber_.reset();
    return Result::Success;
}

Result SubscriberSlot::enable_callback(bool is_enabled, const Subscriber *subscriber, int domain,
                                       std::uint32_t id) {
    const std::lock_guard lock(mutex_);
    if (!is_subscribed(subscriber, "cuptiEnableCallback"))
        return Result::InvalidParameter;
    if (domain < FIRST_DOMAIN || domain > LAST_DOMAIN) {
        log_.misuse(fmt::format("cuptiEnableCallback: domain {} does not exist", domain));
        return Result::InvalidParameter;
    }
    if (is_enabled) {
        log_.lacks(fmt::format("callbacks of domain {}", domain));
        subscriber_->callbacks.emplace(domain, id);
    } else {
        subscriber_->callbacks.erase({domain, id});
    }
    return Result::Success;
}

void SubscriberSlot::finalize() {
    const std::lock_guard lock(mutex_);
    subscriber_.reset();
}

} // namespace collwire::cupti_double
