// SPDX-License-Identifier: Apache-2.0
// Operations of official libraries, as they lay in the proxy's memory, and what NCCL's kernels then
// sent or received on the connection: taken from the log of tests/cuda_double.
#pragma once

#include <cstdint>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/op_bytes.h"

namespace collwire::nccl::test {

inline constexpr bool SEND = true, RECEIVE = false;

struct ObservedCollective {
    std::uint32_t version;
    cw_nccl_pattern pattern;
    cw_nccl_protocol protocol;
    std::int32_t n_ranks, rank, peer;
    bool is_send;
    std::int32_t root, ring_index;
    std::uint64_t channel_bytes, chunk_bytes;
    std::uint32_t nsteps;
    std::uint8_t chunk_steps, slice_steps;
    std::uint64_t payload_bytes, messages;
};

// clang-format off
inline constexpr ObservedCollective COLLECTIVES[] = {
    {23203, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL, 2, 0, 1, SEND, 0, 0, 425984, 32768, 14, 1, 1, 851968, 14},
    {22403, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL, 3, 0, 1, SEND, 0, 0, 1775064, 32768, 76, 1, 1, 4733472, 76},
    {22809, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL, 4, 2, 3, SEND, 0, 2, 133120, 32768, 12, 1, 1, 399360, 12},
    {22403, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL, 3, 0, 2, RECEIVE, 0, 0, 164, 32768, 4, 1, 1, 464, 4},
    {22403, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL128, 2, 0, 1, SEND, 0, 0, 8388608, 576000, 16, 1, 1, 8949760, 16},
    {22809, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL128, 3, 0, 1, SEND, 0, 0, 8396800, 576000, 20, 1, 1, 11943936, 20},
    {23203, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL128, 4, 3, 0, SEND, 0, 3, 8388608, 576000, 24, 1, 1, 13430784, 24},
    {22809, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL128, 4, 1, 2, SEND, 0, 1, 164, 576000, 6, 1, 1, 12288, 6},
    {22809, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_SIMPLE, 2, 0, 1, SEND, 0, 0, 8380420, 2097152, 16, 4, 2, 8380420, 8},
    {23203, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_SIMPLE, 3, 2, 1, RECEIVE, 0, 2, 8388608, 2097152, 32, 4, 2, 11184816, 16},
    {22403, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_SIMPLE, 4, 3, 2, RECEIVE, 0, 3, 8396800, 2097152, 48, 4, 2, 12595200, 24},
    {23203, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_SIMPLE, 4, 2, 3, SEND, 0, 2, 8, 2097152, 24, 4, 2, 16, 12},
    {23203, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL, 3, 1, 2, SEND, 0, 1, 1001, 32768, 4, 1, 1, 2688, 4},
    {22403, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL128, 4, 0, 1, SEND, 0, 0, 7, 576000, 6, 1, 1, 2048, 6},
    {22809, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_SIMPLE, 3, 2, 0, SEND, 0, 2, 1, 2097152, 16, 4, 2, 1, 8},
    {22809, CW_NCCL_PATTERN_RING, CW_NCCL_LL, 4, 1, 2, RECEIVE, 0, 2, 50176, 32768, 6, 1, 1, 301056, 6},
    {23203, CW_NCCL_PATTERN_RING, CW_NCCL_LL, 3, 0, 2, RECEIVE, 0, 0, 80000, 32768, 6, 1, 1, 320000, 6},
    {22403, CW_NCCL_PATTERN_RING, CW_NCCL_LL128, 3, 1, 2, SEND, 0, 1, 2101248, 576000, 8, 1, 1, 4485120, 8},
    {22809, CW_NCCL_PATTERN_RING, CW_NCCL_LL128, 4, 3, 2, RECEIVE, 0, 3, 1130496, 576000, 6, 1, 1, 3618816, 6},
    {23203, CW_NCCL_PATTERN_RING, CW_NCCL_SIMPLE, 4, 1, 2, SEND, 0, 1, 2105344, 2097152, 24, 4, 2, 6316032, 12},
    {22403, CW_NCCL_PATTERN_RING, CW_NCCL_SIMPLE, 4, 0, 1, SEND, 0, 0, 2101248, 2097152, 24, 4, 2, 6303744, 12},
    {22809, CW_NCCL_PATTERN_PIPELINE_FROM, CW_NCCL_LL, 3, 0, 2, RECEIVE, 1, 0, 1622016, 32768, 50, 1, 1, 3244032, 50},
    {23203, CW_NCCL_PATTERN_PIPELINE_FROM, CW_NCCL_LL128, 3, 0, 2, RECEIVE, 1, 0, 8388608, 576000, 15, 1, 1, 8949760, 15},
    {22403, CW_NCCL_PATTERN_PIPELINE_FROM, CW_NCCL_SIMPLE, 4, 1, 2, SEND, 1, 1, 1614496, 524288, 4, 1, 1, 1614496, 4},
    {22809, CW_NCCL_PATTERN_PIPELINE_TO, CW_NCCL_LL, 3, 0, 2, RECEIVE, 1, 0, 69632, 32768, 3, 1, 1, 139264, 3},
    {23203, CW_NCCL_PATTERN_PIPELINE_TO, CW_NCCL_LL128, 3, 1, 2, SEND, 2, 1, 1740160, 576000, 4, 1, 1, 1857536, 4},
    {22403, CW_NCCL_PATTERN_PIPELINE_TO, CW_NCCL_SIMPLE, 3, 1, 2, SEND, 0, 1, 540672, 524288, 2, 1, 1, 540672, 2},
    {22809, CW_NCCL_PATTERN_TREE_UP_DOWN, CW_NCCL_LL, 3, 0, 2, RECEIVE, 0, 0, 81920, 32768, 3, 1, 1, 163840, 3},
    {23203, CW_NCCL_PATTERN_TREE_UP_DOWN, CW_NCCL_LL128, 2, 1, 0, SEND, 0, 1, 17888, 17280, 2, 1, 1, 20480, 2},
    {22403, CW_NCCL_PATTERN_TREE_UP_DOWN, CW_NCCL_SIMPLE, 2, 0, 1, RECEIVE, 0, 0, 532480, 524288, 2, 1, 1, 532480, 2},
    {23203, CW_NCCL_PATTERN_PAT_UP, CW_NCCL_SIMPLE, 3, 0, 2, RECEIVE, 0, 0, 16384, 65536, 1, 1, 1, 16384, 1},
    {23203, CW_NCCL_PATTERN_PAT_UP, CW_NCCL_SIMPLE, 4, 1, 3, SEND, 0, 1, 16384, 65536, 1, 1, 1, 16384, 1},
    {22809, CW_NCCL_PATTERN_PAT_UP, CW_NCCL_SIMPLE, 5, 0, 3, RECEIVE, 0, 0, 6544, 65536, 1, 1, 1, 13088, 1},
    {22809, CW_NCCL_PATTERN_PAT_UP, CW_NCCL_SIMPLE, 5, 4, 0, RECEIVE, 0, 4, 523776, 131072, 4, 1, 1, 523776, 4},
    {23203, CW_NCCL_PATTERN_PAT_DOWN, CW_NCCL_SIMPLE, 3, 2, 1, RECEIVE, 0, 2, 20000, 65536, 1, 1, 1, 20000, 1},
    {23203, CW_NCCL_PATTERN_PAT_DOWN, CW_NCCL_SIMPLE, 4, 2, 3, RECEIVE, 0, 2, 100, 65536, 1, 1, 1, 200, 1},
    {23203, CW_NCCL_PATTERN_PAT_DOWN, CW_NCCL_SIMPLE, 5, 3, 0, RECEIVE, 0, 3, 100, 65536, 1, 1, 1, 100, 1},
    {22809, CW_NCCL_PATTERN_PAT_DOWN, CW_NCCL_SIMPLE, 4, 3, 1, RECEIVE, 0, 3, 78084, 65536, 2, 1, 1, 78084, 2},
    {22809, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL, 4, 2, 1, SEND, 0, 1, 309248, 32768, 18, 1, 1, 927744, 18},
    {22809, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL, 4, 2, 1, SEND, 0, 1, 8192, 32768, 6, 1, 1, 24576, 6},
    {23203, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL128, 4, 1, 2, RECEIVE, 0, 2, 56646, 576000, 6, 1, 1, 98304, 6},
    {23203, CW_NCCL_PATTERN_RING_TWICE, CW_NCCL_LL128, 4, 1, 2, RECEIVE, 0, 2, 492099, 576000, 6, 1, 1, 798720, 6},
    {22809, CW_NCCL_PATTERN_PAT_UP, CW_NCCL_SIMPLE, 5, 0, 1, SEND, 0, 0, 100, 65536, 2, 1, 1, 400, 2},
    {23203, CW_NCCL_PATTERN_PAT_UP, CW_NCCL_SIMPLE, 5, 3, 4, SEND, 0, 3, 6880, 65536, 2, 1, 1, 27520, 2},
};
// clang-format on

inline OpFacts facts_of(const ObservedCollective &observed) {
    OpFacts facts;
    facts.version = observed.version;
    facts.n_ranks = observed.n_ranks;
    facts.rank = observed.rank;
    facts.peer = observed.peer;
    facts.is_send = observed.is_send;
    facts.op.pattern = static_cast<std::uint8_t>(observed.pattern);
    facts.op.protocol = static_cast<std::uint8_t>(observed.protocol);
    facts.op.peer = observed.peer;
    facts.op.root = observed.root;
    facts.op.ring_index = observed.ring_index;
    facts.op.channel_bytes = observed.channel_bytes;
    facts.op.chunk_bytes = observed.chunk_bytes;
    facts.op.nsteps = observed.nsteps;
    facts.op.chunk_steps = observed.chunk_steps;
    facts.op.slice_steps = observed.slice_steps;
    return facts;
}

struct ObservedTransfer {
    std::uint32_t version;
    cw_nccl_protocol protocol;
    bool is_send;
    std::uint64_t task_bytes;
    std::uint8_t task_channels; // until 2.27 not known
    std::uint32_t p2p_channels, first_channel;
    std::uint64_t chunk_bytes;
    struct Part {
        std::uint8_t channel;
        std::uint64_t nbytes;
        std::uint32_t nsteps;
        std::uint64_t payload_bytes;
    };
    std::vector<Part> parts;
};

// clang-format off
inline const ObservedTransfer TRANSFERS[] = {
    {22403, CW_NCCL_SIMPLE, SEND, 400004, 0, 4, 1, 65536, {{1, 65536, 4, 200704}, {3, 65536, 4, 199300}}},
    {22403, CW_NCCL_SIMPLE, RECEIVE, 302003, 0, 4, 3, 65536, {{1, 65536, 3, 150451}, {3, 65536, 3, 151552}}},
    {22403, CW_NCCL_SIMPLE, SEND, 131688, 0, 4, 3, 65536, {{1, 62056, 1, 62056}, {3, 65536, 2, 69632}}},
    {22403, CW_NCCL_SIMPLE, RECEIVE, 1291612, 0, 8, 1, 131072, {{1, 131072, 3, 323584}, {3, 131072, 3, 323584}, {5, 131072, 3, 323584}, {7, 131072, 3, 320860}}},
    {22809, CW_NCCL_SIMPLE, SEND, 2034418, 2, 4, 2, 131072, {{2, 131072, 8, 1019904}, {3, 131072, 8, 1014514}}},
    {22809, CW_NCCL_SIMPLE, SEND, 1159977, 2, 4, 3, 131072, {{0, 131072, 5, 578345}, {3, 131072, 5, 581632}}},
    {22809, CW_NCCL_SIMPLE, SEND, 760551, 2, 2, 1, 65536, {{0, 65536, 6, 379623}, {1, 65536, 6, 380928}}},
    {23203, CW_NCCL_SIMPLE, RECEIVE, 400004, 2, 8, 4, 65536, {{4, 65536, 4, 200704}, {5, 65536, 4, 199300}}},
    {23203, CW_NCCL_SIMPLE, SEND, 1052580, 2, 8, 2, 131072, {{2, 131072, 5, 528384}, {3, 131072, 4, 524196}}},
    {23203, CW_NCCL_SIMPLE, SEND, 1048576, 2, 8, 4, 131072, {{4, 131072, 4, 524288}, {5, 131072, 4, 524288}}},
    {22403, CW_NCCL_SIMPLE, RECEIVE, 65536, 0, 4, 2, 32768, {{2, 32768, 2, 65536}}},
    {22809, CW_NCCL_SIMPLE, RECEIVE, 84004, 1, 4, 1, 32768, {{1, 32768, 3, 84004}}},
    {22809, CW_NCCL_SIMPLE, SEND, 4, 1, 4, 2, 32768, {{2, 4, 1, 4}}},
    {22403, CW_NCCL_LL, RECEIVE, 20000, 0, 4, 3, 32768, {{3, 32768, 2, 40000}}},
    {22809, CW_NCCL_LL, RECEIVE, 100, 1, 4, 1, 32768, {{1, 208, 1, 208}}},
    {22809, CW_NCCL_LL, SEND, 23060, 1, 4, 2, 32768, {{2, 32768, 2, 46128}}},
    {23203, CW_NCCL_LL, RECEIVE, 9261, 1, 4, 3, 32768, {{3, 18528, 1, 18528}}},
};
// clang-format on

inline std::vector<OpFacts> facts_of(const ObservedTransfer &observed) {
    std::vector<OpFacts> all;
    for (const ObservedTransfer::Part &part : observed.parts) {
        OpFacts facts;
        facts.version = observed.version;
        facts.n_ranks = 2;
        facts.rank = 0;
        facts.peer = 1;
        facts.is_send = observed.is_send;
        facts.task.bytes = observed.task_bytes;
        facts.task.n_channels = observed.task_channels;
        facts.op.pattern = observed.is_send ? CW_NCCL_PATTERN_SEND : CW_NCCL_PATTERN_RECV;
        facts.op.protocol = static_cast<std::uint8_t>(observed.protocol);
        facts.op.peer = facts.op.root = 1;
        facts.op.chunk_bytes = observed.chunk_bytes;
        facts.op.chunk_steps = facts.op.slice_steps = 1;
        facts.op.channel = part.channel;
        facts.op.nbytes = part.nbytes;
        facts.op.nsteps = part.nsteps;
        all.push_back(facts);
    }
    return all;
}

} // namespace collwire::nccl::test
