// SPDX-License-Identifier: Apache-2.0
// From NCCL's records to the owners of bytes: resolve() runs the steps below in this order, with
// the steps of plugin_links.h, by_lineage.h and assumed_launches.h in between.
#pragma once

#include <cstdint>
#include <utility>

#include "correlate/model/model.h"

namespace collwire::nccl {

class ClockOrderFinder;

// Needs paired queue pairs, their tiers and bytes.
void resolve(model::Model &model, const topology::Topology *topology);

// Sorts the records, and separates the communicators at one address by time.
void find_instances(model::Model &model);
// Finds the queue pairs and sockets of connections and their roles. `topology` may be null.
void find_links(model::Model &model, const topology::Topology *topology);
// Finds the flow of each operation of a launch, and computes its bytes.
void read_shapes(model::Model &model);
// Finds the ranks of each communicator: by the queue pairs of their connections, then by lifetime.
void join_communicators(model::Model &model);
// Finds the call of each task of a launch.
void match_calls(model::Model &model);
// Gives calls the same numbers on all ranks.
void align(model::Model &model);
// Each is an operation; a small capture can contain large numbers of them.
inline constexpr std::uint64_t MAX_REPLAYS = 1'000'000;
// Makes one operation for each collective of a communicator, and for each send with its receive;
// for captured ones one per launch, up to `most_replays` in all, evenly shared, in addition to the
// first of each.
void make_operations(model::Model &model, std::uint64_t most_replays = MAX_REPLAYS);
// Assigns each byte of a flow to an operation, as far as possible.
void account_operations(model::Model &model);
// Adds NCCL's sockets, and the computed bytes of unmeasured connections, to the sums of the model.
void account_sockets(model::Model &model);
void account_derived(model::Model &model);
// Finds the end times of operations. `clock_order` sees each part of each operation.
void time_operations(model::Model &model, ClockOrderFinder &clock_order);
// Finds the launch of each GPU kernel.
void join_gpu(model::Model &model);
// Measures NVLinks, and finds where their failures began.
void join_nvlink(model::Model &model);
// Finds configuration and usage problems.
void find_findings(model::Model &model);
// Joins the signs of errors.
void find_errors(model::Model &model);

// ---- shared by several steps

// The communicator of a process at an address at some time. NONE: not found.
[[nodiscard]] Index instance_at(const NcclFacts &nccl, Index session, std::uint32_t tgid,
                                std::uint64_t address, std::uint64_t time_ns);
// The operation of a launch's task: whether it is a pair, and its index. NONE: not known.
[[nodiscard]] std::pair<bool, Index> operation_of(const NcclFacts &nccl, const Instance &instance,
                                                  const Launch &launch, std::uint32_t task);
// Whether it is an unlisted replay: its call is known but has no operation for it.
[[nodiscard]] bool is_left_out(const NcclFacts &nccl, const Instance &instance,
                               const Launch &launch, std::uint32_t task);
// Certainty of a launch's task belonging to a call.
[[nodiscard]] Rung rung_of_call(const NcclFacts &nccl, const Instance &instance,
                                const Launch &launch, std::uint32_t call);
// A collective has one number on all ranks, in call order. AlltoAll, Gather and Scatter are
// collectives, too.
[[nodiscard]] bool is_collective(std::uint8_t func);
[[nodiscard]] bool is_p2p(std::uint8_t func); // Send, Recv
// A call that NCCL makes into sends and receives: AlltoAll, Scatter, Gather.
[[nodiscard]] bool is_made_of_parts(std::uint8_t func);
// Rejected by NCCL: it had no effect.
[[nodiscard]] bool is_failed(const Call &call);
// It never reaches a proxy.
[[nodiscard]] bool never_launches(const Call &call, const Instance &instance);
// Whether seqNumber counts it: the five functions that existed before AlltoAll became a call.
[[nodiscard]] bool is_counted_by_nccl(const Call &call);
// A Broadcast that was merged with others into one operation (2.29 and later): NCCL does not count
// it.
[[nodiscard]] bool is_grouped_broadcast(const NcclFacts &nccl, const Instance &instance,
                                        std::uint32_t call);
// Records that `launch` executes `call`; `launches`: graph replays so far.
void join_call(CallJoins &joins, std::uint32_t call, std::uint32_t launch, Rung rung,
               std::uint32_t launches = 1);
// The same rank of one communicator, recorded again after a pause.
[[nodiscard]] bool is_same_rank(const Instance &a, const Instance &b);

} // namespace collwire::nccl
