// SPDX-License-Identifier: Apache-2.0
// The functions that a client finds in libcupti. lacking.cpp has the others.
#include <fmt/format.h>

#include "tests/cupti_double/cupti_api.h"
#include "tests/cupti_double/cupti_double.h"

namespace collwire::cupti_double {
namespace {

std::string json(std::uint64_t value) {
    return std::to_string(value);
}

} // namespace

// Argument, then what is to be done. The caller's address is the client's.
#define COLLWIRE_CALL(arguments, ...)                                                              \
    cupti_double().call(__func__, __builtin_return_address(0), arguments,                          \
                        [&]() -> Result { __VA_ARGS__ })

// NOLINTBEGIN(readability-identifier-naming): CUPTI's names.
extern "C" {

Result cuptiGetVersion(std::uint32_t *version) {
    if (const Result injected = cupti_double().count(__func__); injected != Result::Success)
        return injected;
    if (version == nullptr)
        return Result::InvalidParameter;
    *version = cupti_double().settings.api_version;
    return Result::Success;
}

Result cuptiGetResultString(Result result, const char **text) {
    cupti_double().count(__func__);
    if (text == nullptr || name_of(result) == nullptr)
        return Result::InvalidParameter;
    *text = name_of(result);
    return Result::Success;
}

Result cuptiSubscribe(Subscriber **subscriber, SubscriberCallback callback, void *user) {
    return COLLWIRE_CALL("", CuptiDouble & it = cupti_double(); return it.subscribers.subscribe(
        subscriber, callback, user, nullptr, it.is_cuda_initialised()););
}

Result cuptiSubscribe_v2(Subscriber **subscriber, SubscriberCallback callback, void *user,
                         SubscriberParameters *parameters) {
    return COLLWIRE_CALL("", CuptiDouble & it = cupti_double(); return it.subscribers.subscribe(
        subscriber, callback, user, parameters, it.is_cuda_initialised()););
}

Result cuptiUnsubscribe(const Subscriber *subscriber) {
    return COLLWIRE_CALL("", return cupti_double().subscribers.unsubscribe(subscriber););
}

Result cuptiEnableCallback(std::uint32_t is_enabled, const Subscriber *subscriber, int domain,
                           std::uint32_t callback) {
    return COLLWIRE_CALL(
        fmt::format("\"enable\":{},\"domain\":{},\"callback\":{}", is_enabled, domain, callback),
        return cupti_double().subscribers.enable_callback(is_enabled != 0, subscriber, domain,
                                                          callback););
}

Result cuptiActivityRegisterCallbacks(RequestBuffer request, CompleteBuffer complete) {
    return COLLWIRE_CALL("", return cupti_double().activity.register_callbacks(request, complete););
}

Result cuptiActivityRegisterTimestampCallback(ReadTimestamp read) {
    return COLLWIRE_CALL("", return cupti_double().activity.register_timestamp(read););
}

Result cuptiActivityEnable(std::uint32_t kind) {
    return COLLWIRE_CALL("\"kind\":" + json(kind), return cupti_double().activity.enable(kind););
}

Result cuptiActivityDisable(std::uint32_t kind) {
    return COLLWIRE_CALL("\"kind\":" + json(kind), return cupti_double().activity.disable(kind););
}

Result cuptiActivityEnableContext(const void *context, std::uint32_t kind) {
    return COLLWIRE_CALL("\"kind\":" + json(kind),
                         return cupti_double().activity.set_context(context, kind, true););
}

Result cuptiActivityDisableContext(const void *context, std::uint32_t kind) {
    return COLLWIRE_CALL("\"kind\":" + json(kind),
                         return cupti_double().activity.set_context(context, kind, false););
}

Result cuptiActivityFlushAll(std::uint32_t flags) {
    return COLLWIRE_CALL("\"flags\":" + json(flags),
                         return cupti_double().activity.flush_all(flags););
}

Result cuptiActivityFlushPeriod(std::uint32_t period_ms) {
    return COLLWIRE_CALL("\"period_ms\":" + json(period_ms),
                         return cupti_double().activity.set_flush_period(period_ms););
}

Result cuptiActivityGetNextRecord(std::uint8_t *buffer, std::size_t valid_bytes,
                                  std::uint8_t **record) {
    const CalledInCallback here;
    if (const Result injected = cupti_double().count(__func__); injected != Result::Success)
        return injected;
    return cupti_double().activity.next_record(buffer, valid_bytes, record);
}

Result cuptiActivityGetNumDroppedRecords(const void *, std::uint32_t, std::size_t *dropped) {
    const CalledInCallback here;
    if (const Result injected = cupti_double().count(__func__); injected != Result::Success)
        return injected;
    return cupti_double().activity.take_dropped(dropped);
}

Result cuptiActivitySetAttribute(std::uint32_t attribute, const std::size_t *bytes,
                                 const void *value) {
    return COLLWIRE_CALL("\"attribute\":" + json(attribute),
                         return cupti_double().attributes.set(attribute, bytes, value););
}

Result cuptiActivityGetAttribute(std::uint32_t attribute, std::size_t *bytes, void *value) {
    return COLLWIRE_CALL("\"attribute\":" + json(attribute),
                         return cupti_double().attributes.get(attribute, bytes, value););
}

Result cuptiGetTimestamp(std::uint64_t *timestamp) {
    return COLLWIRE_CALL("", if (timestamp == nullptr) return Result::InvalidParameter;
                         *timestamp = cupti_double().activity.timestamp(); return Result::Success;);
}

Result cuptiSetThreadIdType(int type) {
    constexpr int TYPES = 2; // default, system
    return COLLWIRE_CALL(fmt::format("\"type\":{}", type), return type >= 0 && type < TYPES
                                                                      ? Result::Success
                                                                      : Result::NotSupported;);
}

Result cuptiFinalize() {
    return COLLWIRE_CALL("", cupti_double().subscribers.finalize();
                         return cupti_double().activity.finalize(););
}

} // extern "C"
// NOLINTEND(readability-identifier-naming)

} // namespace collwire::cupti_double
