// SPDX-License-Identifier: Apache-2.0
// From what was gathered to what is reported: join() runs every step below in this order.
#pragma once

#include "correlate/model/model.h"

namespace collwire::model {

// `topology` may be null: then every byte that leaves its host is of an unknown tier.
void join(Model &model, const topology::Topology *topology);

// Drops the shorter of two recordings of one host that overlap, so that no byte counts twice;
// orders the queue pairs.
void select_recordings(Model &model);
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
// What is known of the bytes of each queue pair, and how.
void measure(Model &model);
// Sums, and the ports' own counters against them.
void account(Model &model);
// Of a queue pair in a node pair: a host, an address, or that it is not known.
[[nodiscard]] std::string destination_of(const Qp &qp);
inline constexpr const char *DESTINATION_NOT_KNOWN = "(destination not known)";
// Completes and orders the events, and adds those that only their effects tell of.
void conclude_events(Model &model);
// Losses, and everything that a reader should know before the numbers.
void collect_warnings(Model &model);

} // namespace collwire::model
