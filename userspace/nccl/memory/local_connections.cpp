// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/local_connections.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"

namespace collwire::nccl {
namespace {

constexpr std::int32_t MAX_LOCAL_RANKS = 128;
constexpr std::uint64_t MAX_CHANNELS = 64;
constexpr std::uint64_t CONNECTORS = 2; // NCCL_MAX_CONNS
constexpr std::size_t WORDS_AT_ONCE = 512;
enum Transport : std::int32_t { P2P = 0, SHM = 1, NET = 2 };

// A connector in use.
struct Place {
    std::uint64_t at = 0;
    std::uint32_t peer = 0; // index
    std::uint8_t channel = 0;
    std::uint8_t index = 0;
    bool is_send = false;
};

class ConnectionReader {
public:
    ConnectionReader(const process::ProcessView &process, const LibraryLayout &layout)
        : process_(process), layout_(layout) {}

    std::vector<cw_nccl_local> run(const cw_nccl_comm &comm) {
        if (!find_offsets() || comm.local_ranks < 2 || comm.local_ranks > MAX_LOCAL_RANKS ||
            comm.n_ranks < comm.local_ranks)
            return {};
        const auto table = process_.read<std::uint64_t>(comm.comm + offsets_[LOCAL_TO_RANK]);
        std::vector<std::int32_t> ranks(static_cast<std::size_t>(comm.local_ranks));
        if (!table || !process_.read(*table, std::as_writable_bytes(std::span{ranks})))
            return {};
        std::vector<cw_nccl_local> locals;
        for (const std::int32_t rank : ranks) {
            if (rank < 0 || rank >= comm.n_ranks)
                return {};
            if (rank == comm.rank)
                continue;
            cw_nccl_local local{};
            local.header = {sizeof(local), CW_KIND_NCCL_LOCAL, CW_CPU_USERSPACE, monotonic_ns()};
            local.comm = comm.comm;
            local.tgid = comm.tgid;
            local.peer = rank;
            locals.push_back(local);
        }
        read_transports(comm, locals);
        return locals;
    }

private:
    enum Field {
        CHANNELS,
        CHANNEL,
        PEERS,
        SEND,
        RECV,
        CONNECTOR,
        CONNECTED,
        CONNECTION,
        SAME_PROCESS,
        TRANSPORT,
        LOCAL_TO_RANK,
        FIELDS
    };

    bool find_offsets() {
        constexpr std::array<const char *, FIELDS> NAMES{"ncclComm.channels",
                                                         "ncclChannel",
                                                         "ncclChannel.peers",
                                                         "ncclChannelPeer.send",
                                                         "ncclChannelPeer.recv",
                                                         "ncclConnector",
                                                         "ncclConnector.connected",
                                                         "ncclConnector.proxyConn.connection",
                                                         "ncclConnector.proxyConn.sameProcess",
                                                         "ncclProxyConnection.transport",
                                                         "ncclComm.localRankToRank"};
        for (std::size_t i = 0; i < FIELDS; ++i) {
            const auto found = layout_.offsets.find(NAMES[i]);
            if (found == layout_.offsets.end())
                return false;
            offsets_[i] = found->second.value;
        }
        return true;
    }

    // The words at `offset` of each place; places whose word cannot be read are removed.
    std::vector<std::uint64_t> words_at(std::vector<Place> &places, std::uint64_t offset) {
        std::vector<Place> kept;
        std::vector<std::uint64_t> words;
        for (std::size_t first = 0; first < places.size();) {
            const std::size_t n = std::min(places.size() - first, WORDS_AT_ONCE);
            std::vector<std::uint64_t> at, read(n);
            for (std::size_t i = 0; i < n; ++i)
                at.push_back(places[first + i].at + offset);
            const std::size_t n_read = process_.read_words(at, read);
            for (std::size_t i = 0; i < n_read; ++i) {
                kept.push_back(places[first + i]);
                words.push_back(read[i]);
            }
            first += n_read < n ? n_read + 1 : n;
        }
        places = std::move(kept);
        return words;
    }

    // Follows the pointers at `offset`; null ones are removed.
    void follow(std::vector<Place> &places, std::uint64_t offset) {
        const std::vector<std::uint64_t> words = words_at(places, offset);
        std::vector<Place> kept;
        for (std::size_t i = 0; i < places.size(); ++i)
            if (words[i] != 0) {
                kept.push_back(places[i]);
                kept.back().at = words[i];
            }
        places = std::move(kept);
    }

    void keep_where_set(std::vector<Place> &places, std::uint64_t offset) {
        const std::vector<std::uint64_t> words = words_at(places, offset);
        std::vector<Place> kept;
        for (std::size_t i = 0; i < places.size(); ++i)
            if (static_cast<std::uint32_t>(words[i]) != 0)
                kept.push_back(places[i]);
        places = std::move(kept);
    }

    void read_transports(const cw_nccl_comm &comm, std::vector<cw_nccl_local> &locals) {
        std::vector<Place> tables;
        for (std::uint64_t channel = 0; channel < MAX_CHANNELS; ++channel)
            tables.push_back({.at = comm.comm + offsets_[CHANNELS] + channel * offsets_[CHANNEL],
                              .channel = static_cast<std::uint8_t>(channel)});
        follow(tables, offsets_[PEERS]);
        std::vector<Place> peers;
        for (const Place &table : tables)
            for (std::uint32_t peer = 0; peer < locals.size(); ++peer)
                peers.push_back({.at = table.at + static_cast<std::uint64_t>(locals[peer].peer) *
                                                      sizeof(std::uint64_t),
                                 .peer = peer,
                                 .channel = table.channel});
        follow(peers, 0);
        std::vector<Place> connectors;
        for (const Place &peer : peers)
            for (const bool is_send : {true, false})
                for (std::uint64_t i = 0; i < CONNECTORS; ++i)
                    connectors.push_back(
                        {.at = peer.at + offsets_[is_send ? SEND : RECV] + i * offsets_[CONNECTOR],
                         .peer = peer.peer,
                         .channel = peer.channel,
                         .index = static_cast<std::uint8_t>(i),
                         .is_send = is_send});
        keep_where_set(connectors, offsets_[CONNECTED]);
        keep_where_set(connectors, offsets_[SAME_PROCESS]);
        follow(connectors, offsets_[CONNECTION]);
        const std::vector<std::uint64_t> transports = words_at(connectors, offsets_[TRANSPORT]);
        for (std::size_t i = 0; i < connectors.size(); ++i)
            note(connectors[i], static_cast<std::int32_t>(transports[i]), locals);
    }

    static void note(const Place &of, std::int32_t transport, std::vector<cw_nccl_local> &locals) {
        cw_nccl_local &local = locals[of.peer];
        __u64 *masks = nullptr;
        switch (transport) {
        case P2P:
            masks = of.is_send ? local.p2p_send : local.p2p_recv;
            break;
        case SHM:
            masks = of.is_send ? local.shm_send : local.shm_recv;
            break;
        case NET:
            masks = of.is_send ? local.net_send : local.net_recv;
            break;
        default:
            return;
        }
        masks[of.index] |= std::uint64_t{1} << of.channel;
    }

    const process::ProcessView &process_;
    const LibraryLayout &layout_;
    std::array<std::uint64_t, FIELDS> offsets_{};
};

} // namespace

std::vector<cw_nccl_local> read_local_connections(const process::ProcessView &process,
                                                  const LibraryLayout &layout,
                                                  const cw_nccl_comm &comm) {
    return ConnectionReader(process, layout).run(comm);
}

} // namespace collwire::nccl
