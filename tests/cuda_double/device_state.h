// SPDX-License-Identifier: Apache-2.0
// What a kernel reads of its communicator and of its channel, in the memory of the device.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/cuda_double/function.h"
#include "tests/cuda_double/layout.h"

namespace collwire::cuda_double {

inline constexpr int kFifoSlots = 8; // NCCL_STEPS
inline constexpr int kMostChannels = 64;

enum class Direction { Receive, Send };

// ncclKernelComm, up to 2.27 ncclDevComm.
class Communicator {
public:
    explicit Communicator(char *device) : device_(device) {}

    [[nodiscard]] int rank() const;
    [[nodiscard]] int ranks() const;
    [[nodiscard]] std::int64_t buffer_bytes(Protocol protocol) const;
    [[nodiscard]] std::int64_t slot_bytes(Protocol protocol) const {
        return buffer_bytes(protocol) / kFifoSlots;
    }
    [[nodiscard]] std::int64_t p2p_chunk_bytes() const;
    [[nodiscard]] bool aborted() const;
    [[nodiscard]] char *device() const { return device_; }

private:
    char *device_;
};

// ncclDevChannel
class Channel {
public:
    Channel(const Communicator &communicator, int id);

    [[nodiscard]] int id() const { return id_; }
    [[nodiscard]] char *device() const { return device_; }
    [[nodiscard]] int previous() const;
    [[nodiscard]] int next() const;
    [[nodiscard]] int ring_index() const;
    // The rank that comes `distance` after this one in the ring.
    [[nodiscard]] int ring_rank(int distance) const;
    [[nodiscard]] int tree_up() const; // -1: the root
    [[nodiscard]] std::vector<int> tree_down() const;
    // NVLink SHARP: a head reduces a part of the data through the switch, and spreads the result.
    struct Nvls {
        std::vector<int> up; // the peers that stand for the heads
        int head = -1;       // the own place among them; -1: none
        int down = -1;       // the peer that stands for all devices, of a head
        int tree_up = -1;    // the same head on other nodes; -1: the root
        std::vector<int> tree_down;
    };
    [[nodiscard]] Nvls nvls() const;
    // The ncclConnInfo.
    [[nodiscard]] char *connection(int peer, Direction direction, int index) const;

private:
    int id_;
    char *device_;
};

// Where NCCL keeps the addresses of both in a communicator.
struct CommunicatorLayout {
    Field rank, ranks, buffer_bytes, p2p_chunk_bytes, abort_flag;
    Field work_consumed, work_started, work_completed; // versions differ
    std::int64_t channels_offset, channel_bytes;
};
const CommunicatorLayout &communicator_layout();

} // namespace collwire::cuda_double
