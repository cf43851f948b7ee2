// SPDX-License-Identifier: Apache-2.0
#include "tests/cupti_double/attributes.h"

#include <fmt/format.h>

#include <cstring>

namespace collwire::cupti_double {
namespace {

constexpr std::uint32_t DEVICE_BUFFER_POOL_LIMIT = 2;
constexpr std::uint64_t DEFAULT_POOL_LIMIT = 250;

} // namespace

// CUpti_ActivityAttribute with CUPTI's defaults. A size_t, or a flag of one byte.
AttributeTable::AttributeTable(EventLog &log)
    : log_(log), attributes_{{0, {8, 3'200'000}},
                             {1, {8, 8'388'608}},
                             {DEVICE_BUFFER_POOL_LIMIT, {8, DEFAULT_POOL_LIMIT}},
                             {3, {8, 25'000}},
                             {4, {8, 250}},
                             {5, {1, 0}},
                             {6, {8, 3}},
                             {7, {8, 3}},
                             {8, {1, 0}},
                             {9, {1, 1}},
                             {10, {8, 1'048'576}}} {}

Result AttributeTable::set(std::uint32_t attribute, const std::size_t *bytes, const void *value) {
    const std::lock_guard lock(mutex_);
    const auto found = attributes_.find(attribute);
    if (bytes == nullptr || value == nullptr || found == attributes_.end()) {
        log_.misuse(fmt::format("cuptiActivitySetAttribute: attribute {}", attribute));
        return Result::InvalidParameter;
    }
    if (*bytes < found->second.bytes) {
        log_.misuse(fmt::format("cuptiActivitySetAttribute: attribute {} has {} bytes, not {}",
                                attribute, found->second.bytes, *bytes));
        return Result::ParameterSizeNotSufficient;
    }
    found->second.value = 0;
    std::memcpy(&found->second.value, value, found->second.bytes);
    if (attribute == DEVICE_BUFFER_POOL_LIMIT && found->second.value < DEFAULT_POOL_LIMIT)
        log_.hazard(fmt::format("a pool limit of {} device buffers: CUPTI 12 and 13 gave wrong "
                                "times with 8",
                                found->second.value));
    return Result::Success;
}

Result AttributeTable::get(std::uint32_t attribute, std::size_t *bytes, void *value) {
    const std::lock_guard lock(mutex_);
    const auto found = attributes_.find(attribute);
    if (bytes == nullptr || value == nullptr || found == attributes_.end()) {
        log_.misuse(fmt::format("cuptiActivityGetAttribute: attribute {}", attribute));
        return Result::InvalidParameter;
    }
    if (*bytes < found->second.bytes)
        return Result::ParameterSizeNotSufficient;
    std::memcpy(value, &found->second.value, found->second.bytes);
    *bytes = found->second.bytes;
    return Result::Success;
}

} // namespace collwire::cupti_double
