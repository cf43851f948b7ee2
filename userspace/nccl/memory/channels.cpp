// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/channels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>

#include "base/clock.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"

namespace collwire::nccl {
namespace {

constexpr std::int32_t MAX_RANKS = 65536; // of a ring: 256 KiB a channel
constexpr std::int32_t MAX_CHANNELS = 64; // MAXCHANNELS of 2.26 and later

std::optional<std::uint64_t> offset(const LibraryLayout &layout, const char *name) {
    const auto found = layout.offsets.find(name);
    return found == layout.offsets.end() ? std::nullopt : std::optional{found->second.value};
}

struct Offsets {
    std::uint64_t n_channels, channels, size, prev, next, index, user_ranks, up, down;

    static std::optional<Offsets> of(const LibraryLayout &layout) {
        const std::array all{offset(layout, "ncclComm.nChannels"),
                             offset(layout, "ncclComm.channels"),
                             offset(layout, "ncclChannel"),
                             offset(layout, "ncclChannel.ring.prev"),
                             offset(layout, "ncclChannel.ring.next"),
                             offset(layout, "ncclChannel.ring.index"),
                             offset(layout, "ncclChannel.ring.userRanks"),
                             offset(layout, "ncclChannel.tree.up"),
                             offset(layout, "ncclChannel.tree.down")};
        if (!std::ranges::all_of(all, [](const auto &one) { return one.has_value(); }))
            return std::nullopt;
        return Offsets{*all[0], *all[1], *all[2], *all[3], *all[4],
                       *all[5], *all[6], *all[7], *all[8]};
    }
};

// The bytes that records may still have.
struct Room {
    std::size_t bytes_left = 0;
    bool is_cut = false; // more was asked for

    bool take(std::size_t bytes) {
        if (bytes > bytes_left) {
            is_cut = true;
            return false;
        }
        bytes_left -= bytes;
        return true;
    }
};

// Padded to a multiple of 8 bytes, as all records.
std::size_t bytes_of_order(std::size_t n_ranks) {
    return (n_ranks + n_ranks % 2) * sizeof(std::int32_t);
}

std::vector<std::int32_t> read_order(const process::ProcessView &process, std::uint64_t at,
                                     std::int32_t n_ranks, Room &room) {
    const auto address = process.read<std::uint64_t>(at);
    if (!address || n_ranks <= 0 || n_ranks > MAX_RANKS ||
        !room.take(bytes_of_order(static_cast<std::size_t>(n_ranks))))
        return {};
    std::vector<std::int32_t> order(static_cast<std::size_t>(n_ranks));
    if (!process.read(*address, std::as_writable_bytes(std::span{order})))
        return {};
    return order;
}

} // namespace

std::vector<std::vector<std::byte>> read_channels(const process::ProcessView &process,
                                                  const LibraryLayout &layout,
                                                  const cw_nccl_comm &comm, std::size_t bytes_left,
                                                  bool *is_cut) {
    const auto offsets = Offsets::of(layout);
    if (!offsets)
        return {};
    const auto n = process.read<std::int32_t>(comm.comm + offsets->n_channels).value_or(0);
    std::vector<std::vector<std::byte>> records;
    Room room{bytes_left};
    for (std::int32_t i = 0; i < std::min(n, MAX_CHANNELS); ++i) {
        const std::uint64_t at =
            comm.comm + offsets->channels + static_cast<std::uint64_t>(i) * offsets->size;
        cw_nccl_channel record = {};
        const auto down = process.read<std::array<std::int32_t, 3>>(at + offsets->down);
        const auto prev = process.read<std::int32_t>(at + offsets->prev);
        const auto next = process.read<std::int32_t>(at + offsets->next);
        const auto index = process.read<std::int32_t>(at + offsets->index);
        const auto up = process.read<std::int32_t>(at + offsets->up);
        if (!down || !prev || !next || !index || !up || !room.take(sizeof(record)))
            break;
        const auto order = read_order(process, at + offsets->user_ranks, comm.n_ranks, room);
        const std::size_t order_bytes = bytes_of_order(order.size());
        record.header = {static_cast<__u32>(sizeof(record) + order_bytes), CW_KIND_NCCL_CHANNEL,
                         CW_CPU_USERSPACE, monotonic_ns()};
        record.tgid = comm.tgid;
        record.channel = static_cast<__u32>(i);
        record.comm = comm.comm;
        record.ring_prev = *prev;
        record.ring_next = *next;
        record.ring_index = *index;
        record.tree_up = *up;
        std::ranges::copy(*down, record.tree_down);
        record.n_order = static_cast<__u32>(order.size());
        std::vector<std::byte> bytes(record.header.length_bytes);
        std::memcpy(bytes.data(), &record, sizeof(record));
        if (!order.empty())
            std::memcpy(bytes.data() + sizeof(record), order.data(),
                        order.size() * sizeof(std::int32_t));
        records.push_back(std::move(bytes));
    }
    if (is_cut != nullptr)
        *is_cut = *is_cut || room.is_cut;
    return records;
}

} // namespace collwire::nccl
