// SPDX-License-Identifier: Apache-2.0
// Connections that go through a network plugin: which one, and which queue pairs are theirs. Read
// out of the plugin's own objects, without a probe, once each is known.
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

namespace collwire {

class NcclPlugins {
public:
    // Numbers of the queue pairs of each process, as the kernel knows them.
    using QpNumbers = std::unordered_map<std::uint32_t, std::unordered_set<std::uint32_t>>;
    // Nothing: they cannot be read.
    using ReadNumbers = std::function<std::optional<QpNumbers>()>;
    struct Times {
        std::uint64_t look_ns = 50'000'000;     // of each look: a sample has other things to do
        std::uint64_t again_ns = 1'000'000'000; // between two tries of one connection
    };

    explicit NcclPlugins(ReadNumbers read_numbers) : NcclPlugins(std::move(read_numbers), {}) {}
    NcclPlugins(ReadNumbers read_numbers, const Times &times)
        : read_numbers_(std::move(read_numbers)), times_(times) {}

    // Whose connection it is: process and address of a communicator. It may be in another process.
    using Owner = std::pair<std::uint32_t, std::uint64_t>;

    // A connection of a plugin whose queue pairs are not known. `net`: address of the plugin's
    // table of functions; 0: not known.
    void note(const cw_nccl_connection &connection, const Owner &owner, std::uint32_t image_id,
              std::uint64_t net);

    struct Found {
        std::vector<std::pair<Owner, cw_nccl_connection>> connections; // with all their endpoints
        std::vector<cw_nccl_network> networks;
    };
    // Of those that were noted, as many as there is time for, and one of a process at least; the
    // others are looked at with the next call. One that leads to no queue pair is tried again, up
    // to MAX_TRIES.
    Found look();
    // There is something to look at now, and the last look was long enough ago: no more than a
    // fifth of the time is spent.
    [[nodiscard]] bool is_due() const;
    // All networks that were found, for a new segment of the capture.
    [[nodiscard]] std::vector<cw_nccl_network> networks() const;
    // Connections that were never looked at and never will be.
    [[nodiscard]] std::size_t dropped() const { return n_dropped_; }
    // Those that were not looked at yet.
    [[nodiscard]] std::size_t waiting() const;
    void forget(std::uint32_t tgid);
    // Its connections' memory may be others' from now on.
    void forget(const Owner &owner);

private:
    using Key = std::pair<std::uint32_t, std::uint64_t>; // process, net
    struct Noted {
        Owner owner;
        cw_nccl_connection connection{};
        unsigned tries = 0;
        std::uint64_t due_ns = 0; // when it is looked at next
    };
    struct Network {
        cw_nccl_network record{};
        unsigned tries = 0;
        bool is_told = false;
    };
    // False: it has ended.
    bool look_at_process(std::uint32_t tgid, std::vector<Noted> &noted, const QpNumbers *numbers,
                         std::uint64_t until_ns, Found &found);
    void look_at_networks(const ProcessView &process, Found &found);
    void drop(const std::vector<Noted> &noted);
    void forget_if(const std::function<bool(const Owner &)> &is_gone);

    ReadNumbers read_numbers_;
    Times times_;
    std::uint64_t due_ns_ = UINT64_MAX;                 // when there is something to look at
    std::uint64_t looked_ns_ = 0;                       // when
    std::uint64_t took_ns_ = 0;                         // how long
    std::uint32_t last_tgid_ = 0;                       // that was looked at
    std::map<std::uint32_t, std::vector<Noted>> noted_; // by process
    std::map<Key, Network> networks_;
    std::size_t n_dropped_ = 0;
};

} // namespace collwire
