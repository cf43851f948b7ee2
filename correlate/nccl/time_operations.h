// SPDX-License-Identifier: Apache-2.0
// Start and end of each operation of a launch on its connection.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/connection_times.h"

namespace collwire::nccl {

// In NcclFacts::p2p or NcclFacts::collectives; NONE: its call is not known.
struct OperationPlace {
    bool is_pair = false;
    Index index = NONE;
};

struct PlaceOfOp {
    Index instance = NONE;
    std::uint32_t launch = 0; // in its stream
    std::uint32_t op = 0;     // of its shape
};

// With the launch and the operation of its shape, which live until the visit returns.
struct OpVisit {
    PlaceOfOp at;
    const Launch &launch;
    const ShapeOp &op;
};

class OperationTimer {
public:
    explicit OperationTimer(const model::Model &model);

    // Call once. Visits all network operations, including those without known times.
    void for_each(const std::function<void(const OpVisit &, const OpTime &)> &visit);

private:
    struct Connection {
        ConnectionTimes times;
        OpTime last;
    };

    template <typename Visit> void for_each_op(Visit visit);
    void find_connections();
    [[nodiscard]] std::vector<Birth> births_of(const std::vector<Index> &connections) const;
    void put_launches_in_order();

    const NcclFacts &nccl_;
    std::vector<PlaceOfOp> launches_; // by session and time; `op` is 0
    ByAddress<Connection> connections_;
    std::vector<Connection *> connection_of_; // by place in Gathered::connections; null: no times
};

} // namespace collwire::nccl
