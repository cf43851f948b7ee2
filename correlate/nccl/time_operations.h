// SPDX-License-Identifier: Apache-2.0
// Start and end of each operation of a launch on its connection.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/connection_times.h"

namespace collwire::nccl {

struct PlaceOfOp {
    Index instance = NONE;
    std::uint32_t launch = 0; // in its stream
    std::uint32_t op = 0;     // of its shape
};

class OperationTimer {
public:
    explicit OperationTimer(const model::Model &model);

    // Call once. Visits all network operations, including those without known times.
    void for_each(const std::function<void(const PlaceOfOp &, const OpTime &)> &visit);

private:
    struct Connection {
        ConnectionTimes times;
        OpTime last;
    };

    template <typename Visit> void for_each_op(Visit visit);
    [[nodiscard]] Connection *connection_of(const ShapeOp &op);
    [[nodiscard]] std::vector<Birth> births_of(const std::vector<Index> &connections) const;
    void put_launches_in_order();

    const NcclFacts &nccl_;
    std::vector<PlaceOfOp> launches_; // by session and time; `op` is 0
    ByAddress<Connection> connections_;
};

} // namespace collwire::nccl
