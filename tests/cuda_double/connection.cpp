// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tests/cuda_double/library.h"
#include "tests/cuda_double/settings.h"
#include "tests/cuda_double/virtual_memory.h"

namespace collwire::cuda_double {
namespace {

constexpr int kModeOffset = 1; // NCCL_MODE_OFFSET
// Up to 2.23, between the devices of one process, peers exchange the addresses of user buffers.
// Later versions set these flags for every connection of P2P, and use them for registered buffers
// alone, which the readers of work refuse.
constexpr std::uint64_t kDirectFlags = 0x3;
constexpr int kFirstWithoutExchange = 22400;

struct ConnectionLayout {
    Field buffers, tail, head, flags, slot_bytes, fifo, step;
    Field mode, offset, bytes; // of one slot of the FIFO
    std::int64_t fifo_slot_bytes;
};

const ConnectionLayout &connection_layout() {
    static const ConnectionLayout known = [] {
        const Layout &layout = library().layout();
        return ConnectionLayout{
            layout.required("ncclConnInfo.buffs"),     layout.required("ncclConnInfo.tail"),
            layout.required("ncclConnInfo.head"),      layout.required("ncclConnInfo.flags"),
            layout.field("ncclConnInfo.stepSize"),     layout.required("ncclConnInfo.connFifo"),
            layout.required("ncclConnInfo.step"),      layout.required("ncclConnFifo.mode"),
            layout.required("ncclConnFifo.offset"),    layout.required("ncclConnFifo.size"),
            layout.required_size_bytes("ncclConnFifo")};
    }();
    return known;
}

} // namespace

bool has_known_fifo() {
    return static_cast<bool>(library().layout().field("ncclConnInfo.connFifo"));
}

Connection::Connection(const Channel &channel, int peer, Direction direction, int index)
    : info_(channel.connection(peer, direction, index)), peer_(peer), direction_(direction),
      index_(index) {
    if (nccl_version() < kFirstWithoutExchange &&
        (connection_layout().flags.read(info_) & kDirectFlags) != 0)
        fatal(fmt::format("the exchange of buffers with peer {} of this process has no double. "
                          "Fix: NCCL_P2P_DIRECT_DISABLE=1",
                          peer));
}

void Connection::open(Protocol protocol, std::int64_t slot_bytes, std::uint64_t steps_per_chunk) {
    const ConnectionLayout &layout = connection_layout();
    heads_ = counters_at(layout.head.pointer<char>(info_));
    tails_ = counters_at(layout.tail.pointer<char>(info_));
    copies_ = multicast_addresses(buffer(Protocol::Simple));
    fifo_ = layout.fifo.pointer<char>(info_);
    step_ = layout.step.read(info_);
    slot_bytes_ = layout.slot_bytes ? layout.slot_bytes.read_int(info_) : slot_bytes;
    if (protocol == Protocol::Simple) {
        step_ = (step_ + steps_per_chunk - 1) / steps_per_chunk * steps_per_chunk;
        if (direction_ == Direction::Receive)
            post_head();
    }
    // Not from 0: a shared send buffer starts with head at -8, without any credit.
    if (direction_ == Direction::Send)
        seen_ = load(heads_);
    else
        seen_ = protocol == Protocol::Simple ? load(tails_) : 0;
}

void Connection::save_step() const {
    connection_layout().step.write(info_, step_);
}

Connection::Counters Connection::counters_at(char *address) {
    Counters counters;
    for (char *copy : multicast_addresses(address))
        counters.push_back(reinterpret_cast<std::uint64_t *>(copy));
    if (counters.empty() && address != nullptr)
        counters.push_back(reinterpret_cast<std::uint64_t *>(address));
    return counters;
}

// multimem.ld_reduce.min where it is multicast.
std::uint64_t Connection::load(const Counters &counters) {
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (const std::uint64_t *counter : counters)
        least = std::min(least, __atomic_load_n(counter, __ATOMIC_ACQUIRE));
    return least;
}

void Connection::store(const Counters &counters, std::uint64_t value) {
    for (std::uint64_t *counter : counters)
        __atomic_store_n(counter, value, __ATOMIC_RELEASE);
}

bool Connection::has_filled(std::uint64_t steps) {
    if (seen_ < step_ + steps)
        seen_ = load(tails_);
    return seen_ >= step_ + steps;
}

// The sum wraps where the head starts below zero.
bool Connection::has_free(std::uint64_t steps) {
    if (seen_ + kFifoSlots < step_ + steps)
        seen_ = load(heads_);
    return seen_ + kFifoSlots >= step_ + steps;
}

char *Connection::fifo_slot(std::uint64_t step) const {
    return fifo_ +
           static_cast<std::int64_t>(step % kFifoSlots) * connection_layout().fifo_slot_bytes;
}

std::vector<char *> Connection::slots() const {
    if (copies_.empty())
        return {slot()};
    std::vector<char *> found = copies_;
    for (char *&copy : found)
        copy += static_cast<std::int64_t>(step_ % kFifoSlots) * slot_bytes_;
    return found;
}

char *Connection::slot(std::uint64_t ahead) const {
    const ConnectionLayout &layout = connection_layout();
    char *begin = buffer(Protocol::Simple);
    if (fifo_ != nullptr && layout.mode.read_int(fifo_slot(step_ + ahead)) == kModeOffset)
        return begin + layout.offset.read_signed(fifo_slot(step_ + ahead));
    return begin + static_cast<std::int64_t>((step_ + ahead) % kFifoSlots) * slot_bytes_;
}

char *Connection::buffer(Protocol protocol) const {
    char *const *buffers =
        reinterpret_cast<char *const *>(info_ + connection_layout().buffers.offset_bytes());
    return buffers[static_cast<std::size_t>(protocol)];
}

void Connection::set_bytes(std::uint64_t bytes) const {
    if (fifo_ != nullptr)
        connection_layout().bytes.write(fifo_slot(step_), bytes);
}

std::string Connection::state() const {
    return fmt::format("{} peer {} connection {} step {} head {} tail {}",
                       direction_ == Direction::Send ? "send to" : "receive from", peer_, index_,
                       step_, heads_.empty() ? 0 : load(heads_), tails_.empty() ? 0 : load(tails_));
}

} // namespace collwire::cuda_double
