// SPDX-License-Identifier: Apache-2.0
// What recordings say of the order of events on different hosts, whatever their clocks show: the
// constraints for correlate/clocks/. Each uses a reading that is early of the cause and one that is
// late of the effect:
//
//   cause                                 effect
//   a queue pair is created               its peer is connected to it (needs its number)
//   a send of an operation starts         the receive on the same connection completes
//   a receive starts (NET/IB alone)       the send completes: it waits for clear-to-send
//   a send on a ring's channel starts     each receive on that channel of an AllReduce, AllGather
//                                         or ReduceScatter completes
//   a kernel of such an operation starts  each of its kernels ends
//
// Frames of rdma_rxe are no constraints: their send is counted when it is over, and an emulated
// node may stand still meanwhile. Broadcast, Reduce and trees give only the pairs on a connection:
// a root may end before others begin. Small sends on sockets complete before the receiver starts,
// so they bind one way.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "correlate/clocks/causal_order.h"
#include "correlate/model/model.h"
#include "correlate/nccl/passage_log.h"
#include "correlate/nccl/time_operations.h"

namespace collwire::nccl {

class ClockOrderFinder {
public:
    // Needs operations, but not their times.
    explicit ClockOrderFinder(const model::Model &model);

    // In the order of OperationTimer::for_each.
    void add(const OpVisit &of, const OperationPlace &operation, const OpTime &time);
    // Call once, after the kernels of GPUs were joined.
    [[nodiscard]] clocks::CausalOrder finish();

private:
    struct End {
        Index host = NONE;
        Index peer = NONE; // the other end, of a send
        bool is_ib = false;
        PassageLog passages;
        unsigned thinned = 0;                 // one of 2^this is kept, the same at both ends
        std::uint64_t last_incomplete_ns = 0; // of the operation before
    };
    // Of the host whose part of a collective comes first.
    struct Hub {
        Index host = NONE;
        std::uint8_t channel = 0;
        std::uint64_t started_ns = 0, completed_ns = 0;
    };

    void pair_connections();
    static void keep(End &end, const Passage &passage);
    [[nodiscard]] Index link_at_other_end(const Link &link) const;
    [[nodiscard]] bool is_one_connection(Index link) const;
    void add_to_ring(const OperationPlace &place, std::uint8_t channel, Index host, bool is_send,
                     const Passage &passage);
    void add_queue_pairs();
    void add_connections();
    void add_kernels();
    [[nodiscard]] bool is_whole_and_certain(const Operation &operation) const;

    const model::Model &model_;
    const NcclFacts &nccl_;
    clocks::CausalOrder causal_;
    std::vector<Index> link_of_connection_; // by Gathered::connections
    std::vector<Index> end_of_link_;
    std::vector<End> ends_;
    std::unordered_map<Index, Hub> hubs_; // by collective
};

// Solves the clocks of the model's hosts.
void solve_node_clocks(model::Model &model, ClockOrderFinder &finder);

} // namespace collwire::nccl
