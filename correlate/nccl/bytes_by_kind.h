// SPDX-License-Identifier: Apache-2.0
// Equal calls carry equal bytes, so each quiescent interval of a flow is one linear equation;
// solves for the bytes of each kind of call. Surplus equations confirm the solution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

class KindSums {
public:
    // A flow with more is not solved.
    static constexpr std::size_t MAX_KINDS = 32;
    static constexpr std::size_t MAX_SUMS = 128; // different ones

    // `link`: assumed, with its intervals; recorded from its start.
    explicit KindSums(Link &link);

    // Operations in launch order, with the least (`data_bytes`) and the most (`payload_bytes`) that
    // NCCL can make of their call.
    void add(std::uint32_t order, const ShapeOp &op);

    // Fills the flow's bytes_of_kind and its intervals' is_solved, for kinds that any single
    // stretch could be removed from. Does nothing if a stretch contradicts another or a call, if a
    // kind gets no bytes, or if bytes came without a call: then the flow carries other traffic, or
    // pauses do not mean completion.
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
