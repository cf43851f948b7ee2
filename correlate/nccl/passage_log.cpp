// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/passage_log.h"

namespace collwire::nccl {

namespace {

constexpr unsigned BITS = 7;
constexpr std::uint8_t MORE = 1U << BITS;

// Small numbers for small differences of either sign, modulo 2^64.
std::uint64_t difference(std::uint64_t value, std::uint64_t from) {
    const std::uint64_t apart = value - from;
    return apart >> 63U == 0 ? apart << 1U : ~(apart << 1U);
}
std::uint64_t sum(std::uint64_t from, std::uint64_t difference) {
    return from + ((difference & 1U) == 0 ? difference >> 1U : ~(difference >> 1U));
}

} // namespace

void PassageLog::put(std::uint64_t number) {
    for (; number >= MORE; number >>= BITS)
        bytes_.push_back(static_cast<std::uint8_t>(number | MORE));
    bytes_.push_back(static_cast<std::uint8_t>(number));
}

void PassageLog::push_back(const Passage &passage) {
    put(difference(passage.base_steps, last_.end_steps));
    put(difference(passage.end_steps, passage.base_steps));
    put(difference(passage.started_ns, last_.started_ns));
    put(difference(passage.completed_ns, passage.started_ns));
    last_ = passage;
    ++size_;
}

std::uint64_t PassageLog::Reader::number() {
    std::uint64_t number = 0;
    for (unsigned shift = 0;; shift += BITS) {
        const std::uint8_t byte = log_.bytes_[at_++];
        number |= std::uint64_t{byte & (MORE - 1U)} << shift;
        if ((byte & MORE) == 0)
            return number;
    }
}

bool PassageLog::Reader::next(Passage &passage) {
    if (at_ == log_.bytes_.size())
        return false;
    passage.base_steps = sum(before_.end_steps, number());
    passage.end_steps = sum(passage.base_steps, number());
    passage.started_ns = sum(before_.started_ns, number());
    passage.completed_ns = sum(passage.started_ns, number());
    before_ = passage;
    return true;
}

} // namespace collwire::nccl
