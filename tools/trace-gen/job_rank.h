// SPDX-License-Identifier: Apache-2.0
// What one rank of a generated job does in an iteration, as records to be filled in with times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "tools/trace-gen/job_plan.h"
#include "tools/trace-gen/job_times.h"

namespace collwire::trace_gen {

// One of a rank's connections between nodes, at one end.
struct RankEdge {
    std::uint32_t edge = 0; // of the plan
    bool is_send = false;
};

// What one launch moves on one of the rank's connections.
struct RankMove {
    std::uint32_t edge = 0; // index of the rank's edges
    const Carried *carried = nullptr;
};

struct RankStep {
    std::uint32_t operation = 0;
    std::uint32_t comm = 0;
    std::uint32_t stage = 0;
    std::uint32_t side = 0;
    bool is_collective = false;
    bool has_launch = false;
    std::uint32_t shape_slot = 0; // launches with the same one have the same shape
    std::vector<cw_nccl_call> calls = {};
    cw_nccl_launch launch{};
    std::vector<cw_nccl_launch_tasks> more_tasks = {};
    std::vector<cw_nccl_shape_task> shape_tasks = {};
    std::vector<cw_nccl_shape_ops> shape_ops = {};
    std::vector<RankMove> moves = {};
};

class RankProgram {
public:
    RankProgram(const JobPlan &plan, const JobTraffic &traffic, std::uint32_t global_rank);

    [[nodiscard]] const std::vector<RankEdge> &edges() const { return edges_; }
    [[nodiscard]] const std::vector<RankStep> &steps() const { return steps_; }
    [[nodiscard]] std::uint32_t n_shape_slots() const { return plan_.n_shapes() * 2; }
    [[nodiscard]] std::uint32_t pid() const { return pid_; }

private:
    void add_collective(std::uint32_t operation);
    void add_transfers(std::uint32_t operation);
    void add_exchange(std::uint32_t operation);
    RankStep step(std::uint32_t operation, const JobMembership &member, std::uint32_t stage,
                  std::uint32_t side) const;
    std::uint32_t add_task(RankStep &step, std::uint32_t call) const;
    void add_op(RankStep &step, std::uint32_t edge, std::uint32_t task, cw_nccl_op op) const;
    void add_call(RankStep &step, cw_nccl_func func, std::uint64_t count, std::uint8_t datatype,
                  std::int32_t root) const;
    void add_transfer(RankStep &step, const JobOperation &operation, const JobMembership &member,
                      std::uint32_t peer, bool is_send, std::uint32_t call) const;
    void finish(RankStep step);
    // Index of the rank's edge; ~0: none.
    [[nodiscard]] std::uint32_t own_edge(std::uint32_t comm, std::uint32_t from, std::uint32_t to,
                                         std::uint32_t channel, std::uint32_t index) const;

    const JobPlan &plan_;
    const JobTraffic &traffic_;
    std::uint32_t global_;
    std::uint32_t pid_;
    std::vector<RankEdge> edges_; // by edge
    std::vector<RankStep> steps_;
};

[[nodiscard]] std::uint32_t pid_of_rank(std::uint32_t global_rank);
[[nodiscard]] std::uint64_t comm_address(std::uint32_t comm);
[[nodiscard]] std::uint64_t connection_address(const RankEdge &edge);

} // namespace collwire::trace_gen
