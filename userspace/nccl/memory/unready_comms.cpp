// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/unready_comms.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "collwire/nccl_layout.h"
#include "userspace/nccl/layout/bpf_layout.h"

namespace collwire::nccl {
namespace {

constexpr std::int32_t MAX_RANKS = 1 << 20;
constexpr std::uint64_t ADDRESS_BYTES = sizeof(sockaddr_in6); // of ncclSocketAddress
constexpr std::uint64_t UNIQUE_ID_BYTES = 128;
constexpr std::uint64_t ID_ADDRESS = 8; // in a unique id (ncclBootstrapHandle), after the magic

class FieldReader {
public:
    FieldReader(const process::ProcessView &process, const LibraryLayout &layout)
        : process_(process), layout_(layout) {}

    [[nodiscard]] bool has(std::string_view names) const {
        return field_offset(layout_, names) != CW_NCCL_NO_FIELD;
    }
    template <typename T>
    [[nodiscard]] std::optional<T> read(std::uint64_t base, std::string_view names) const {
        const std::uint32_t offset = field_offset(layout_, names);
        return offset == CW_NCCL_NO_FIELD || base == 0 ? std::nullopt
                                                       : process_.read<T>(base + offset);
    }

private:
    const process::ProcessView &process_;
    const LibraryLayout &layout_;
};

constexpr std::string_view TO_NEXT =
    "bootstrapState.ring.socket.send|bootstrapState.ringSendSocket";
constexpr std::string_view FROM_PREVIOUS =
    "bootstrapState.ring.socket.recv|bootstrapState.ringRecvSocket";
constexpr std::string_view ADDRESSES =
    "bootstrapState.peerP2pAddresses|bootstrapState.peerCommAddresses";

std::optional<RingSocket> read_ring_socket(const process::ProcessView &process,
                                           const LibraryLayout &layout, std::uint64_t address) {
    const FieldReader fields{process, layout};
    const auto state = fields.read<std::int32_t>(address, "ncclSocket.state");
    if (!state)
        return std::nullopt;
    RingSocket socket{*state, {}};
    if (const std::uint32_t offset = field_offset(layout, "ncclSocket.addr");
        offset != CW_NCCL_NO_FIELD)
        socket.remote = read_socket_address(process, address + offset);
    return socket;
}

std::optional<UnreadyBootstrap> read_bootstrap(const process::ProcessView &process,
                                               const LibraryLayout &layout, std::uint64_t state,
                                               const UnreadyComm &comm) {
    const FieldReader fields{process, layout};
    const auto send = read_ring_socket(process, layout, state + field_offset(layout, TO_NEXT));
    const auto receive =
        read_ring_socket(process, layout, state + field_offset(layout, FROM_PREVIOUS));
    if (!send || !receive)
        return std::nullopt;
    UnreadyBootstrap bootstrap{*send, *receive, std::nullopt};
    const auto addresses = fields.read<std::uint64_t>(state, ADDRESSES);
    if (addresses == 0) {
        bootstrap.has_addresses = false;
    } else if (addresses && comm.rank >= 0 && comm.n_ranks > 0) {
        // They come with one exchange, or over half of the ring each way: the rank opposite is
        // last.
        const auto of_rank = [&](std::int32_t rank) {
            return process.read<std::uint16_t>(*addresses +
                                               static_cast<std::uint64_t>(rank) * ADDRESS_BYTES);
        };
        bool all = true, is_known = true;
        for (const std::int32_t by : {comm.n_ranks / 2, comm.n_ranks - 1, 1}) {
            const auto family = of_rank((comm.rank + by) % comm.n_ranks);
            is_known = is_known && family;
            all = all && family.value_or(0) != 0;
        }
        if (is_known)
            bootstrap.has_addresses = all;
    }
    return bootstrap;
}

} // namespace

std::string read_socket_address(const process::ProcessView &process, std::uint64_t address) {
    const auto bytes = process.read<std::array<std::byte, sizeof(sockaddr_in6)>>(address);
    if (!bytes)
        return {};
    std::array<char, INET6_ADDRSTRLEN> text{};
    sockaddr_in6 six;
    std::memcpy(&six, bytes->data(), sizeof(six));
    if (six.sin6_family == AF_INET6 && six.sin6_port != 0) {
        inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
        return std::string{"["} + text.data() + "]:" + std::to_string(ntohs(six.sin6_port));
    }
    sockaddr_in four;
    std::memcpy(&four, bytes->data(), sizeof(four));
    if (four.sin_family != AF_INET || four.sin_port == 0)
        return {};
    inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
    return std::string{text.data()} + ":" + std::to_string(ntohs(four.sin_port));
}

bool is_unready_comm(const process::ProcessView &process, const LibraryLayout &layout,
                     std::uint64_t address) {
    const FieldReader fields{process, layout};
    // ncclSuccess: it is ready. Its memory is zeroed when it is made, and its marks are set first.
    return fields.read<std::uint64_t>(address, "ncclComm.startMagic") == COMM_MAGIC &&
           fields.read<std::uint64_t>(address, "ncclComm.endMagic") == COMM_MAGIC &&
           fields.read<std::int32_t>(address, "ncclComm.initState").value_or(0) != 0;
}

std::optional<UnreadyComm> read_unready_comm(const process::ProcessView &process,
                                             const LibraryLayout &layout, std::uint64_t address) {
    if (!is_unready_comm(process, layout, address))
        return std::nullopt;
    const FieldReader fields{process, layout};
    UnreadyComm comm;
    comm.address = address;
    comm.hash = fields.read<std::uint64_t>(address, "ncclComm.commHash").value_or(0);
    comm.async_result = fields.read<std::int32_t>(address, "ncclComm.asyncResult");
    const auto n_ranks = fields.read<std::int32_t>(address, "ncclComm.nRanks").value_or(0);
    const auto rank = fields.read<std::int32_t>(address, "ncclComm.rank").value_or(-1);
    if (n_ranks > 0 && n_ranks <= MAX_RANKS && rank >= 0 && rank < n_ranks) {
        comm.rank = rank;
        comm.n_ranks = n_ranks;
        comm.device = fields.read<std::int32_t>(address, "ncclComm.cudaDev").value_or(-1);
    }
    comm.is_bootstrap_known = fields.has("ncclComm.bootstrap") && fields.has(TO_NEXT) &&
                              fields.has(FROM_PREVIOUS) && fields.has("ncclSocket.state");
    const auto state = fields.read<std::uint64_t>(address, "ncclComm.bootstrap");
    if (state.value_or(0) == 0)
        return comm;
    comm.magic = fields.read<std::uint64_t>(*state, "bootstrapState.magic").value_or(0);
    if (comm.is_bootstrap_known)
        comm.bootstrap = read_bootstrap(process, layout, *state, comm);
    return comm;
}

std::optional<InitJob> read_init_job(const process::ProcessView &process,
                                     const LibraryLayout &layout, std::uint64_t address,
                                     std::uint64_t comm) {
    const FieldReader fields{process, layout};
    if (fields.read<std::uint64_t>(address, "ncclCommInitRankAsyncJob.comm") != comm)
        return std::nullopt;
    InitJob job;
    job.parent = fields.read<std::uint64_t>(address, "ncclCommInitRankAsyncJob.parent").value_or(0);
    const auto rank = fields.read<std::int32_t>(address, "ncclCommInitRankAsyncJob.myrank");
    const auto n_ranks = fields.read<std::int32_t>(address, "ncclCommInitRankAsyncJob.nranks");
    if (rank && n_ranks && *rank >= 0 && *n_ranks <= MAX_RANKS && *rank < *n_ranks) {
        job.rank = *rank;
        job.n_ranks = *n_ranks;
    }
    // Until 2.22 the id itself, later a pointer to several.
    const auto id = layout.offsets.find("ncclCommInitRankAsyncJob.commId");
    if (id != layout.offsets.end() && job.parent == 0) {
        const std::uint64_t at = address + id->second.value;
        const auto place = id->second.size_bytes == UNIQUE_ID_BYTES
                               ? std::optional{at}
                               : process.read<std::uint64_t>(at);
        if (place.value_or(0) != 0)
            job.root = read_socket_address(process, *place + ID_ADDRESS);
    }
    return job;
}

} // namespace collwire::nccl
