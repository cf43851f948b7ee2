// SPDX-License-Identifier: Apache-2.0
// Finds the network plugin and the queue pairs of a connection, in the memory of the plugin's
// objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "collwire/nccl_connection_records.h"
#include "userspace/process/process_view.h"

namespace collwire::sources {

class NcclPlugins {
public:
    // The QPNs of each process in the kernel.
    using QpNumbers = std::unordered_map<std::uint32_t, std::unordered_set<std::uint32_t>>;
    // Empty: they cannot be read.
    using ReadNumbers = std::function<std::optional<QpNumbers>()>;
    struct Times {
        std::uint64_t search_ns = 50'000'000;   // of one search, which is part of a sample
        std::uint64_t retry_ns = 1'000'000'000; // between two tries for one connection
    };

    explicit NcclPlugins(ReadNumbers read_numbers) : NcclPlugins(std::move(read_numbers), {}) {}
    NcclPlugins(ReadNumbers read_numbers, const Times &times)
        : read_numbers_(std::move(read_numbers)), times_(times) {}

    // Process and address of the connection's communicator. The connection may be in another
    // process.
    using Owner = std::pair<std::uint32_t, std::uint64_t>;

    // A connection whose queue pairs are to be found. `net`: address of the plugin's function
    // table; 0: unknown.
    void add(const cw_nccl_connection &connection, const Owner &owner, std::uint32_t image_id,
             std::uint64_t net);

    struct Found {
        std::vector<std::pair<Owner, cw_nccl_connection>> connections; // with all their endpoints
        std::vector<cw_nccl_network> networks;
    };
    // Searches as many of the added connections as there is time for, and at least one of a
    // process. The next call continues. A connection without result is tried MAX_TRIES times.
    Found search();
    // A search is due, and the last one was long enough ago: searches take a fifth of the time at
    // most.
    [[nodiscard]] bool is_due() const;
    // All networks, for a new segment of the capture.
    [[nodiscard]] std::vector<cw_nccl_network> networks() const;
    // Connections that ended before they were searched.
    [[nodiscard]] std::size_t dropped() const { return n_dropped_; }
    // Connections that were not searched yet.
    [[nodiscard]] std::size_t unsearched() const;
    void forget(std::uint32_t tgid);
    // The memory of its connections may be reused from here on.
    void forget(const Owner &owner);

private:
    using Key = std::pair<std::uint32_t, std::uint64_t>; // process, net
    struct Wanted {
        Owner owner;
        cw_nccl_connection connection{};
        unsigned tries = 0;
        std::uint64_t due_ns = 0; // of the next try
    };
    struct Network {
        cw_nccl_network record{};
        unsigned tries = 0;
        bool is_emitted = false;
    };
    // False: it has exited.
    bool search_process(std::uint32_t tgid, std::vector<Wanted> &wanted, const QpNumbers *numbers,
                        std::uint64_t until_ns, Found &found);
    void read_networks(const process::ProcessView &process, Found &found);
    void drop(const std::vector<Wanted> &wanted);
    void forget_if(const std::function<bool(const Owner &)> &is_gone);

    ReadNumbers read_numbers_;
    Times times_;
    std::uint64_t due_ns_ = UINT64_MAX;                   // of the next try of any connection
    std::uint64_t searched_ns_ = 0;                       // end of the last search
    std::uint64_t took_ns_ = 0;                           // duration of the last search
    std::uint32_t last_tgid_ = 0;                         // the last process that was searched
    std::map<std::uint32_t, std::vector<Wanted>> wanted_; // by process
    std::map<Key, Network> networks_;
    std::size_t n_dropped_ = 0;
};

} // namespace collwire::sources
