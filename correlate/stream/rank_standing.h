// SPDX-License-Identifier: Apache-2.0
// Where the ranks of one node stood at the end of what was read of it. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "correlate/roles/rank_work.h"

namespace collwire::stream {

// What ranks of one operation must agree on.
struct CallArguments {
    std::uint64_t count = 0;
    std::int32_t root = -1;
    std::uint8_t func = CW_NCCL_FUNC_UNKNOWN;
    std::uint8_t datatype = 0;
    friend bool operator==(const CallArguments &, const CallArguments &) = default;
};

struct CollectiveCall {
    std::uint64_t realtime_ns = 0; // of its node
    CallArguments arguments;
};

struct TransferCall {
    std::uint64_t realtime_ns = 0; // of its node
    std::uint64_t count = 0;
    // Its place on one of its connections, the same at both ends: the steps of that connection
    // after it. 0: not known.
    std::uint64_t end_steps = 0;
    std::uint32_t connection = 0; // channel and index
    std::uint8_t datatype = 0;
};

// The sends of a rank to another one, or its receives from that one, in what was read.
struct PeerCalls {
    std::int32_t peer = -1;
    bool is_send = false;
    std::uint64_t n = 0;
    std::vector<TransferCall> last;
    // Of the first one, counted as its other end does. Absent: not known.
    std::optional<std::uint64_t> first_number;
};

// Of a live communicator. Times are CLOCK_REALTIME of its node; 0: not known.
struct RankStanding {
    std::uint64_t hash = 0;
    std::int32_t n_ranks = 0;
    std::int32_t n_nodes = 0;
    std::int32_t rank = -1;
    std::string name;
    bool is_named_at_creation = false;
    std::uint32_t pid = 0;
    std::uint64_t begin_ns = 0;  // of the communicator, as the process has it
    std::uint64_t until_ns = 0;  // it was recorded up to then
    std::uint64_t exited_ns = 0; // its process had exited then
    // Its collectives in what was read, by time, and the number of the first one. Absent: nothing
    // counts them.
    std::vector<CollectiveCall> calls;
    std::optional<std::uint64_t> first_number;
    bool is_first_unknown = false;         // they are counted from any one of them on
    std::optional<std::uint64_t> launched; // number of the last one
    std::vector<PeerCalls> transfers;
    bool is_from_creation = false;      // all of its calls were read
    std::uint64_t longest_pause_ns = 0; // between two of its calls, of any kind
    // As in stall::Rank, by number.
    std::optional<std::uint64_t> in_flight;
    std::uint64_t in_flight_seen_ns = 0;
    std::optional<bool> is_done;
    bool has_unknown_end = false; // its last launch uses the network, and its end is not known
    std::uint64_t bus_id = 0;     // of its GPU; 0: not known
    std::int32_t cuda_dev = -1;
    roles::RankWork work;             // in what was read
    std::uint64_t waits_until_ns = 0; // in an operation of any kind; 0: it waits for none
};

struct NetworkSeen {
    std::size_t queue_pairs = 0;
    std::size_t counted_queue_pairs = 0; // whose retransmissions are counted; none has any
    std::size_t sockets = 0;             // likewise
    std::size_t ports = 0;
};

struct JobSeen {
    std::string title;
    std::size_t processes = 0;               // with a communicator
    std::int32_t n_ranks = 0;                // of its largest communicator
    std::uint64_t first_ns = 0, last_ns = 0; // calls, CLOCK_REALTIME of the node; 0: none
};

struct NodeSeen {
    std::string host;
    std::string boot;
    std::vector<RankStanding> ranks;
    NetworkSeen network;
    // A record may speak against the network, or is an error of NCCL. The records of all nodes are
    // then read once more (stall::find_network, stall::first_errors).
    bool has_network_signs = false, has_errors = false;
    std::vector<JobSeen> jobs;
    // Not empty: something in it needs the model of the whole, in words.
    std::string needs_model;
};

} // namespace collwire::stream
