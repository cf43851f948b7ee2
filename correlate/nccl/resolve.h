// SPDX-License-Identifier: Apache-2.0
// From NCCL's records to whose bytes are whose: resolve() runs every step below in this order.
#pragma once

#include <cstdint>
#include <utility>

#include "correlate/model/model.h"

namespace collwire::nccl {

// Needs paired queue pairs, their tiers and bytes.
void resolve(model::Model &model, const topology::Topology *topology);

// Puts the records in order, and tells the communicators at one address apart by time.
void find_instances(model::Model &model);
// Finds the queue pairs and sockets of connections, and what each is for. `topology` may be null.
void find_links(model::Model &model, const topology::Topology *topology);
// Finds the link of each operation of a launch, and computes its bytes.
void read_shapes(model::Model &model);
// Finds the ranks of each communicator: by the queue pairs of their connections, then by lifetime.
void join_communicators(model::Model &model);
// Finds the call that each task of a launch comes from.
void match_calls(model::Model &model);
// Numbers the calls alike on all ranks.
void align(model::Model &model);
// Each is an operation, which a small capture can tell of in large numbers.
inline constexpr std::uint64_t MAX_REPLAYS = 1'000'000;
// One operation for each collective of a communicator, and for each send and its receive; of a
// captured one for each launch, up to `most_replays` besides the first of each, which all share
// alike.
void make_operations(model::Model &model, std::uint64_t most_replays = MAX_REPLAYS);
// Gives each byte of a link to an operation, as far as that is known.
void account_operations(model::Model &model);
// Adds NCCL's sockets, and what the operations come to on connections that nothing measured, to the
// sums of the model.
void account_sockets(model::Model &model);
void account_derived(model::Model &model);
// Finds when operations ended.
void time_operations(model::Model &model);
// What somebody should look at.
void find_findings(model::Model &model);
// Puts together what says that something went wrong.
void find_errors(model::Model &model);

// ---- what several steps need

// The communicator of a process at an address at some time. NONE: none.
[[nodiscard]] Index instance_at(const NcclFacts &nccl, Index session, std::uint32_t tgid,
                                std::uint64_t address, std::uint64_t time_ns);
// The operation that a task of a launch is of: whether it is a pair, and its index. NONE: none is
// known.
[[nodiscard]] std::pair<bool, Index> operation_of(const NcclFacts &nccl, const Instance &instance,
                                                  const Launch &launch, std::uint32_t task);
// Whether it is a replay that is left out: its call is known, and is of no operation.
[[nodiscard]] bool is_left_out(const NcclFacts &nccl, const Instance &instance,
                               const Launch &launch, std::uint32_t task);
// How well it is known that a task of a launch is of a call.
[[nodiscard]] Rung rung_of_call(const NcclFacts &nccl, const Instance &instance,
                                const Launch &launch, std::uint32_t call);
// A collective has one number on all ranks, in the order of calls. AlltoAll, Gather and Scatter are
// collectives, too.
[[nodiscard]] bool is_collective(std::uint8_t func);
[[nodiscard]] bool is_p2p(std::uint8_t func); // Send, Recv
// Refused by NCCL: it never was one.
[[nodiscard]] bool is_failed(const Call &call);
// Nothing of it is ever given to a proxy.
[[nodiscard]] bool never_launches(const Call &call, const Instance &instance);
// That seqNumber counts: of the five of before AlltoAll became a call.
[[nodiscard]] bool is_counted_by_nccl(const Call &call);
// A Broadcast that went out with others as one operation (2.29 and later): NCCL does not count it.
[[nodiscard]] bool is_grouped_broadcast(const NcclFacts &nccl, const Instance &instance,
                                        std::uint32_t call);
// Of a call and its first launch; `launches`: of a captured one so far.
void join_call(CallJoin &join, std::uint32_t launch, Rung rung, std::uint32_t launches = 1);
// A rank that is the same in one communicator, recorded once more after a pause.
[[nodiscard]] bool is_same_rank(const Instance &a, const Instance &b);

} // namespace collwire::nccl
