// SPDX-License-Identifier: Apache-2.0
// What is alive on all nodes: processes' communicators, shapes and connections, and the operations
// that are not complete. Records go in, in the order of each node's capture; operations come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collwire/record.h"
#include "correlate/stream/operation.h"
#include "correlate/stream/operation_tracker.h"
#include "correlate/stream/pace.h"
#include "correlate/stream/rank_track.h"
#include "correlate/stream/shape_table.h"

namespace collwire::stream {

class World : public Pace {
public:
    using Sink = OperationTracker::Sink;
    explicit World(Sink sink) : sink_(std::move(sink)) {}

    // Takes a record of a capture, which has a number. `record`: the whole of it. Captures of one
    // recording, its segments, are one node's; one that was added before is left out.
    void add(std::size_t capture, const cw_header &header, std::span<const std::byte> record);
    // Nothing more comes: closes all operations.
    void flush();

    [[nodiscard]] bool is_ahead(std::size_t capture) override;
    void give_up(std::size_t capture) override;
    void end(std::size_t capture) override;
    // Whether the capture is left out: it was added before, or has no record of its node.
    [[nodiscard]] bool is_left_out(std::size_t capture) const;

    struct Counts {
        std::uint64_t orphans = 0;   // calls and launches without a known communicator
        std::uint64_t unmatched = 0; // tasks of launches without a known call
        std::uint64_t replays = 0;   // launches of graphs after their first
        std::uint64_t late = 0;      // calls for operations that were closed
        std::uint64_t cut = 0;       // operations that were closed at the horizon
        std::uint64_t abandoned = 0; // waits that were given up
    };
    [[nodiscard]] Counts counts() const;

private:
    using Address = std::pair<std::uint32_t, std::uint64_t>; // process, communicator
    struct Hash {
        std::size_t operator()(const Address &key) const {
            return static_cast<std::size_t>((key.second ^ key.first) * 0x9e3779b97f4a7c15U);
        }
    };
    struct Node {
        std::uint32_t number = 0;
        std::int64_t offset_ns = 0;   // CLOCK_REALTIME less CLOCK_MONOTONIC, by the last record
        std::uint64_t called_ns = 0;  // its last call
        std::optional<RankWait> wait; // of one of its ranks; it is ahead
        bool has_returns = false;     // returns of NCCL's calls are recorded
        ShapeTable shapes;
        std::unordered_map<Address, std::unique_ptr<RankTrack>, Hash> ranks;
        std::unordered_map<std::uint32_t, std::uint32_t> versions; // of NCCL, by image
        // Ended a moment ago. The end may be in the capture before calls that came before it, as
        // the recorder reads the two from different ring buffers.
        struct Ended {
            Address address;
            std::uint64_t end_ns = 0;
            std::unique_ptr<RankTrack> rank;
        };
        std::vector<Ended> ended;
        // Calls and launches whose communicator is not known yet: its record may come a moment
        // after the call at which the recorder discovered it.
        std::unordered_map<Address, std::vector<std::vector<std::byte>>, Hash> early;
        std::size_t n_early = 0;
        // The last one that was looked up.
        Address last_address{};
        RankTrack *last = nullptr;
    };
    // Communicators of one hash and size, one after the other.
    struct Joined {
        std::unique_ptr<OperationTracker> tracker;
        std::vector<bool> has_rank;
        std::size_t n_there = 0;
    };
    void begin(std::size_t capture, std::span<const std::byte> record);
    void add_comm(Node &node, std::span<const std::byte> record);
    void end_comm(Node &node, const Address &address, std::uint64_t end_ns);
    // Those that ended long enough before now_ns.
    void retire_ended(Node &node, std::uint64_t now_ns);
    // Null: not known yet, the record is kept.
    [[nodiscard]] RankTrack *find(Node &node, const Address &address, std::uint64_t time_ns,
                                  std::span<const std::byte> record);
    void give(Node &node, const cw_header &header, std::span<const std::byte> record);
    void give_early(Node &node, const cw_nccl_comm &comm);

    Sink sink_;
    std::deque<Node> nodes_;           // their ranks refer to their shapes
    std::vector<std::size_t> node_of_; // by capture; SIZE_MAX: left out
    std::map<std::pair<std::string, std::uint64_t>, std::size_t> sessions_; // boot, recording: node
    std::map<std::pair<std::size_t, std::uint32_t>, std::size_t> segments_; // node: capture
    std::map<std::pair<std::uint64_t, std::int32_t>, Joined> joined_;       // hash, ranks
    std::vector<std::unique_ptr<OperationTracker>>
        former_; // whose ranks may still be alive elsewhere
    std::uint32_t next_id_ = 0;
    Counts counts_;
};

} // namespace collwire::stream
