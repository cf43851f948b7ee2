// SPDX-License-Identifier: Apache-2.0
// From gathered records to reportable results: join() runs every step below in this order.
#pragma once

#include "correlate/model/model.h"

namespace collwire::model {

// If `topology` is null, every byte that leaves its host has an unknown tier.
void join(Model &model, const topology::Topology *topology);

// Drops the shorter of two recordings of one host that overlap, so that no byte counts twice;
// orders the queue pairs.
void select_recordings(Model &model);
// Finds hosts whose realtime clocks are half a minute or more apart.
void find_rough_clocks(Model &model);
// Finds or makes the process of each queue pair.
void find_owners(Model &model);
// Gives each count of posts to its queue pair, or to unmatched_posts with the reason.
void match_posts(Model &model);
// Finds the port that each queue pair, and each destination of a datagram, leads to.
void find_remote_ports(Model &model);
// Finds the other end of each queue pair, and how far the clocks of two hosts are apart. Needs the
// remote ports.
void pair_ends(Model &model);
// Finds ports in the topology, and the tier between the two ends.
void find_tiers(Model &model, const topology::Topology *topology);
// Determines the bytes of each queue pair and their source.
void measure(Model &model);
// Computes the sums, and compares them with the ports' own counters.
void account(Model &model);
// Destination of a queue pair in a node pair: a host, an address, or "not known".
[[nodiscard]] std::string destination_of(const Qp &qp);
inline constexpr const char *DESTINATION_NOT_KNOWN = "(destination not known)";
// Completes and sorts the events, and adds those that are concluded from counters.
void conclude_events(Model &model);
// Losses, and everything that a reader should know before the numbers.
void collect_warnings(Model &model);

} // namespace collwire::model
