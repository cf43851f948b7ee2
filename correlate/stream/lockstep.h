// SPDX-License-Identifier: Apache-2.0
// Reads the captures of many hosts together, so that what belongs together is in memory at about
// the same time: always the next block of the host that is furthest behind, but none of a host that
// others must catch up with. Hosts' clocks may be hours apart (docs/stream.md, Reading order).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "correlate/stream/pace.h"
#include "correlate/stream/record_stream.h"

namespace collwire::stream {

class Lockstep {
public:
    // A host that was held, and is so much behind the one that it waited for, is put level with it.
    static constexpr std::uint64_t APART_NS = 10'000'000'000;

    // Null: hosts are read by their clocks alone.
    explicit Lockstep(Pace *pace = nullptr) : pace_(pace) {}

    // Adds a stream; returns its number, from 0. Before the first load().
    std::size_t add(RecordStream stream);

    [[nodiscard]] std::size_t size() const { return captures_.size(); }
    [[nodiscard]] const RecordStream &at(std::size_t capture) const {
        return captures_[capture].stream;
    }

    // Loads the next block. Returns the number of its stream; size(): all streams are at their end.
    [[nodiscard]] std::size_t load();
    // Calls `visit` for each record of the loaded block.
    template <typename Visit> void visit(Visit &&visit) {
        captures_[last_].stream.visit(block_, visit);
    }

private:
    static constexpr std::size_t NONE = SIZE_MAX;
    struct Capture {
        RecordStream stream;
        std::size_t host = NONE;
        std::uint64_t begin_ns = 0; // CLOCK_MONOTONIC of its first record about its node
    };
    // One recording: its segments, the next one last.
    struct Session {
        std::uint64_t id = 0;
        std::size_t first = NONE; // capture
        std::vector<std::size_t> captures;
    };
    struct Host {
        std::int64_t offset_ns = 0; // what is added to CLOCK_MONOTONIC, for the order alone
        std::vector<Session> sessions;
        std::size_t last = NONE; // capture that was loaded last
        std::uint64_t due_ns = 0;
    };
    using Due = std::pair<std::uint64_t, std::size_t>; // host

    void sort_heads();
    [[nodiscard]] std::size_t load_head();
    // Puts a capture with its host. True: it is the first one of it.
    bool place(std::size_t capture);
    [[nodiscard]] std::size_t next_of(Host &host, std::uint64_t &next_ns);
    void queue(std::size_t host);
    void release();
    void give_up();

    Pace *pace_;
    std::vector<Capture> captures_;
    std::vector<Host> hosts_;
    std::map<std::string, std::size_t> by_boot_;
    std::vector<std::size_t> heads_; // captures whose first block was not looked at, next one last
    bool has_heads_ = false;         // of each host the first block
    std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
    std::vector<std::size_t> held_; // hosts
    std::size_t last_ = NONE;       // whose block is loaded
    LoadedBlock block_;
};

} // namespace collwire::stream
