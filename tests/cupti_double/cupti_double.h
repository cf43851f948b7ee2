// SPDX-License-Identifier: Apache-2.0
// The double as a whole, and the gate that each call of the client passes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include <unistd.h>

#include "tests/cupti_double/abi.h"
#include "tests/cupti_double/attributes.h"
#include "tests/cupti_double/collector.h"
#include "tests/cupti_double/event_log.h"
#include "tests/cupti_double/feed.h"
#include "tests/cupti_double/settings.h"
#include "tests/cupti_double/subscribers.h"

namespace collwire::cupti_double {

struct CuptiDouble {
    explicit CuptiDouble(Settings read);

    // Logs the call. Refuses it where an injected failure or a deadlock would be.
    Result call(const char *function, const void *caller, const std::string &arguments,
                const std::function<Result()> &body);
    // As often as records: counted, not logged.
    Result count(const char *function);
    [[nodiscard]] bool is_cuda_initialised() const;
    // Last lines of the log.
    void finish();

    const pid_t process = getpid();
    const Settings settings;
    EventLog log;
    ActivityCollector activity;
    SubscriberSlot subscribers;
    AttributeTable attributes;
    const CudaState *cuda = nullptr;

private:
    std::mutex mutex_;
    std::map<std::string, std::uint64_t> calls_;
};

// Made at the first call of CUPTI in the process, and never destroyed.
CuptiDouble &cupti_double();
// For tests of the double alone; null: none any more.
void use_instead(CuptiDouble *of_test);

} // namespace collwire::cupti_double
