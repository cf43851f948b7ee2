// SPDX-License-Identifier: Apache-2.0
// One rank of a communicator in its process: numbers its calls, and finds the call of each launch.
//
// A thread launches what it has called before it calls again. So launches wait here until the next
// call: then it is known how many launches there are for equal calls, and the last calls are
// theirs. Earlier ones with equal arguments were captured into a graph, or never reach a proxy.
//
// A rank that is recorded from the middle of its life has no number for its first call. Its records
// wait until a launch has NCCL's own count.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "correlate/stream/operation_tracker.h"
#include "correlate/stream/shape_table.h"

namespace collwire::stream {

class RankTrack {
public:
    // Of what was called and has no launch: of a communicator that launches, and of one that has
    // not launched yet.
    static constexpr std::size_t MAX_WAITING = 4096;
    static constexpr std::size_t MAX_WAITING_LOCAL = 64;
    // Calls of one group come within it: of a communicator that has not launched yet, they wait
    // beyond MAX_WAITING_LOCAL.
    static constexpr std::uint64_t GROUP_NS = 100'000'000;
    static constexpr std::size_t MAX_UNLAUNCHED = 65'536;
    static constexpr std::size_t MAX_UNLAUNCHED_LOCAL = 256;
    // Of records that wait for a number.
    static constexpr std::size_t MAX_EARLY = 1024;
    // Of records with tasks of launches that are not there yet.
    static constexpr std::size_t MAX_MORE_TASKS = 4096;
    // Of launches without bytes, beyond which the oldest stay without.
    static constexpr std::size_t MAX_WITHOUT_BYTES = 256;

    // `node`: the number of its node, whose clock it has.
    RankTrack(const cw_nccl_comm &comm, std::uint32_t version, std::uint32_t node,
              OperationTracker &tracker, ShapeTable &shapes);

    [[nodiscard]] const cw_nccl_comm &comm() const { return comm_; }
    [[nodiscard]] OperationTracker &tracker() { return tracker_; }

    // offset_ns: CLOCK_REALTIME less CLOCK_MONOTONIC.
    void add(const cw_nccl_call &call, std::int64_t offset_ns);
    // A call that counts once it has not failed: its return is recorded.
    void hold(const cw_nccl_call &call, std::int64_t offset_ns);
    void add(const cw_nccl_return &back);
    void add(const cw_nccl_launch &launch, std::int64_t offset_ns);
    void add(const cw_nccl_launch_tasks &tasks, std::int64_t offset_ns);
    // Nothing more comes.
    void flush();

    // Whom it waits for whose node last called at now_ns, if it is ahead of others.
    [[nodiscard]] std::optional<RankWait> find_wait(std::uint64_t now_ns) {
        return tracker_.find_wait(comm_.rank, progress_, now_ns);
    }
    // Others do not wait for it any more.
    void leave() { tracker_.leave(comm_.rank, progress_); }

    // Tasks of launches without a call, and launches of graphs beyond their first.
    [[nodiscard]] std::uint64_t unmatched() const { return unmatched_; }
    [[nodiscard]] std::uint64_t replays() const { return replays_; }

    // NCCL makes a send and a receive of each peer of calls of this function.
    [[nodiscard]] static bool is_split_into_parts(std::uint8_t func);

private:
    struct Called {
        std::uint64_t number = 0;
        std::uint64_t pair = 0;
        bool is_transfer = false;
    };
    struct Waiting : Called {
        std::uint64_t time_ns = 0;
        std::uint64_t part_bytes = 0; // to or from each peer; of AlltoAll, Gather and Scatter
        std::uint32_t hash = 0;
        std::uint32_t tid = 0;
        std::int32_t root = -1;
        std::uint8_t func = 0;
        bool is_launched = false;
        // Of a call that is split: by peer, which were launched. Empty: none.
        std::vector<bool> sends, receives;
    };
    // A part of a call that is split: function, direction, peer, bytes.
    using PartKey = std::tuple<std::uint8_t, bool, std::int32_t, std::uint64_t>;
    [[nodiscard]] static PartKey part_key(const TaskBytes &part);
    struct Launch {
        std::uint64_t time_ns = 0;
        std::uint64_t realtime_ns = 0;
        std::uint64_t plan = 0;
        std::uint64_t shape = 0;
        std::uint32_t tid = 0;
        std::uint16_t n_tasks = 0;
        std::uint8_t flags = 0;
        std::vector<cw_nccl_task_ref> tasks;
    };

    struct Early {
        std::variant<cw_nccl_call, cw_nccl_launch, cw_nccl_launch_tasks> record;
        std::int64_t offset_ns = 0;
    };
    void release_held();
    // False: the rank has its number, by now.
    [[nodiscard]] bool waits_for_number(const Early &early);
    void number(bool is_last);
    [[nodiscard]] static bool is_counted(const cw_nccl_call &call);

    [[nodiscard]] static bool is_transfer(std::uint8_t func);
    [[nodiscard]] bool is_refused(const cw_nccl_call &call) const;
    [[nodiscard]] bool never_launches(const cw_nccl_call &call) const;
    void settle_launches();
    static void put(const cw_nccl_launch_tasks &tasks, Launch &launch);
    void match(Launch &launch, std::size_t index);
    void match_graph(const Launch &launch);
    void match_task(const Launch &launch, std::size_t launch_index, std::uint32_t task,
                    const TaskBytes *bytes);
    template <typename IsLike>
    [[nodiscard]] Waiting *first_due(const Launch &launch, std::uint32_t due,
                                     const IsLike &is_like);
    void match_part(const Launch &launch, std::uint32_t task, const TaskBytes &part);
    [[nodiscard]] bool lacks_part(const Waiting &call, const TaskBytes &part) const;
    void take_part(Waiting &call, const TaskBytes &part) const;
    [[nodiscard]] std::uint32_t count_due(std::size_t launch_index, std::uint32_t task) const;
    void count_due_parts();
    void hand_over(const Called &call, const Launch &launch, std::size_t task,
                   const TaskBytes *bytes);
    void add_late_bytes();
    void end(const Called &call);
    [[nodiscard]] std::size_t count_kept() const;
    // The oldest waiting calls, down to `most`, will have no launch.
    void give_up(std::size_t most);
    void report_settled();
    [[nodiscard]] const std::vector<TaskBytes> *bytes_of(const Launch &launch) const;

    cw_nccl_comm comm_;
    LaunchingRank rank_;
    OperationTracker &tracker_;
    ShapeTable &shapes_;
    RankProgress progress_;
    std::uint64_t next_number_ = 0;
    std::uint64_t settled_ = 0; // collectives before it
    std::deque<Waiting> waiting_;
    std::vector<Launch> launches_;
    // Of launches that are being matched: those that have no call yet.
    std::map<PartKey, std::uint32_t> due_parts_;
    std::vector<cw_nccl_launch_tasks> more_tasks_;           // of launches that are not there yet
    std::deque<Waiting> unlaunched_;                         // perhaps captured
    std::unordered_map<std::uint64_t, std::uint64_t> plans_; // of graphs: launches
    // By pair: of the calls of this rank.
    std::unordered_map<std::uint64_t, std::uint64_t> next_of_pair_;
    std::uint64_t unmatched_ = 0;
    std::uint64_t replays_ = 0;
    // Launches whose shape was not there yet: its records may come after the next call.
    struct WithoutBytes {
        Called call;
        std::uint64_t shape = 0;
        std::size_t task = 0;
        std::vector<cw_nccl_task_ref> tasks; // of the launch
    };
    std::vector<WithoutBytes> without_bytes_;
    bool has_launched_ = false;
    bool has_split_calls_ = false;
    bool is_numbered_ = true;
    bool is_number_guessed_ = false;
    bool has_early_launch_ = false; // since the last call
    std::vector<Early> early_;
    struct Held {
        cw_nccl_call call;
        std::int64_t offset_ns = 0;
    };
    std::optional<Held> held_;
};

} // namespace collwire::stream
