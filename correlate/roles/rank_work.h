// SPDX-License-Identifier: Apache-2.0
// What one rank called in a communicator, and the facts of a communicator from those of its ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "correlate/roles/facts.h"

namespace collwire::roles {

// `bytes`: of the call's own count; `func`: enum cw_nccl_func.
[[nodiscard]] CollectiveKind kind_of(std::uint8_t func, std::uint64_t bytes, std::int32_t n_ranks);

// Of two ranks: whether one's sends and receives take turns. Transfers of one launch are
// simultaneous.
class TurnCounter {
public:
    // In their order; `launch`: any number of its own.
    void add(bool is_send, std::uint64_t launch);
    [[nodiscard]] bool takes_turns(); // after all

private:
    void finish_launch();

    std::optional<std::uint64_t> launch_;
    std::int64_t sends_ = 0, receives_ = 0;
    std::int64_t ahead_ = 0, least_ = 0, most_ = 0; // sends less receives
    std::int64_t up_ = 0, down_ = 0;                // the longest way up and down
    std::int64_t n_both_ = 0, n_alone_ = 0;
};

// As GroupFacts has them, of one rank's calls.
struct RankWork {
    // Large collectives, and different sizes of transfers, that are remembered.
    static constexpr std::size_t MOST_LATEST = 4096, MOST_SIZES = 1024;

    std::map<CollectiveKind, std::uint64_t> collectives;
    std::vector<CollectiveKind> latest;
    std::map<std::int32_t, std::uint64_t> sends, receives;             // by peer
    std::map<std::uint64_t, std::uint64_t> sent_sizes, received_sizes; // bytes: how often
    std::optional<bool> takes_turns;

    // In their order.
    void add_collective(const CollectiveKind &kind);
    void add_transfer(bool is_send, std::int32_t peer, std::uint64_t bytes);
    void finish(); // after all
};

// A communicator from its captured ranks, in any order.
class GroupMaker {
public:
    void add(const Member &member, RankWork work);
    [[nodiscard]] GroupFacts take(std::int32_t n_ranks, std::int32_t n_nodes);

private:
    GroupFacts facts_;
    std::uint64_t n_collectives_ = 0; // of the rank that called the most
    std::map<std::uint64_t, std::uint64_t> received_sizes_;
    bool lacks_turns_ = false;
};

} // namespace collwire::roles
