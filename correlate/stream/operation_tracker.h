// SPDX-License-Identifier: Apache-2.0
// The operations of one communicator that are not complete: collectives by their number, transfers
// by their number among those of a pair of ranks. An operation is closed, and handed over, when all
// ranks are done with it, or when it is too far behind.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "correlate/stream/operation.h"
#include "correlate/stream/rank_waits.h"
#include "correlate/stream/shape_table.h"

namespace collwire::stream {

struct Communicator {
    std::uint64_t hash = 0;
    std::int32_t n_ranks = 0;
    std::int32_t n_nodes = 0;
    std::uint32_t id = 0; // from 0, in the order of their first record
};

// A call of one rank, as the tracker gets it.
struct RankCall {
    std::int32_t rank = -1;
    std::uint32_t node = 0;
    std::uint64_t time_ns = 0; // CLOCK_MONOTONIC of the node
    std::uint64_t realtime_ns = 0;
    std::uint64_t count = 0;
    std::int32_t root = -1; // or peer
    std::int32_t reduction = 0;
    std::uint8_t func = CW_NCCL_FUNC_UNKNOWN;
    std::uint8_t datatype = 0;
    bool is_number_guessed = false;
};

class OperationTracker {
public:
    using Sink = std::function<void(const Communicator &, const Operation &)>;
    // Behind the node that called it first by so much, by that one's clock, an operation is closed
    // as it is.
    static constexpr std::uint64_t HORIZON_OPERATIONS = 1U << 16;
    static constexpr std::uint64_t HORIZON_NS = 60'000'000'000;
    // Of a pair: there may be millions of pairs.
    static constexpr std::uint64_t HORIZON_TRANSFERS = 4096;

    OperationTracker(const Communicator &communicator, const Sink &sink)
        : communicator_(communicator), sink_(sink),
          waits_(communicator.n_ranks, communicator.n_nodes) {}

    [[nodiscard]] const Communicator &communicator() const { return communicator_; }

    // `progress` is referred to until leave().
    void join(std::int32_t rank, RankProgress &progress) { waits_.join(rank, progress); }
    void leave(std::int32_t rank, const RankProgress &progress) { waits_.leave(rank, progress); }
    // Remembers a call that others may lack, unless the one before is still lacking.
    void mark(RankProgress &of, std::uint64_t number, std::uint64_t time_ns) const;
    void mark_transfer(RankProgress &of, std::uint64_t pair, std::uint64_t number,
                       std::uint64_t time_ns);
    // Whom a rank waits for whose node last called at now_ns, if it is ahead.
    [[nodiscard]] std::optional<RankWait> find_wait(std::int32_t rank, RankProgress &of,
                                                    std::uint64_t now_ns);
    [[nodiscard]] bool is_waiting(const RankWait &wait) const;
    void give_up(const RankWait &wait) { waits_.give_up(wait); }

    void called(std::uint64_t number, const RankCall &call);
    // bytes: null if they are not known yet; add_bytes() may come later.
    void launched(std::uint64_t number, std::uint64_t realtime_ns, const TaskBytes *bytes);
    void add_bytes(std::uint64_t number, const TaskBytes &bytes);
    // A rank is done with all collectives from `from` to before `to`: they were launched, or will
    // not be.
    void settled(std::uint64_t from, std::uint64_t to);

    // The same for the end of a transfer that `call` made. Its number counts from 0 for each pair
    // and direction.
    [[nodiscard]] static std::uint64_t pair_of(const RankCall &call);
    void transfer_called(std::uint64_t pair, std::uint64_t number, const RankCall &call);
    void transfer_launched(std::uint64_t pair, std::uint64_t number, std::uint64_t realtime_ns,
                           const TaskBytes *bytes);
    void add_transfer_bytes(std::uint64_t pair, std::uint64_t number, const TaskBytes &bytes);
    void transfer_settled(std::uint64_t pair, std::uint64_t number);

    // A graph launched a task again: these launches are in no operation.
    void replayed(const TaskBytes &task) { replayed_payload_bytes_ += task.payload_bytes; }
    [[nodiscard]] std::uint64_t replayed_payload_bytes() const { return replayed_payload_bytes_; }

    // Closes everything.
    void flush();

    // Calls for operations that were closed before.
    [[nodiscard]] std::uint64_t late_calls() const { return late_calls_; }
    // Operations that were closed at the horizon.
    [[nodiscard]] std::uint64_t cut() const { return cut_; }
    [[nodiscard]] std::size_t open() const { return open_.size(); }

private:
    struct Open {
        Operation operation;
        std::uint64_t first_ns = 0; // of the first call that came, CLOCK_MONOTONIC of its node
        std::uint32_t node = 0;
        std::uint32_t settled = 0;
        std::uint32_t without_bytes = 0; // launches
    };
    struct Pair {
        std::uint64_t base = 0;
        std::vector<Open> open; // mostly none or one
    };
    // Null: it was closed before.
    Open *at(std::uint64_t number);
    Open *transfer_at(std::uint64_t pair, std::uint64_t number);
    void take_call(Operation &operation, const RankCall &call) const;
    static void take_launch(Open &open, std::uint64_t realtime_ns, const TaskBytes *bytes);
    static void take_bytes(Operation &operation, const TaskBytes &bytes);
    void close(Open &open);
    void close_first();
    void cut_first();
    void close_ready();
    // Whether the other end of a transfer has not called it.
    [[nodiscard]] bool lacks_end(const CallMark &transfer) const;

    Communicator communicator_;
    const Sink &sink_;
    std::uint64_t base_ = 0; // number of the first open one
    bool is_based_ = false;
    bool has_closed_ = false;
    std::deque<Open> open_;
    std::unordered_map<std::uint64_t, Pair> pairs_;
    RankWaits waits_;
    std::uint64_t called_by_all_ = 0; // collectives before it, by all who are awaited
    std::uint64_t cut_ = 0;
    std::uint64_t late_calls_ = 0;
    std::uint64_t replayed_payload_bytes_ = 0;
};

} // namespace collwire::stream
