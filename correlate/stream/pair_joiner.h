// SPDX-License-Identifier: Apache-2.0
// From the sends and receives of ranks, each for itself, to those without their other end. Keeps of
// a pair of ranks what its second end needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "correlate/stream/rank_standing.h"

namespace collwire::stream {

// Of one communicator.
class PairJoiner {
public:
    // A send without its receive, or the other way round: the first one of its pair.
    struct Open {
        bool is_send = false; // else the receive is there
        std::size_t node = 0; // of the end that is there
        TransferCall call;
    };
    // By how much a node's clock is ahead of another one's, by a send and its receive.
    struct Apart {
        std::size_t from = 0, to = 0; // nodes
        std::int64_t ahead_ns = 0;
    };
    using Pair = std::pair<std::int32_t, std::int32_t>; // source, destination
    using CommonTime = std::function<std::uint64_t(std::size_t node, std::uint64_t time_ns)>;

    // The transfers of `rank`.
    void add(std::size_t node, const RankStanding &rank);
    [[nodiscard]] const std::vector<Apart> &clocks() const { return clocks_; }
    // After all ranks, with the nodes' common clock.
    void finish(const CommonTime &common_ns);

    [[nodiscard]] const std::map<Pair, Open> &open() const { return open_; }
    // Pairs of recorded ranks of which it is not known which sends and receives belong together.
    [[nodiscard]] std::size_t unknown() const { return unknown_; }

private:
    struct End {
        std::size_t node = 0;
        PeerCalls calls;
    };
    // Receive i is send i + the result. Absent: not known.
    [[nodiscard]] static std::optional<std::int64_t> by_number(const End &send, const End &receive);
    [[nodiscard]] static std::optional<std::int64_t> by_steps(const End &send, const End &receive);
    [[nodiscard]] static std::optional<std::int64_t> by_time(const End &send, const End &receive,
                                                             const CommonTime &common_ns);
    void settle(const Pair &pair, const End &send, const End &receive, std::int64_t offset);
    void put_open(const Pair &pair, const End &end, std::int64_t index);

    std::map<Pair, End> sends_, receives_;       // whose other end is not there, or not comparable
    std::map<std::int32_t, bool> from_creation_; // ranks
    std::map<Pair, Open> open_;
    std::vector<Apart> clocks_;
    std::size_t unknown_ = 0;
};

} // namespace collwire::stream
