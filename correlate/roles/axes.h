// SPDX-License-Identifier: Apache-2.0
// Axes of a job: communicators of one size and layout that divide its ranks among them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "correlate/roles/facts.h"

namespace collwire::roles {

inline constexpr std::size_t NO_GROUP = SIZE_MAX;

struct GroupAxis {
    std::int32_t n_ranks = 0;          // of each of its groups
    std::vector<std::size_t> groups;   // in JobFacts
    std::vector<std::size_t> group_of; // by place; NO_GROUP
    std::uint64_t ranks = 0;           // of all its groups, captured or not
    bool is_on_one_node = false;
    std::optional<std::size_t> gpu_stride; // on one node: between the GPUs of neighbours
};

// `groups`: those to be divided. Where two communicators of one size and layout have a rank in
// common, their axis is left out: which of them it is, is not known.
[[nodiscard]] std::vector<GroupAxis> find_axes(const JobFacts &job,
                                               const std::vector<std::size_t> &groups);
// No group of the one has two ranks of a group of the other.
[[nodiscard]] bool are_across(const GroupAxis &one, const GroupAxis &other);
[[nodiscard]] bool is_across(const GroupAxis &axis, const GroupFacts &group);
// Whether it has a group for each captured rank.
[[nodiscard]] bool covers_all(const GroupAxis &axis);

// The rank of each place in the largest communicator; -1: it is in another one only.
[[nodiscard]] std::vector<std::int32_t> job_order(const JobFacts &job);
// Between neighbours in that order. Absent: a rank has no place in it, or the stride varies.
[[nodiscard]] std::optional<std::int64_t> rank_stride_of(const GroupFacts &group,
                                                         const std::vector<std::int32_t> &order);
[[nodiscard]] std::size_t nodes_of(const JobFacts &job, const GroupFacts &group);

} // namespace collwire::roles
