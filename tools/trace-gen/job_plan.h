// SPDX-License-Identifier: Apache-2.0
// A generated training job: its communicators, their rings, trees and schedules of transfers, the
// connections between nodes, and what each iteration does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "tools/trace-gen/job_options.h"
#include "tools/trace-gen/job_sizes.h"

namespace collwire::trace_gen {

enum class JobRole : std::uint8_t { Data, Tensor, Pipeline, Expert };
inline constexpr std::size_t JOB_ROLES = 4;
[[nodiscard]] const char *role_name(JobRole role);

// Each of its nodes has the same local ranks. Ranks count through the nodes.
struct JobCommunicator {
    std::uint32_t id = 0;
    std::uint32_t index = 0; // among those of its role
    JobRole role = JobRole::Data;
    std::uint64_t hash = 0;
    std::vector<std::uint32_t> nodes;
    std::vector<std::uint32_t> locals;
    std::uint32_t channels = 1;
    std::uint32_t p2p_channels = 1;
    std::uint32_t channels_a_peer = 2;

    [[nodiscard]] std::uint32_t n_ranks() const;
    [[nodiscard]] std::uint32_t width() const { return static_cast<std::uint32_t>(locals.size()); }
    [[nodiscard]] std::uint32_t node_of(std::uint32_t rank) const { return nodes[rank / width()]; }
    [[nodiscard]] std::uint32_t local_of(std::uint32_t rank) const {
        return locals[rank % width()];
    }
    [[nodiscard]] std::uint32_t global_of(std::uint32_t rank) const {
        return node_of(rank) * GPUS + local_of(rank);
    }
    [[nodiscard]] bool crosses_nodes() const { return nodes.size() > 1; }

    // On the ring of a channel a node is entered at one local rank and left at the one before it,
    // whose NIC is the channel's rail for both.
    [[nodiscard]] std::uint32_t place_of(std::uint32_t rank, std::uint32_t channel) const;
    [[nodiscard]] std::uint32_t at_place(std::uint32_t place, std::uint32_t channel) const;
    // The rank of a node that is connected to other nodes in the tree of a channel.
    [[nodiscard]] std::uint32_t tree_head(std::uint32_t node_index, std::uint32_t channel) const;
    // Node indices; -1: none. NCCL's double binary tree (graph/trees.cc): the second half of the
    // channels has the other tree.
    struct Tree {
        std::int32_t up = -1;
        std::int32_t down[2] = {-1, -1};
    };
    [[nodiscard]] Tree tree_of(std::uint32_t node_index, std::uint32_t channel) const;
    // ncclP2pSchedule, of one group of ranks a node: the round's number of the distance between
    // nodes, by which ncclP2pChannelBaseForRound finds the first channel.
    [[nodiscard]] std::uint32_t base_channel(std::uint32_t from_node_index,
                                             std::uint32_t to_node_index) const;
    // Distances between nodes in the order of rounds.
    std::vector<std::uint32_t> round_distances;
};

enum class JobKind : std::uint8_t { Collective, Transfer, AllToAll };

struct JobOperation {
    JobKind kind = JobKind::Collective;
    JobRole role = JobRole::Data;
    CollectiveSize size = {};         // of a collective
    std::uint64_t transfer_bytes = 0; // to each peer
    bool is_backward = false;         // of a transfer: to the stage before
    std::uint64_t offset_ns = 0;      // from the start of the iteration
    std::uint32_t shape = 0;          // equal operations have one
};

// A connection between two nodes.
struct JobEdge {
    std::uint32_t comm = 0;
    std::uint32_t from = 0; // ranks of the communicator
    std::uint32_t to = 0;
    std::uint16_t channel = 0;
    std::uint16_t index = 0; // NCCL's connIndex: 1 of sends and receives
    std::uint16_t from_nic = 0;
    std::uint16_t to_nic = 0;
    std::uint32_t from_qpn = 0;
    std::uint32_t to_qpn = 0;

    // By everything but the NICs and the queue pairs.
    [[nodiscard]] bool operator<(const JobEdge &other) const;
};

struct JobMembership {
    std::uint32_t comm = ~0U; // ~0: none
    std::uint32_t rank = 0;
};

class JobPlan {
public:
    explicit JobPlan(const JobOptions &options);

    [[nodiscard]] const JobOptions &options() const { return options_; }
    [[nodiscard]] const std::vector<JobCommunicator> &communicators() const { return comms_; }
    [[nodiscard]] const std::vector<std::uint32_t> &of_role(JobRole role) const {
        return by_role_[static_cast<std::size_t>(role)];
    }
    [[nodiscard]] JobMembership membership(JobRole role, std::uint32_t global_rank) const {
        return members_[static_cast<std::size_t>(role)][global_rank];
    }
    [[nodiscard]] const std::vector<JobOperation> &operations() const { return operations_; }
    [[nodiscard]] std::uint32_t n_shapes() const { return n_shapes_; }
    // Sorted.
    [[nodiscard]] const std::vector<JobEdge> &edges() const { return edges_; }
    [[nodiscard]] const std::vector<std::uint32_t> &edges_of_node(std::uint32_t node) const {
        return of_node_[node];
    }
    // The index of an edge; ~0: none, inside a node.
    [[nodiscard]] std::uint32_t find_edge(const JobEdge &edge) const;

private:
    void add_communicators();
    void add(JobRole role, std::vector<std::uint32_t> nodes, std::vector<std::uint32_t> locals);
    void add_operations();
    void add_operation(JobOperation operation);
    void add_edges();
    void add_edges_of(const JobCommunicator &comm, const JobOperation &operation);
    void move_nics();
    void number_queue_pairs();

    JobOptions options_;
    std::vector<JobCommunicator> comms_;
    std::vector<std::uint32_t> by_role_[JOB_ROLES];
    std::vector<JobMembership> members_[JOB_ROLES];
    std::vector<JobOperation> operations_;
    std::uint32_t n_shapes_ = 0;
    std::vector<JobEdge> edges_;
    std::vector<std::vector<std::uint32_t>> of_node_;
};

// What the edges of a communicator carry for one operation: (index of the edge, amount), sorted.
struct EdgeAmount {
    std::uint32_t edge = 0;
    Carried carried;
};
// `node` of the communicator's node indices, what it sends; ~0: all nodes.
[[nodiscard]] std::vector<EdgeAmount> sent_by_operation(const JobPlan &plan,
                                                        const JobCommunicator &comm,
                                                        const JobOperation &operation,
                                                        std::uint32_t stage);

// What all ranks send to ranks of their own node for one operation, flags of LL included.
[[nodiscard]] std::uint64_t local_payload_bytes(const JobCommunicator &comm,
                                                const JobOperation &operation);

} // namespace collwire::trace_gen
