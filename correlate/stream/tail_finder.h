// SPDX-License-Identifier: Apache-2.0
// Which part at the end of captures shows where each rank stood: the tail. Reads the state of the
// newest segments, and their other blocks from the last one backwards, as far as it must.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collwire/record.h"
#include "correlate/capture/block.h"
#include "correlate/capture/format.h"
#include "correlate/capture/reader.h"

namespace collwire::stream {

class TailFinder {
public:
    // Of each live communicator in each of its processes.
    static constexpr std::size_t LEAST_CALLS = 3;
    // A communicator is idle if each of its processes has called so long after its last call in
    // it: nothing of it holds them up.
    static constexpr std::uint64_t IDLE_NS = 30'000'000'000;
    // Before the earliest of these calls: connections have moments without traffic.
    static constexpr std::uint64_t MARGIN_NS = 10'000'000'000;

    // CLOCK_REALTIME. Records from `to_ns` on do not count.
    explicit TailFinder(std::uint64_t to_ns) : to_ns_(to_ns) {}

    // Looks at a capture; those of one recording from the newest segment on. One that cannot be
    // read is passed over. `number`: the caller's, for deeper().
    void look(std::size_t number, std::uint64_t file_bytes, const capture::ReadAt &read);
    // Of captures that were looked at: those that must be looked at once more, with look_deeper(),
    // as some other rank of a communicator has a call.
    [[nodiscard]] std::vector<std::size_t> deeper() const;
    void look_deeper(std::size_t number, std::uint64_t file_bytes, const capture::ReadAt &read);

    // CLOCK_REALTIME of each node at which the tail begins, so long before the earliest of these
    // calls. 0: the captures' start.
    [[nodiscard]] std::uint64_t from_ns(std::uint64_t margin_ns = MARGIN_NS) const;

private:
    using Address = std::pair<std::uint32_t, std::uint64_t>; // process, communicator
    struct Member {
        std::uint64_t hash = 0;
        std::int32_t n_ranks = 0;
        std::vector<std::uint64_t> newest_ns; // of its calls; LEAST_CALLS at most, newest first
        std::uint64_t begin_ns = 0;
    };
    using Active = std::set<std::pair<std::uint64_t, std::int32_t>>;
    struct Recording {
        std::map<Address, Member> members;                // that are alive
        std::map<std::uint32_t, std::uint64_t> newest_ns; // call of each process
        std::int64_t offset_ns = 0;                       // CLOCK_REALTIME less CLOCK_MONOTONIC
        bool has_state = false;
        std::vector<std::size_t> captures;
    };
    struct Block {
        std::uint64_t offset_bytes = 0;
        capture::BlockHeader header;
    };
    struct Capture {
        Recording *of = nullptr;
        std::vector<Block> blocks;
    };

    [[nodiscard]] std::optional<Capture> open(std::size_t number, std::uint64_t file_bytes,
                                              const capture::ReadAt &read);
    void read_state(Capture &capture, const capture::ReadAt &read);
    void read_backwards(Capture &capture, const capture::ReadAt &read, const Active &active);
    template <typename Visit>
    void visit(const Block &block, const capture::ReadAt &read, Visit &&visit_record);
    void add_state(Recording &recording, const cw_header &header,
                   std::span<const std::byte> record);
    void add_call(Recording &recording, const Address &address, std::uint64_t time_ns) const;
    [[nodiscard]] static bool is_idle(const Recording &recording, const Address &address,
                                      const Member &member);
    [[nodiscard]] static bool needs(const Recording &recording, std::uint64_t before_ns,
                                    const Active &active);
    // Communicators, by hash and size, that are not idle.
    [[nodiscard]] Active active() const;

    std::uint64_t to_ns_;
    capture::BlockDecoder decoder_;
    std::map<std::pair<std::string, std::uint64_t>, Recording> recordings_; // boot, session
};

} // namespace collwire::stream
