// SPDX-License-Identifier: Apache-2.0
// cuptiActivitySetAttribute and cuptiActivityGetAttribute. The double keeps the values; none of
// them changes what it does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "tests/cupti_double/abi.h"
#include "tests/cupti_double/event_log.h"

namespace collwire::cupti_double {

class AttributeTable {
public:
    explicit AttributeTable(EventLog &log);

    Result set(std::uint32_t attribute, const std::size_t *bytes, const void *value);
    Result get(std::uint32_t attribute, std::size_t *bytes, void *value);

private:
    struct Attribute {
        std::size_t bytes;
        std::uint64_t value;
    };

    EventLog &log_;
    std::mutex mutex_;
    std::map<std::uint32_t, Attribute> attributes_;
};

} // namespace collwire::cupti_double
