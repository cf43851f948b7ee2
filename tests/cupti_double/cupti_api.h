// SPDX-License-Identifier: Apache-2.0
// The functions of CUPTI that the double plays, under CUPTI's names.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/cupti_double/abi.h"
#include "tests/cupti_double/subscribers.h"

namespace collwire::cupti_double {

// NOLINTBEGIN(readability-identifier-naming): CUPTI's names.
#pragma GCC visibility push(default)
extern "C" {

Result cuptiGetVersion(std::uint32_t *version);
Result cuptiGetResultString(Result result, const char **text);

Result cuptiSubscribe(Subscriber **subscriber, SubscriberCallback callback, void *user);
Result cuptiSubscribe_v2(Subscriber **subscriber, SubscriberCallback callback, void *user,
                         SubscriberParameters *parameters); // 13.0
Result cuptiUnsubscribe(const Subscriber *subscriber);
Result cuptiEnableCallback(std::uint32_t is_enabled, const Subscriber *subscriber, int domain,
                           std::uint32_t callback);

Result cuptiActivityRegisterCallbacks(RequestBuffer request, CompleteBuffer complete);
Result cuptiActivityRegisterTimestampCallback(ReadTimestamp read);
Result cuptiActivityEnable(std::uint32_t kind);
Result cuptiActivityDisable(std::uint32_t kind);
Result cuptiActivityEnableContext(const void *context, std::uint32_t kind);
Result cuptiActivityDisableContext(const void *context, std::uint32_t kind);
Result cuptiActivityFlushAll(std::uint32_t flags);
Result cuptiActivityFlushPeriod(std::uint32_t period_ms);
Result cuptiActivityGetNextRecord(std::uint8_t *buffer, std::size_t valid_bytes,
                                  std::uint8_t **record);
Result cuptiActivityGetNumDroppedRecords(const void *context, std::uint32_t stream,
                                         std::size_t *dropped);
Result cuptiActivitySetAttribute(std::uint32_t attribute, const std::size_t *bytes,
                                 const void *value);
Result cuptiActivityGetAttribute(std::uint32_t attribute, std::size_t *bytes, void *value);
Result cuptiGetTimestamp(std::uint64_t *timestamp);
Result cuptiSetThreadIdType(int type);
Result cuptiFinalize();

} // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)

} // namespace collwire::cupti_double
