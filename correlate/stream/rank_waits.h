// SPDX-License-Identifier: Apache-2.0
// Which rank of a communicator waits for which other one. Decided by numbers, and for how long by
// the clock of the waiting rank's node alone: clocks of nodes may be hours apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace collwire::stream {

// A call that other ranks may lack yet.
struct CallMark {
    static constexpr std::uint64_t NONE = UINT64_MAX;
    std::uint64_t number = NONE;
    std::uint64_t pair = 0;    // of a transfer
    std::uint64_t time_ns = 0; // CLOCK_MONOTONIC of its node
};

// How far a rank is.
struct RankProgress {
    std::uint32_t node = 0;
    std::uint64_t next = 0;      // number of its next collective
    bool is_numbered = true;     // its numbers are those of the others
    bool is_awaited = true;      // until others give up waiting for it
    std::uint32_t transfers = 0; // since `transfer`
    CallMark collective;
    CallMark transfer;
};

class OperationTracker;

// A rank that called waits for another one that did not.
struct RankWait {
    OperationTracker *tracker = nullptr;
    CallMark call;
    bool is_transfer = false;
    std::int32_t rank = -1; // that it waits for; -1: for one that was not met yet
    std::size_t n_met = 0;  // then: ranks that were
};

// The ranks of one communicator.
class RankWaits {
public:
    // A rank that has called for so long after a call that others lack is ahead.
    static constexpr std::uint64_t AHEAD_NS = 2'000'000'000;
    static constexpr std::uint64_t AHEAD_OPERATIONS = 1U << 14;
    static constexpr std::uint32_t AHEAD_TRANSFERS = 1024;

    // n_nodes: of the communicator. Ranks of one node do not wait for each other: they are read
    // together.
    RankWaits(std::int32_t n_ranks, std::int32_t n_nodes);

    // `progress` is referred to until leave().
    void join(std::int32_t rank, RankProgress &progress);
    // It makes no more calls. Without effect if another one has joined as this rank.
    void leave(std::int32_t rank, const RankProgress &progress);

    // Calls of a collective that all can have who are awaited.
    [[nodiscard]] std::uint32_t expected_calls() const;

    // Somebody who has not called the collective `number`, and is awaited by a rank of `node`. Of
    // what is returned, the tracker and the call are left to be set.
    [[nodiscard]] std::optional<RankWait> lacking(std::uint64_t number, std::uint32_t node) const;
    // The same for a transfer with `peer`, which has not called it.
    [[nodiscard]] std::optional<RankWait> lacking_peer(std::int32_t peer, std::uint32_t node) const;
    // Whether the rank of a wait is still awaited, and has not called that collective.
    [[nodiscard]] bool is_lacking(const RankWait &wait) const;
    void give_up(const RankWait &wait);

private:
    struct Member {
        RankProgress *progress = nullptr; // null: not met yet, or has left
        bool is_met = false;
    };
    [[nodiscard]] bool waits_for_unmet() const { return !gave_up_ && n_met_ < members_.size(); }

    std::vector<Member> members_; // by rank; empty: no rank waits
    std::size_t n_met_ = 0;
    std::size_t n_left_ = 0;
    bool gave_up_ = false; // waiting for those that were not met
};

} // namespace collwire::stream
