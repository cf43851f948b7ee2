// SPDX-License-Identifier: Apache-2.0
#include "correlate/roles/axes.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace collwire::roles {
namespace {

// By the ranks in their order: absent where it varies, or is not positive.
template <typename Position>
std::optional<std::int64_t> stride_of(const std::vector<Member> &members,
                                      const Position &position) {
    std::optional<std::int64_t> stride;
    for (std::size_t i = 1; i < members.size(); ++i) {
        const std::int64_t ranks = std::int64_t{members[i].rank} - members[i - 1].rank;
        const auto step =
            static_cast<std::int64_t>(position(members[i])) - position(members[i - 1]);
        if (ranks <= 0 || step <= 0 || step % ranks != 0 || (stride && *stride != step / ranks))
            return std::nullopt;
        stride = step / ranks;
    }
    return stride;
}

// Between the GPUs of neighbours, on one node.
std::optional<std::size_t> gpu_stride_of(const JobFacts &job, const GroupFacts &group) {
    if (nodes_of(job, group) != 1)
        return std::nullopt;
    const auto stride = stride_of(group.members, [&](const Member &member) {
        return static_cast<std::int64_t>(job.places[member.place].gpu);
    });
    return stride ? std::optional(static_cast<std::size_t>(*stride)) : std::nullopt;
}

// Absent: two of the groups have a rank in common.
std::optional<GroupAxis> axis_of(const JobFacts &job, const std::vector<std::size_t> &groups) {
    const GroupFacts &first = job.groups[groups.front()];
    GroupAxis axis{.n_ranks = first.n_ranks,
                   .groups = groups,
                   .group_of = std::vector<std::size_t>(job.places.size(), NO_GROUP),
                   .is_on_one_node = true,
                   .gpu_stride = gpu_stride_of(job, first)};
    for (const std::size_t index : groups) {
        const GroupFacts &group = job.groups[index];
        axis.ranks += static_cast<std::uint64_t>(group.n_ranks);
        axis.is_on_one_node = axis.is_on_one_node && nodes_of(job, group) == 1;
        if (gpu_stride_of(job, group) != axis.gpu_stride)
            axis.gpu_stride.reset();
        for (const Member &member : group.members) {
            if (axis.group_of[member.place] != NO_GROUP)
                return std::nullopt;
            axis.group_of[member.place] = index;
        }
    }
    return axis;
}

} // namespace

std::size_t nodes_of(const JobFacts &job, const GroupFacts &group) {
    if (group.n_nodes > 0)
        return static_cast<std::size_t>(group.n_nodes);
    std::set<std::uint32_t> nodes;
    for (const Member &member : group.members)
        nodes.insert(job.places[member.place].node);
    return nodes.size();
}

std::vector<GroupAxis> find_axes(const JobFacts &job, const std::vector<std::size_t> &groups) {
    using Layout = std::pair<std::size_t, std::optional<std::size_t>>; // nodes, stride
    std::map<std::int32_t, std::vector<std::size_t>> of_size;
    for (const std::size_t index : groups)
        of_size[job.groups[index].n_ranks].push_back(index);
    std::vector<GroupAxis> axes;
    for (const auto &[n_ranks, all] : of_size) {
        if (auto axis = axis_of(job, all)) {
            axes.push_back(*std::move(axis));
            continue;
        }
        std::map<Layout, std::vector<std::size_t>> alike;
        for (const std::size_t index : all)
            alike[{nodes_of(job, job.groups[index]), gpu_stride_of(job, job.groups[index])}]
                .push_back(index);
        for (const auto &[layout, of] : alike)
            if (auto axis = axis_of(job, of))
                axes.push_back(*std::move(axis));
    }
    return axes;
}

bool are_across(const GroupAxis &one, const GroupAxis &other) {
    std::set<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t place = 0; place < one.group_of.size(); ++place)
        if (one.group_of[place] != NO_GROUP && other.group_of[place] != NO_GROUP &&
            !pairs.emplace(one.group_of[place], other.group_of[place]).second)
            return false;
    return true;
}

bool is_across(const GroupAxis &axis, const GroupFacts &group) {
    std::set<std::size_t> of;
    return std::ranges::all_of(group.members, [&](const Member &member) {
        const std::size_t own = axis.group_of[member.place];
        return own == NO_GROUP || of.insert(own).second;
    });
}

bool covers_all(const GroupAxis &axis) {
    return std::ranges::find(axis.group_of, NO_GROUP) == axis.group_of.end();
}

std::vector<std::int32_t> job_order(const JobFacts &job) {
    std::vector<std::int32_t> order(job.places.size(), -1);
    const auto largest = std::ranges::max_element(job.groups, {}, &GroupFacts::n_ranks);
    if (largest != job.groups.end())
        for (const Member &member : largest->members)
            order[member.place] = member.rank;
    return order;
}

std::optional<std::int64_t> rank_stride_of(const GroupFacts &group,
                                           const std::vector<std::int32_t> &order) {
    if (std::ranges::any_of(group.members,
                            [&](const Member &member) { return order[member.place] < 0; }))
        return std::nullopt;
    return stride_of(group.members, [&](const Member &member) { return order[member.place]; });
}

} // namespace collwire::roles
