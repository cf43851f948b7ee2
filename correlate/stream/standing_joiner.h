// SPDX-License-Identifier: Apache-2.0
// From where the ranks of each node stood to where each communicator stood. Keeps of a node only
// what communicators need that are not complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "correlate/model/jobs.h"
#include "correlate/roles/group_jobs.h"
#include "correlate/roles/rank_work.h"
#include "correlate/stall/standing.h"
#include "correlate/stream/clock_graph.h"
#include "correlate/stream/pair_joiner.h"
#include "correlate/stream/rank_standing.h"

namespace collwire::stream {

class StandingJoiner {
public:
    // Operations of a communicator that are remembered, from the last one back.
    static constexpr std::size_t MOST_OPERATIONS = 4096;
    // Calls of a rank whose times are remembered.
    static constexpr std::size_t MOST_TIMES = 32;

    void add(NodeSeen node);

    // Not empty: why these captures need the whole model, in words.
    // Then take() and jobs() are of no use. Ask before take(), and after it.
    [[nodiscard]] const std::string &needs_model() const { return needs_model_; }
    // That may be because what was read is too short.
    [[nodiscard]] bool may_be_too_short() const { return may_be_too_short_; }
    // Ranks whose last launch may be done or not, and pairs of ranks whose sends and receives
    // cannot be compared: what was read may be too short to tell. After take().
    [[nodiscard]] std::size_t unknown_ends() const { return unknown_ends_ + unknown_pairs_; }
    [[nodiscard]] std::size_t unknown_pairs() const { return unknown_pairs_; }
    // As NodeSeen has them, of any node.
    [[nodiscard]] bool has_network_signs() const { return has_network_signs_; }
    [[nodiscard]] bool has_errors() const { return has_errors_; }
    // By how much each host's clock is ahead of the common one. After take().
    [[nodiscard]] std::map<std::string, std::int64_t> clocks() const;
    // After all nodes; once.
    [[nodiscard]] stall::Standings take();
    [[nodiscard]] std::vector<model::ClusterJob> jobs() const;

private:
    struct Seen {
        std::uint64_t first_ns = 0;
        std::size_t node = 0; // by whose clock
        bool is_called = false;
        CallArguments arguments; // of the first rank that was added
        // Of ranks that gave others.
        std::vector<std::pair<std::int32_t, CallArguments>> others;
    };
    struct Member {
        std::size_t node = 0;
        RankStanding standing; // without its calls
        std::uint64_t first_number = 0, n_calls = 0;
        std::vector<std::uint64_t> times_ns; // of the last calls
    };
    struct Joined {
        std::map<std::int32_t, Member> members; // by rank
        std::deque<Seen> operations;
        std::uint64_t base = 0; // number of the first one
        PairJoiner pairs;
        roles::GroupMaker group;
    };
    using Key = std::pair<std::uint64_t, std::int32_t>; // hash, ranks

    void need_model(const std::string &why);
    bool number_by_silence(std::vector<RankStanding *> &ranks) const;
    void add_rank(std::size_t node, RankStanding rank);
    [[nodiscard]] static Seen *at(Joined &joined, std::uint64_t number);
    static void add_differences(const Joined &joined, ClockGraph &clocks);
    void solve_clocks();
    [[nodiscard]] std::vector<Key> in_order() const;
    [[nodiscard]] std::uint64_t common_ns(std::size_t node, std::uint64_t time_ns) const;
    [[nodiscard]] stall::Communicator standing_of(const Key &key, const Joined &joined) const;
    [[nodiscard]] stall::Operation operation_of(const Joined &joined, std::uint64_t number) const;
    void check_exits(const Joined &joined);
    void add_guesses(stall::Standings &job);

    struct Node {
        std::string host;
        std::int64_t ahead_ns = 0; // of the common clock
    };
    std::vector<Node> nodes_;
    std::map<Key, Joined> joined_;
    std::map<roles::Device, std::size_t> places_; // in devices_
    std::vector<roles::Device> devices_;
    std::map<std::string, std::size_t> hosts_;
    NetworkSeen network_;
    std::map<std::string, model::ClusterJob> jobs_;
    std::string needs_model_;
    bool may_be_too_short_ = false;
    bool has_network_signs_ = false, has_errors_ = false;
    std::size_t unknown_ends_ = 0;
    std::size_t unknown_pairs_ = 0;
};

} // namespace collwire::stream
