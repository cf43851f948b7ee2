// SPDX-License-Identifier: Apache-2.0
// The shapes of launches on one node: the bytes that one launch of a shape moves, for each of its
// tasks. They are computed once, when all records of the shape are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"

namespace collwire::stream {

// What one launch gives to the transports for one of its tasks.
struct TaskBytes {
    std::uint64_t payload_bytes = 0;
    std::uint64_t data_bytes = 0; // without flags and padding
    std::uint64_t messages = 0;
    std::uint8_t func = CW_NCCL_FUNC_UNKNOWN;
    std::uint8_t api_func = CW_NCCL_FUNC_UNKNOWN;
    std::uint8_t algorithm = CW_NCCL_ALGORITHM_UNKNOWN;
    std::uint8_t protocol = CW_NCCL_PROTOCOL_UNKNOWN;
    std::int32_t root = -1;       // or peer
    std::uint64_t call_bytes = 0; // of the call's buffer, or of one peer's part of it
    bool is_known = true;         // all of its bytes
    bool is_bound = false;
};

// The communicator of a launch, from its record.
struct LaunchingRank {
    std::int32_t rank = -1;
    std::int32_t n_ranks = 0;
    std::uint64_t comm = 0;         // its address
    std::uint32_t p2p_channels = 0; // 0: not known
    std::uint32_t version = 0;      // of NCCL: 22809
    // Earlier records are of other connections, whose addresses are used again; 0: none are known
    // to be, as the communicator was joined late, or shares its parent's connections.
    std::uint64_t begin_ns = 0;
};

class ShapeTable {
public:
    void add(const cw_nccl_shape_task &task);
    void add(const cw_nccl_shape_ops &ops);
    void add(const cw_nccl_connection &connection);
    void add(const cw_nccl_nvls &nvls);
    void forget_process(std::uint32_t tgid);

    // The tasks of a shape by their index. Null: not all records of it are there. Valid until the
    // process is forgotten. `refs`: the tasks of a launch of it. Those of one address are one task,
    // in several parts: the first one has the bytes of all.
    [[nodiscard]] const std::vector<TaskBytes> *find(std::uint32_t tgid, std::uint64_t shape,
                                                     const LaunchingRank &rank,
                                                     std::span<const cw_nccl_task_ref> refs);

private:
    using Key = std::pair<std::uint32_t, std::uint64_t>; // process; hash or address
    struct Hash {
        std::size_t operator()(const Key &key) const {
            return static_cast<std::size_t>((key.second ^ key.first) * 0x9e3779b97f4a7c15U);
        }
    };
    struct Connection {
        std::uint64_t time_ns = 0;
        std::int32_t peer = -1;
        bool is_send = false;
        bool is_on_network = false;
    };
    struct Shape {
        std::vector<cw_nccl_shape_task> tasks; // length 0: not there
        std::vector<cw_nccl_op> ops;
        std::uint32_t n_ops = 0;
        std::uint32_t n_there = 0;
        std::vector<bool> is_there;
        std::vector<TaskBytes> bytes;
        bool is_ready = false;
    };
    [[nodiscard]] bool compute(std::uint32_t tgid, Shape &shape, const LaunchingRank &rank,
                               std::span<const cw_nccl_task_ref> refs) const;

    std::unordered_map<Key, Shape, Hash> shapes_;
    std::unordered_map<Key, Connection, Hash> connections_;
    std::unordered_map<Key, cw_nccl_nvls, Hash> nvls_; // by the communicator's address
};

} // namespace collwire::stream
