// SPDX-License-Identifier: Apache-2.0
// PAT (parallel aggregated trees): which messages AllGather and ReduceScatter exchange, and which
// blocks are in each. A block is the data of one rank.
//
// Every rank is the root of a binomial tree, and all trees have the same shape. AllGather: a rank
// needs the block of the rank `distance` after it, for each distance below the number of ranks. It
// comes from the rank that is the lowest set bit of the distance further on: that rank's own
// distance to the block is shorter by that bit, down to 0, the block's owner. ReduceScatter goes
// the same ways backwards and adds on the way. So what two ranks 2^dimension apart exchange are the
// blocks whose distance has that lowest bit.
//
// Blocks are aggregated: a round is as many blocks as are under way at once. NCCL's proxies count
// the messages of each connection in advance, so the rounds and what one message holds are NCCL's;
// the order of messages is that of growing dependence, and the play (pat.cpp) is the double's own.
#pragma once

#include <cstdint>
#include <vector>

namespace collwire::cuda_double {

struct PatShape {
    int ranks = 0;
    std::int64_t block_bytes = 0; // one rank's data, of this channel
    std::int64_t slot_bytes = 0;  // the most of a message
    bool is_gather = true;
};

struct PatMessage {
    // Of each block, seen from the rank that is farther from its owner. A ReduceScatter leaves room
    // for blocks of ranks that do not exist: kAbsent.
    std::vector<int> distances;
};
inline constexpr int kAbsent = -1;

// By dimension, each in the order in which the messages go. Once for each chunk.
using PatPlan = std::vector<std::vector<PatMessage>>;
PatPlan plan_pat(const PatShape &shape);

} // namespace collwire::cuda_double
