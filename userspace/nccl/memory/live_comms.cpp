// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/live_comms.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "collwire/record.h"
#include "userspace/inventory/process.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/memory/bounded_memory.h"

namespace collwire::nccl {
namespace {

constexpr std::int32_t MAX_COMMS = 4096;
constexpr std::int32_t MAX_RANKS = 65536;
constexpr std::int32_t MAX_CHANNELS = 64;
constexpr std::size_t MAX_CONNECTIONS = 65536;            // of all communicators together
constexpr std::size_t MAX_FOLLOWED = 4 * MAX_CONNECTIONS; // connectors, also within a node
constexpr std::int32_t MAX_ENDPOINTS = 128; // NCCL has at most 128 queue pairs and 64 sockets
constexpr std::int32_t MAX_FLUSH_QPS = 8;   // one for each device of a merged network
constexpr std::int32_t TRANSPORT_NET = 2;   // P2P 0, SHM 1, NET 2, COLLNET 3
constexpr int CONNECTORS = 2;               // of a peer and direction: collectives, point-to-point
constexpr std::uint64_t PAGE_BYTES = 4096;
constexpr std::size_t COMM_NAME_BYTES = CW_NAME_BYTES - 1;

class LiveCommsReader : private BoundedMemory {
public:
    LiveCommsReader(const process::ProcessView &process, const LibraryLayout &layout,
                    const cw_nccl_layout &bpf_layout, std::uint64_t bias)
        : BoundedMemory(process), layout_(layout), bpf_layout_(bpf_layout), bias_(bias) {}

    LiveComms read() {
        const auto table = data("ncclComms");
        const auto count = data("nNcclComms");
        if (!table || !count)
            return {};
        const auto array = value<std::uint64_t>(*table);
        const auto n = value<std::int32_t>(*count);
        if (!array || !n)
            return {};
        std::vector<LiveComm> comms;
        for (std::int32_t i = 0; i < std::min(*n, MAX_COMMS); ++i) {
            const auto address = value<std::uint64_t>(*array + static_cast<std::uint64_t>(i) * 8);
            if (address && *address != 0)
                add_comm(*address, comms);
        }
        return {std::move(comms), is_cut() || *n > MAX_COMMS};
    }

    LiveComms read(std::span<const std::uint64_t> addresses) {
        std::vector<LiveComm> comms;
        for (const std::uint64_t address : addresses)
            add_comm(address, comms);
        return {std::move(comms), is_cut()};
    }

    std::vector<cw_nccl_connection> read_connection(std::uint64_t proxy_state,
                                                    std::uint64_t address) {
        LiveComm live;
        live.comm.proxy_state = proxy_state;
        add_connection(live, address);
        return std::move(live.connections);
    }

    bool has(const cw_nccl_comm &comm) {
        forget_pages();
        const auto table = data("ncclComms");
        const auto count = data("nNcclComms");
        const auto array = table ? value<std::uint64_t>(*table) : std::nullopt;
        const auto n = count ? value<std::int32_t>(*count) : std::nullopt;
        if (!array || !n || *n <= 0)
            return false;
        std::vector<std::uint64_t> all(static_cast<std::size_t>(std::min(*n, MAX_COMMS)));
        return bytes(*array, std::as_writable_bytes(std::span{all})) &&
               std::ranges::find(all, comm.comm) != all.end() &&
               field<std::uint64_t>(comm.comm, bpf_layout_.comm_start_magic) == COMM_MAGIC &&
               field<std::uint64_t>(comm.comm, bpf_layout_.comm_hash) == comm.comm_hash &&
               field<std::int32_t>(comm.comm, bpf_layout_.comm_rank) == comm.rank;
    }

    void read_counts(cw_nccl_comm &comm) {
        forget_pages();
        comm.op_count = field<std::uint64_t>(comm.comm, bpf_layout_.comm_op_count).value_or(0);
        comm.flags &= ~std::uint32_t{CW_NCCL_COMM_LAUNCHED};
        read_launched(comm);
    }

private:
    [[nodiscard]] std::optional<std::uint64_t> data(const char *name) const {
        const auto found = layout_.data.find(name);
        return found == layout_.data.end() ? std::nullopt : std::optional{found->second + bias_};
    }
    [[nodiscard]] std::uint32_t offset(const char *name) const {
        const auto found = layout_.offsets.find(name);
        return found == layout_.offsets.end() ? CW_NCCL_NO_FIELD
                                              : static_cast<std::uint32_t>(found->second.value);
    }

    void add_comm(std::uint64_t address, std::vector<LiveComm> &comms) {
        forget_pages();
        const auto magic = field<std::uint64_t>(address, bpf_layout_.comm_start_magic);
        const auto state = field<std::int32_t>(address, offset("ncclComm.initState"));
        // Under creation: its creation will be recorded.
        if (magic != COMM_MAGIC || state != 0)
            return;
        LiveComm live;
        cw_nccl_comm &comm = live.comm;
        const auto hash = field<std::uint64_t>(address, bpf_layout_.comm_hash);
        const auto rank = field<std::int32_t>(address, bpf_layout_.comm_rank);
        const auto n_ranks = field<std::int32_t>(address, bpf_layout_.comm_n_ranks);
        if (!hash || !rank || !n_ranks || *n_ranks <= 0 || *rank < 0 || *rank >= *n_ranks)
            return;
        comm.comm = address;
        comm.comm_hash = *hash;
        comm.rank = *rank;
        comm.n_ranks = *n_ranks;
        comm.cuda_dev = field<std::int32_t>(address, bpf_layout_.comm_cuda_dev).value_or(-1);
        comm.bus_id = field<std::uint64_t>(address, bpf_layout_.comm_bus_id).value_or(0);
        comm.node = field<std::int32_t>(address, bpf_layout_.comm_node).value_or(-1);
        comm.n_nodes = field<std::int32_t>(address, bpf_layout_.comm_n_nodes).value_or(0);
        comm.local_rank = field<std::int32_t>(address, bpf_layout_.comm_local_rank).value_or(-1);
        comm.local_ranks = field<std::int32_t>(address, bpf_layout_.comm_local_ranks).value_or(0);
        comm.proxy_state = field<std::uint64_t>(address, bpf_layout_.comm_proxy_state).value_or(0);
        comm.p2p_channels =
            field<std::uint32_t>(address, bpf_layout_.comm_p2p_channels).value_or(0);
        comm.p2p_channels_per_peer =
            field<std::uint32_t>(address, bpf_layout_.comm_p2p_channels_per_peer).value_or(0);
        comm.flags = CW_NCCL_COMM_OUTSIDE;
        read_counts(comm);
        read_name(comm);
        add_connections(live);
        comms.push_back(std::move(live));
    }

    void read_launched(cw_nccl_comm &comm) {
        comm.launched = 0;
        const auto shared = field<std::uint64_t>(comm.comm, bpf_layout_.comm_shared_res);
        if (shared && field<std::uint64_t>(*shared, bpf_layout_.shared_owner) != comm.comm)
            comm.flags |= CW_NCCL_COMM_SHARED;
        if (bpf_layout_.seq_numbers_count != 0) {
            const auto numbers =
                field<std::array<std::uint64_t, 5>>(comm.comm, bpf_layout_.comm_seq_number);
            if (!numbers)
                return;
            for (const std::uint64_t number : *numbers)
                comm.launched += number;
            comm.flags |= CW_NCCL_COMM_LAUNCHED;
            return;
        }
        const auto count =
            shared ? field<std::uint64_t>(*shared, bpf_layout_.shared_coll_op_count) : std::nullopt;
        if (count) {
            comm.launched = *count;
            comm.flags |= CW_NCCL_COMM_LAUNCHED;
        }
    }

    void read_name(cw_nccl_comm &comm) {
        const auto at = field<std::uint64_t>(comm.comm, bpf_layout_.comm_name);
        if (!at || *at == 0)
            return;
        // The program's own text, which it may have freed since: only printable names count.
        bool is_name = false;
        // The text may end with its page, and the next one be unmapped.
        std::array<char, COMM_NAME_BYTES> text{};
        const std::size_t in_page =
            std::min<std::size_t>(COMM_NAME_BYTES, PAGE_BYTES - *at % PAGE_BYTES);
        if (bytes(*at, std::as_writable_bytes(std::span{text}.first(in_page))))
            (void)bytes(*at + in_page, std::as_writable_bytes(std::span{text}.subspan(in_page)));
        for (std::size_t i = 0; i < COMM_NAME_BYTES && text[i] != '\0'; ++i) {
            if (static_cast<unsigned char>(text[i]) < ' ') {
                is_name = false;
                break;
            }
            is_name = is_name || text[i] != ' ';
            comm.name[i] = text[i];
        }
        if (!is_name)
            std::ranges::fill(comm.name, '\0');
    }

    void add_connections(LiveComm &live) {
        const std::uint32_t peers = offset("ncclChannel.peers");
        const std::uint32_t size = offset("ncclConnector");
        const std::uint32_t connected = offset("ncclConnector.connected");
        const std::uint32_t pointer = offset("ncclConnector.proxyConn.connection");
        const std::uint32_t same_process = offset("ncclConnector.proxyConn.sameProcess");
        const std::array<std::uint32_t, 2> arrays{offset("ncclChannelPeer.send"),
                                                  offset("ncclChannelPeer.recv")};
        for (const std::uint32_t one :
             {peers, size, connected, pointer, same_process, arrays[0], arrays[1],
              bpf_layout_.comm_channels, bpf_layout_.channel_size})
            if (one == CW_NCCL_NO_FIELD)
                return;
        const std::uint64_t last =
            std::max({connected + 8ULL, pointer + 8ULL, same_process + 8ULL});
        if (last > size)
            return;
        std::vector<std::uint64_t> table(
            static_cast<std::size_t>(std::min(live.comm.n_ranks, MAX_RANKS)));
        for (std::int32_t channel = 0; channel < MAX_CHANNELS; ++channel) {
            const std::uint64_t at = live.comm.comm + bpf_layout_.comm_channels +
                                     static_cast<std::uint64_t>(channel) * bpf_layout_.channel_size;
            const auto address = field<std::uint64_t>(at, peers);
            if (!address || *address == 0 ||
                !bytes(*address, std::as_writable_bytes(std::span{table})))
                continue; // no such peer
            // There are as many as channels times ranks, and few are connected.
            std::vector<std::uint64_t> connectors;
            for (const std::uint64_t of_rank : table)
                for (const std::uint32_t array : arrays)
                    for (std::uint64_t i = 0; of_rank != 0 && i < CONNECTORS; ++i)
                        connectors.push_back(of_rank + array + i * size);
            keep_where_set(connectors, connected);
            keep_where_set(connectors, same_process);
            if (connectors.size() > MAX_FOLLOWED - n_followed_) {
                connectors.resize(MAX_FOLLOWED - n_followed_);
                cut();
            }
            n_followed_ += connectors.size();
            std::vector<std::uint64_t> connections = words_of(connectors, pointer);
            std::erase(connections, 0);
            if (bpf_layout_.connection_transport == CW_NCCL_NO_FIELD)
                continue;
            const auto transports = words_of(connections, bpf_layout_.connection_transport);
            for (std::size_t i = 0; i < connections.size(); ++i)
                if (static_cast<std::int32_t>(transports[i]) == TRANSPORT_NET)
                    add_connection(live, connections[i]);
        }
    }

    void add_connection(LiveComm &live, std::uint64_t address) {
        forget_pages();
        if (n_connections_ >= MAX_CONNECTIONS)
            cut();
        if (address == 0 || n_connections_ >= MAX_CONNECTIONS ||
            field<std::int32_t>(address, bpf_layout_.connection_transport) != TRANSPORT_NET)
            return;
        const auto send = field<std::int32_t>(address, bpf_layout_.connection_send);
        const auto resources = field<std::uint64_t>(address, bpf_layout_.connection_resources);
        if (!send || !resources || *resources == 0)
            return;
        cw_nccl_connection connection = {};
        connection.comm = live.comm.comm;
        connection.connection = address;
        connection.flags = CW_NCCL_CONNECTION_OUTSIDE;
        if (*send != 0)
            connection.flags |= CW_NCCL_CONNECTION_SEND;
        if (field<std::int32_t>(address, bpf_layout_.connection_shared).value_or(0) != 0)
            connection.flags |= CW_NCCL_CONNECTION_SHARED;
        const auto pick = [&](std::uint32_t of_send, std::uint32_t of_recv) {
            return *send != 0 ? of_send : of_recv;
        };
        const auto number = [&](std::uint32_t of_send, std::uint32_t of_recv) {
            const std::uint32_t at = pick(of_send, of_recv);
            const auto found = field<std::int32_t>(*resources, at);
            if (!found && at != CW_NCCL_NO_FIELD)
                connection.flags |= CW_NCCL_CONNECTION_FAULT;
            return found.value_or(-1);
        };
        const auto net_comm = field<std::uint64_t>(
            *resources, pick(bpf_layout_.send_net_comm, bpf_layout_.recv_net_comm));
        if (!net_comm || *net_comm == 0)
            return; // not connected yet
        connection.net_comm = *net_comm;
        connection.rank = number(bpf_layout_.send_tp_rank, bpf_layout_.recv_tp_rank);
        connection.peer = number(bpf_layout_.send_tp_remote_rank, bpf_layout_.recv_tp_remote_rank);
        connection.channel = number(bpf_layout_.send_channel, bpf_layout_.recv_channel);
        connection.conn_index = number(bpf_layout_.send_conn_index, bpf_layout_.recv_conn_index);
        connection.net_dev = number(bpf_layout_.send_net_dev, bpf_layout_.recv_net_dev);
        if (number(bpf_layout_.send_use_gdr, bpf_layout_.recv_use_gdr) > 0)
            connection.flags |= CW_NCCL_CONNECTION_GDR;
        const auto net = field<std::uint64_t>(live.comm.proxy_state, bpf_layout_.proxy_state_net);
        if (!net)
            connection.flags |= CW_NCCL_CONNECTION_FAULT;
        connection.transport = !net                                     ? CW_NCCL_TRANSPORT_UNKNOWN
                               : *net == bpf_layout_.net_ib + bias_     ? CW_NCCL_TRANSPORT_IB
                               : *net == bpf_layout_.net_socket + bias_ ? CW_NCCL_TRANSPORT_SOCKET
                                                                        : CW_NCCL_TRANSPORT_PLUGIN;
        add_endpoints(live, connection);
    }

    void add_endpoints(LiveComm &live, cw_nccl_connection connection) {
        const bool send = (connection.flags & CW_NCCL_CONNECTION_SEND) != 0;
        const bool ib = connection.transport == CW_NCCL_TRANSPORT_IB;
        const bool socket = connection.transport == CW_NCCL_TRANSPORT_SOCKET;
        std::int32_t n = 0;
        if (ib)
            n = field<std::int32_t>(connection.net_comm,
                                    send ? bpf_layout_.ib_send_n_qps : bpf_layout_.ib_recv_n_qps)
                    .value_or(-1);
        else if (socket)
            n = field<std::int32_t>(connection.net_comm, bpf_layout_.socket_n_socks).value_or(-1);
        if (n < 0 || n > MAX_ENDPOINTS) {
            connection.flags |= CW_NCCL_CONNECTION_FAULT;
            n = 0;
        } else if (socket) {
            ++n; // the control socket
        }
        const std::int32_t n_qps = n;
        if (ib && !send)
            n += count_flush_qps(connection.net_comm);
        connection.n_endpoints = static_cast<__u32>(n);
        std::int32_t i = 0;
        do {
            connection.first = static_cast<__u32>(i);
            connection.n = 0;
            for (; i < n && connection.n < CW_NCCL_ENDPOINTS; ++i) {
                __u64 &inode = connection.socket_inodes[connection.n];
                inode = 0;
                const auto endpoint = !ib         ? read_socket(connection.net_comm, i, inode)
                                      : i < n_qps ? read_connection_qp(connection.net_comm, send, i)
                                                  : read_flush_qp(connection.net_comm, i - n_qps);
                if (!endpoint) {
                    connection.flags |= CW_NCCL_CONNECTION_FAULT;
                    i = n;
                    break;
                }
                connection.endpoints[connection.n++] = *endpoint;
            }
            if (socket)
                check_sockets(connection);
            live.connections.push_back(connection);
            ++n_connections_;
        } while (i < n);
    }

    // The receiver's device: as in bpf/nccl_connections.h.
    [[nodiscard]] std::uint64_t flush_qp_at(std::uint64_t net_comm, std::int32_t device) const {
        return net_comm + bpf_layout_.ib_recv_devs + bpf_layout_.ib_flush_qp +
               static_cast<std::uint64_t>(device) * bpf_layout_.ib_recv_dev_size;
    }

    std::int32_t count_flush_qps(std::uint64_t net_comm) {
        for (const std::uint32_t one :
             {bpf_layout_.ib_flush_qp, bpf_layout_.ib_recv_devs, bpf_layout_.ib_recv_dev_size})
            if (one == CW_NCCL_NO_FIELD)
                return 0;
        const auto n = field<std::int32_t>(net_comm, bpf_layout_.ib_n_devs).value_or(0);
        if (n < 1 || n > MAX_FLUSH_QPS)
            return 0;
        return value<std::uint64_t>(flush_qp_at(net_comm, 0)).value_or(0) != 0 ? n : 0;
    }

    std::optional<cw_nccl_endpoint> read_connection_qp(std::uint64_t net_comm, bool send,
                                                       std::int32_t i) {
        if (bpf_layout_.ib_qp_size == CW_NCCL_NO_FIELD)
            return std::nullopt; // 2.18, where no pointer leads here
        const std::uint64_t at = net_comm +
                                 (send ? bpf_layout_.ib_send_qps : bpf_layout_.ib_recv_qps) +
                                 static_cast<std::uint64_t>(i) * bpf_layout_.ib_qp_size;
        auto endpoint = read_qp(at, send ? CW_NCCL_ROLE_DATA : CW_NCCL_ROLE_CLEAR_TO_SEND);
        if (endpoint)
            endpoint->device = static_cast<__u16>(
                field<std::int32_t>(at, bpf_layout_.ib_qp_dev_index).value_or(0));
        return endpoint;
    }

    std::optional<cw_nccl_endpoint> read_flush_qp(std::uint64_t net_comm, std::int32_t device) {
        auto endpoint = read_qp(flush_qp_at(net_comm, device), CW_NCCL_ROLE_FLUSH);
        if (endpoint)
            endpoint->device = static_cast<__u16>(device);
        return endpoint;
    }

    std::optional<cw_nccl_endpoint> read_qp(std::uint64_t at, cw_nccl_role role) {
        const auto address = field<std::uint64_t>(at, bpf_layout_.ib_qp_qp);
        const auto number =
            address ? field<std::uint32_t>(*address, bpf_layout_.ibv_qp_num) : std::nullopt;
        if (!number)
            return std::nullopt;
        cw_nccl_endpoint endpoint = {};
        endpoint.address = *address;
        endpoint.number = *number;
        endpoint.role = static_cast<__u8>(role);
        return endpoint;
    }

    // The sockets of the descriptors were read between two reads of the descriptors' numbers: if
    // both are equal, no other connection took its place.
    void check_sockets(cw_nccl_connection &connection) {
        forget_pages();
        for (std::uint32_t i = 0; i < connection.n; ++i) {
            const cw_nccl_endpoint &endpoint = connection.endpoints[i];
            if (field<std::uint32_t>(endpoint.address, bpf_layout_.socket_fd) != endpoint.number)
                connection.socket_inodes[i] = 0;
        }
    }

    std::optional<cw_nccl_endpoint> read_socket(std::uint64_t net_comm, std::int32_t i,
                                                __u64 &inode) {
        cw_nccl_endpoint endpoint = {};
        endpoint.role = i == 0 ? CW_NCCL_ROLE_CONTROL : CW_NCCL_ROLE_DATA;
        endpoint.address = i == 0 ? net_comm + bpf_layout_.socket_ctrl
                                  : net_comm + bpf_layout_.socket_socks +
                                        static_cast<std::uint64_t>(i - 1) * bpf_layout_.socket_size;
        const auto fd = field<std::uint32_t>(endpoint.address, bpf_layout_.socket_fd);
        if (!fd)
            return std::nullopt;
        endpoint.number = *fd;
        inode = inventory::socket_inode(static_cast<std::uint32_t>(process().pid()), *fd);
        return endpoint;
    }

    const LibraryLayout &layout_;
    const cw_nccl_layout &bpf_layout_;
    std::uint64_t bias_;
    std::size_t n_connections_ = 0;
    std::size_t n_followed_ = 0;
};

} // namespace

std::optional<std::uint64_t> load_bias(const LibraryLayout &layout,
                                       const process::Mapping &mapping) {
    for (const ProbedFunction &probe : layout.probes) {
        if (!mapping.executable || probe.file_offset < mapping.file_offset ||
            probe.file_offset - mapping.file_offset >= mapping.end - mapping.begin)
            continue;
        return mapping.begin + (probe.file_offset - mapping.file_offset) - probe.address;
    }
    return std::nullopt;
}

LiveComms read_comms(const process::ProcessView &process, const LibraryLayout &layout,
                     const cw_nccl_layout &bpf_layout, std::uint64_t bias) {
    return LiveCommsReader{process, layout, bpf_layout, bias}.read();
}

LiveComms read_comms_at(const process::ProcessView &process, const LibraryLayout &layout,
                        const cw_nccl_layout &bpf_layout, std::uint64_t bias,
                        std::span<const std::uint64_t> addresses) {
    return LiveCommsReader{process, layout, bpf_layout, bias}.read(addresses);
}

bool is_there(const process::ProcessView &process, const LibraryLayout &layout,
              const cw_nccl_layout &bpf_layout, std::uint64_t bias, const cw_nccl_comm &comm) {
    return LiveCommsReader{process, layout, bpf_layout, bias}.has(comm);
}

void read_counts(const process::ProcessView &process, const LibraryLayout &layout,
                 const cw_nccl_layout &bpf_layout, cw_nccl_comm &comm) {
    LiveCommsReader{process, layout, bpf_layout, 0}.read_counts(comm);
}

std::vector<cw_nccl_connection> read_connection(const process::ProcessView &process,
                                                const LibraryLayout &layout,
                                                const cw_nccl_layout &bpf_layout,
                                                std::uint64_t bias, std::uint64_t proxy_state,
                                                std::uint64_t address) {
    return LiveCommsReader{process, layout, bpf_layout, bias}.read_connection(proxy_state, address);
}

} // namespace collwire::nccl
