// SPDX-License-Identifier: Apache-2.0
// One direction to one peer: a FIFO of eight slots between a kernel and NCCL's proxy thread (or, in
// shared memory and over P2P, the peer's kernel). Who fills slots posts the tail, who empties them
// the head; both count steps for ever.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/cuda_double/device_state.h"
#include "tests/cuda_double/function.h"

namespace collwire::cuda_double {

class Connection {
public:
    Connection(const Channel &channel, int peer, Direction direction, int index);

    // As a kernel does when it starts. `slot_bytes`: of Simple, for versions whose connections do
    // not say it. Simple starts at a whole chunk.
    void open(Protocol protocol, std::int64_t slot_bytes, std::uint64_t steps_per_chunk);
    // Keeps the step for the next kernel.
    void save_step() const;

    [[nodiscard]] int peer() const { return peer_; }
    [[nodiscard]] int index() const { return index_; }
    [[nodiscard]] std::uint64_t step() const { return step_; }
    [[nodiscard]] bool has_fifo() const { return fifo_ != nullptr; }
    [[nodiscard]] std::int64_t slot_bytes() const { return slot_bytes_; }

    // Receive: the peer has filled so many slots from this one on. Send: so many are free.
    [[nodiscard]] bool has_filled(std::uint64_t steps);
    [[nodiscard]] bool has_free(std::uint64_t steps);

    // Of Simple. Of a multicast connection there is one of each device of the group: a load is of
    // all of them, reduced, and a store goes to all.
    [[nodiscard]] std::vector<char *> slots() const;
    // `ahead`: so many steps after this one.
    [[nodiscard]] char *slot(std::uint64_t ahead = 0) const;
    // Of LL and LL128.
    [[nodiscard]] char *buffer(Protocol protocol) const;
    // The proxy sends as many. Before the tail is posted.
    void set_bytes(std::uint64_t bytes) const;

    void advance(std::uint64_t steps) { step_ += steps; }
    void post_head() const { store(heads_, step_); }
    void post_tail() const { store(tails_, step_); }

    [[nodiscard]] std::string state() const;

private:
    using Counters = std::vector<std::uint64_t *>; // of the devices of a multicast group, or one

    static Counters counters_at(char *address);
    static std::uint64_t load(const Counters &counters); // the least
    static void store(const Counters &counters, std::uint64_t value);
    [[nodiscard]] char *fifo_slot(std::uint64_t step) const;

    char *info_;
    int peer_;
    Direction direction_;
    int index_;
    std::uint64_t step_ = 0;
    std::uint64_t seen_ = 0; // of the other side's counter
    Counters heads_;
    Counters tails_;
    std::vector<char *> copies_; // of the buffer of Simple, if it is multicast
    char *fifo_ = nullptr;
    std::int64_t slot_bytes_ = 0;
};

// Whether the mapped NCCL has the FIFO that the double knows (2.20 and later).
bool has_known_fifo();

} // namespace collwire::cuda_double
