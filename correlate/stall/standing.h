// SPDX-License-Identifier: Apache-2.0
// Where each rank of each communicator stood when its capture, or its process, ended. Plain values;
// judge() reads nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace collwire::stall {

// Times are realtime on one clock; 0: not known.
struct Rank {
    std::int32_t rank = -1;
    std::string host;
    std::uint32_t pid = 0;
    std::uint64_t until_ns = 0;       // the captures have it up to then
    std::uint64_t whole_until_ns = 0; // and no call of it is missing up to then
    std::uint64_t exited_ns = 0;      // its process had exited then; 0: its exit is not recorded
    // Positions in Communicator::operations, of the last ones.
    std::optional<std::size_t> called, launched;
    std::uint64_t called_ns = 0;
    // The longest time between two of its calls in this communicator.
    std::uint64_t longest_pause_ns = 0;
    // The first one that was seen unfinished at the last sample of its connections.
    std::optional<std::size_t> in_flight;
    std::uint64_t in_flight_seen_ns = 0; // of the last reading that showed it
    // Whether all that it launched is done; absent: nothing of its last launch uses the network.
    std::optional<bool> is_done;
};

struct Operation {
    std::string text;           // "AllReduce seq 12, 4.00 MiB"
    std::uint64_t begin_ns = 0; // its first call of any rank
    bool differs = false;       // ranks passed different arguments
    struct Variant {
        std::string text;
        std::vector<std::int32_t> ranks;
    };
    std::vector<Variant> variants; // if it differs
};

// A send without its receive, or the other way round.
struct OpenPair {
    std::int32_t from = -1, awaits = -1; // ranks
    std::string text;                    // of the call of `awaits` that is missing
    std::uint64_t since_ns = 0;
};

// An error that NCCL or the recorder found, the first one of its communicator.
struct FirstError {
    std::int32_t rank = -1;
    bool is_exit = false; // its process ended; else NCCL reported it
    std::uint64_t time_ns = 0;
    std::string text;
    std::vector<std::int32_t> waiting; // ranks that were in an operation later
};

struct Communicator {
    std::uint64_t hash = 0;
    std::string name;         // empty: none
    std::string guessed_role; // empty: no guess, or it has a name (docs/roles.md)
    std::int32_t n_ranks = 0;
    std::vector<Rank> ranks;           // the recorded ones, by rank
    std::vector<std::int32_t> missing; // no capture has them
    bool is_comparable = false;        // the positions of all recorded ranks count alike
    // Every launch uses the network: others may not be recorded.
    bool has_all_launches = false;
    std::vector<Operation> operations; // those that ranks refer to, in their order
    std::vector<OpenPair> open_pairs;
    std::optional<FirstError> error;
};

// Of all recorded hosts.
struct Network {
    bool is_watched = false;          // queue pairs, ports or sockets were recorded
    std::vector<std::string> against; // what speaks against it
    std::vector<std::string> in_favour;
};

struct Standings {
    std::vector<Communicator> communicators; // those that were not ended
    Network network;
};

} // namespace collwire::stall
