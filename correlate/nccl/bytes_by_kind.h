// SPDX-License-Identifier: Apache-2.0
// What operations of a link carried of which nothing is known but their order and which of them are
// alike: NCCL does the same for calls with the same arguments, so between two moments at which
// nothing moved the bytes are a sum of as many times each kind's. Enough of such sums tell the
// kinds apart, and some more show that they do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

class KindSums {
public:
    // Beyond, a link is not solved.
    static constexpr std::size_t MAX_KINDS = 32;
    static constexpr std::size_t MAX_SUMS = 128; // that differ

    // `link`: assumed, with its intervals; not late.
    explicit KindSums(Link &link);

    // Operations in the order of their launches, with the least (`data_bytes`) and the most
    // (`payload_bytes`) that NCCL can make of their call.
    void add(std::uint32_t order, const ShapeOp &op);

    // Fills bytes_of_kind of the link, and is_solved of its intervals: of kinds that would be told
    // without any single stretch, too. Nothing at all where one of them contradicts another, or a
    // call, or a kind comes to no bytes, or where bytes came that nothing was called for: then
    // something else is sent there, or nothing moves without all being done.
    void solve();

private:
    struct Stretch {
        Interval *interval = nullptr;
        std::map<std::uint32_t, std::uint32_t> operations; // by kind
    };
    struct Bounds {
        std::uint64_t least = 0;
        std::uint64_t most = 0;
    };

    [[nodiscard]] bool has_unasked_bytes() const;

    Link &link_;
    std::vector<Stretch> stretches_;
    std::size_t next_ = 0;
    std::map<std::uint32_t, Bounds> kinds_;
};

} // namespace collwire::nccl
