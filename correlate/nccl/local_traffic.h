// SPDX-License-Identifier: Apache-2.0
// Bytes between ranks of one node (P2P, SHM), modelled from launches: of each operation, of each
// pair of ranks, and of each GPU in a stretch of time. Nothing of it is measured, and it is part of
// no other sum. A rank whose launches are not recorded adds nothing; the operation is then partial.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "correlate/model/known.h"
#include "correlate/nccl/local_edges.h"

namespace collwire::model {
struct Model;
}

namespace collwire::nccl {

using model::Index;

// How NCCL connected two ranks of a node (transport.h), as the recorder read it.
enum class LocalTransport : std::uint8_t {
    Unknown, // P2P or SHM
    P2p,     // GPU to GPU: NVLink or PCIe, which is not known
    Shm,     // through host memory, over PCIe or C2C
    Nvlink,  // P2P between GPUs that NVML says reach each other over NVLink
    Pcie,    // P2P between GPUs of which NVML says that they do not
    Nvls,    // GPU to and from the switch of NVLinks
};
inline constexpr std::size_t LOCAL_TRANSPORTS = 6;
inline constexpr std::array ALL_LOCAL_TRANSPORTS{LocalTransport::Nvls, LocalTransport::Nvlink,
                                                 LocalTransport::Pcie, LocalTransport::P2p,
                                                 LocalTransport::Shm,  LocalTransport::Unknown};

[[nodiscard]] std::string_view local_transport_name(LocalTransport transport); // "p2p"
// "nvlink", "pcie"; empty: not between GPUs, or not known.
[[nodiscard]] std::string_view local_wire_name(LocalTransport transport);

struct LocalBytes {
    std::uint64_t payload_bytes = 0; // with LL's and LL128's flags: what crosses the link
    std::uint64_t data_bytes = 0;

    void add(const LocalBytes &other); // saturates
};

// An edge inside a node.
struct LocalSend {
    LocalEdge edge;
    LocalTransport transport = LocalTransport::Unknown;
};

// A task of a launch, as a rank sees it.
struct LocalTask {
    NotModelled reason = NotModelled::No;
    std::vector<LocalSend> edges; // to and from the rank
    // Those that count for it: both ends compute an edge, and the sender's counts if it is
    // recorded.
    std::array<LocalBytes, LOCAL_TRANSPORTS> counted{};
    bool has_sends = false;
    // Of a send or receive whose peer is another rank of the node; -1: none.
    std::int32_t sender = -1;
    bool is_part = false; // likewise, and it counts for the rank
    std::uint64_t launches = 0;
};

enum class LocalState : std::uint8_t {
    None,        // no bytes inside a node, or a copy to itself
    NotRecorded, // no rank's launch is recorded, or none of its parts inside a node
    NotModelled, // see reason
    Partial,     // some ranks of the nodes are not recorded, or some parts
    Modelled,
};

// Of an operation: at the same place as in NcclFacts::collectives, p2p.
struct LocalOperation {
    std::uint64_t payload_bytes = 0;
    std::uint32_t ranks = 0;     // that are modelled
    std::uint64_t parts = 0;     // sends between ranks of one node
    Index counted = model::NONE; // the last instance in `ranks`
    // Of a collective: a rank's launch of it, which says what all ranks did.
    Index shape = model::NONE;
    std::uint32_t task = 0;
    bool is_sent = false; // a rank that sends is modelled
    LocalState state = LocalState::None;
    NotModelled reason = NotModelled::No;
};

struct LocalKey {
    Index comm = model::NONE;
    std::int32_t source = -1;
    std::int32_t destination = -1;
    LocalTransport transport = LocalTransport::Unknown;
    friend auto operator<=>(const LocalKey &, const LocalKey &) = default;
};

// Of the operations of a communicator with one function.
struct LocalSums {
    std::uint64_t operations = 0; // that have ranks of one node
    std::uint64_t modelled = 0;
    std::uint64_t partial = 0;
    std::uint64_t not_recorded = 0;
    std::array<std::uint64_t, NOT_MODELLED_REASONS> not_modelled{}; // by reason
    std::array<LocalBytes, LOCAL_TRANSPORTS> bytes{};
};

struct LocalFacts {
    bool has_nodes = false; // a recorded communicator has several ranks on a node
    std::map<LocalKey, LocalBytes> matrix;
    std::map<std::pair<Index, std::uint8_t>, LocalSums> sums; // communicator, function
    std::vector<LocalOperation> collectives, p2p;             // empty without such nodes
    // By instance and shape: equal for all launches.
    std::map<std::pair<Index, Index>, std::vector<LocalTask>> tasks;
};

// After account_operations(). Costs nothing if no communicator has several ranks on a node.
void account_local(model::Model &model);

// A launch's tasks; null: not known, or its rank is alone on its node.
[[nodiscard]] const std::vector<LocalTask> *local_tasks(const model::Model &model, Index instance,
                                                        std::uint32_t launch);

// What a rank's GPU sent and received inside its node, by launches in a stretch of time.
struct GpuLocalBytes {
    Index instance = model::NONE;
    Index host = model::NONE;
    std::uint32_t pid = 0;
    std::int32_t rank = -1;
    std::int32_t cuda_dev = -1;
    std::uint64_t bus_id = 0; // as NCCL keeps it: bus_id_text()
    std::array<LocalBytes, LOCAL_TRANSPORTS> sent{}, received{};
    std::uint64_t launches = 0;
    // The sums are lower bounds if one of these is not 0: tasks of these launches without known
    // bytes, and calls in that time without a recorded launch.
    std::uint64_t not_modelled = 0;
    std::uint64_t calls_without_launch = 0;
};

// Launches at begin_ns <= time < end_ns, in nanoseconds of the recording's CLOCK_MONOTONIC. One
// entry for each recorded rank that shares its node and called or launched something; a GPU with
// several communicators has several entries.
[[nodiscard]] std::vector<GpuLocalBytes> local_bytes_between(const model::Model &model,
                                                             Index session, std::uint64_t begin_ns,
                                                             std::uint64_t end_ns);

} // namespace collwire::nccl
