// SPDX-License-Identifier: Apache-2.0
// Communicators that a process is making, in its memory: rank, size, and how far the bootstrap has
// come.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

// ncclSocket.state, equal in 2.18 to 2.30 (include/socket.h). Others are above these.
enum class SocketState {
    None,
    Initialized,
    Accepting,
    Accepted,
    Connecting,
    Polling,
    Connected,
    Ready
};

// A socket of the bootstrap's ring.
struct RingSocket {
    std::int32_t state = 0;
    std::string remote; // address and port; empty: none
};

struct UnreadyBootstrap {
    RingSocket to_next, from_previous;
    // Whether the addresses of all ranks are there.
    std::optional<bool> has_addresses;
};

struct UnreadyComm {
    std::uint64_t address = 0;
    std::uint64_t hash = 0;  // 0: not set yet
    std::uint64_t magic = 0; // 0: not set yet
    std::int32_t rank = -1, n_ranks = 0;
    std::int32_t device = -1;
    std::optional<std::int32_t> async_result;
    std::optional<UnreadyBootstrap> bootstrap; // nothing: not reached, or not known
    bool is_bootstrap_known = false;           // this layout has its fields
};

// Whether a communicator that is not ready is at this address.
[[nodiscard]] bool is_unready_comm(const process::ProcessView &process, const LibraryLayout &layout,
                                   std::uint64_t address);
[[nodiscard]] std::optional<UnreadyComm> read_unready_comm(const process::ProcessView &process,
                                                           const LibraryLayout &layout,
                                                           std::uint64_t address);

// NCCL's ncclCommInitRankAsyncJob.
struct InitJob {
    std::uint64_t parent = 0; // 0: none
    std::int32_t rank = -1, n_ranks = 0;
    std::string root; // address and port of the bootstrap root; empty: not known
};
// The job at this address, if it makes that communicator.
[[nodiscard]] std::optional<InitJob> read_init_job(const process::ProcessView &process,
                                                   const LibraryLayout &layout,
                                                   std::uint64_t address, std::uint64_t comm);

// "10.0.0.1:4791" or "[fe80::1]:4791" of a sockaddr in the process; empty: it is none.
[[nodiscard]] std::string read_socket_address(const process::ProcessView &process,
                                              std::uint64_t address);

} // namespace collwire::nccl
