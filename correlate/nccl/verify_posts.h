// SPDX-License-Identifier: Apache-2.0
// Compares the bytes that were computed from NCCL's operations with those posted for them in
// slices. Both sums are of the same operations, by NCCL's step counts. Operations at the edge of a
// slice are in neither.
#pragma once

#include <cstdint>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/time_operations.h"

namespace collwire::nccl {

class PostVerifier {
public:
    explicit PostVerifier(model::Model &model);

    // Each operation, in launch order.
    void add(const OpVisit &of_op, const OpTime &time);
    // Fills NcclFacts::verified.
    void finish();

private:
    struct Range {
        PostOperations posted;
        std::uint64_t derived_bytes = 0;
        std::uint64_t operations = 0;
        std::uint64_t reached = 0; // end of the last operation that was added
        bool has_begun = false;    // an operation ends where it starts
        bool is_whole = false;     // one ends where it ends, and there is no gap
        bool has_gap = false;
        bool has_unknown = false;  // only a bound is known for one of them
        bool ended_before = false; // by the samples one of them was complete before the slice
    };
    struct Connection {
        std::vector<Range> ranges; // by time
        Index link = NONE;
    };

    void add(Range &range, const ShapeOp &op, const OpTime &time) const;
    // Empty: it can be compared.
    [[nodiscard]] std::string_view obstacle(const Connection &connection, const Range &range) const;
    [[nodiscard]] bool is_sliced(const Link &link) const;
    void count_slices();
    void count_other_queue_pairs();

    model::Model &model_;
    NcclFacts &nccl_;
    ByAddress<Connection> connections_;
};

} // namespace collwire::nccl
