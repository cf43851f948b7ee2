// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "correlate/roles/axes.h"
#include "correlate/roles/facts.h"
#include "correlate/roles/pipelines.h"
#include "correlate/roles/traffic.h"

namespace collwire::roles {
namespace {

constexpr std::uint64_t FEWEST_REDUCING = 3;
constexpr std::uint64_t MANY_TIMES = 2; // as many calls

class JobGuesser {
public:
    explicit JobGuesser(const JobFacts &job)
        : job_(job), order_(job_order(job)), guesses_(job.groups.size()) {}

    std::vector<RoleGuess> run() {
        pipelines_ = find_pipelines(job_, guesses_);
        sending_of_.resize(job_.places.size());
        for (std::size_t i = 0; i < job_.groups.size(); ++i) {
            large_.push_back(large_collectives(job_.groups[i]));
            if (!job_.groups[i].transfers.empty() &&
                transfer_shape(job_.groups[i]) != TransferShape::AllToAll)
                for (const Member &member : job_.groups[i].members)
                    sending_of_[member.place].push_back(i);
        }
        for (std::size_t i = 0; i < job_.groups.size(); ++i)
            if (job_.groups[i].n_ranks >= 2 && large_[i].reducing >= FEWEST_REDUCING &&
                job_.groups[i].transfers.empty() && !is_inside_sending(job_.groups[i]))
                reducing_.push_back(i);
        axes_ = find_axes(job_, reducing_);
        ranks_ = job_.places.size();
        for (const GroupFacts &group : job_.groups)
            ranks_ = std::max(ranks_, static_cast<std::uint64_t>(std::max(group.n_ranks, 0)));
        ranks_ = std::max(ranks_, pipelines_.axis.ranks);
        for (const GroupAxis &axis : axes_)
            ranks_ = std::max(ranks_, axis.ranks);
        collectives();
        for (std::size_t i = 0; i < job_.groups.size(); ++i)
            experts(i);
        for (std::size_t i = 0; i < job_.groups.size(); ++i)
            if (guesses_[i].reason.empty())
                guesses_[i].reason = text_of(i) + ": no role is known by that";
        return std::move(guesses_);
    }

private:
    // Parts of a pipeline, as its first and last stage that share embeddings.
    bool is_inside_sending(const GroupFacts &group) const {
        if (group.members.empty())
            return false;
        const auto &candidates = sending_of_[group.members.front().place];
        return std::ranges::any_of(candidates, [&](std::size_t sending) {
            return std::ranges::all_of(group.members, [&](const Member &member) {
                return std::ranges::count(sending_of_[member.place], sending) != 0;
            });
        });
    }

    std::string text_of(std::size_t index) const {
        const GroupFacts &group = job_.groups[index];
        const std::size_t nodes = nodes_of(job_, group);
        const auto stride = rank_stride_of(group, order_);
        const bool is_in_larger = std::ranges::any_of(
            job_.groups, [&](const GroupFacts &other) { return other.n_ranks > group.n_ranks; });
        return fmt::format("{} ranks {}{}, {}", group.n_ranks,
                           nodes == 1 ? "of one node" : fmt::format("on {} nodes", nodes),
                           stride && is_in_larger ? fmt::format(", stride {}", *stride) : "",
                           traffic_text(group));
    }

    std::uint64_t stages() const {
        return pipelines_.has_any ? static_cast<std::uint64_t>(pipelines_.axis.n_ranks) : 1;
    }

    bool are_all_ranks(const GroupAxis &axis, std::uint64_t times) const {
        return pipelines_.is_known && covers_all(axis) && are_across(axis, pipelines_.axis) &&
               (!pipelines_.has_any || covers_all(pipelines_.axis)) &&
               static_cast<std::uint64_t>(axis.n_ranks) * times * stages() == ranks_;
    }

    bool has_all(const GroupAxis &axis, bool LargeCollectives::*what) const {
        return std::ranges::all_of(axis.groups,
                                   [&](std::size_t index) { return large_[index].*what; });
    }
    double calls(const GroupAxis &axis) const {
        std::uint64_t n = 0;
        for (const std::size_t index : axis.groups)
            n += large_[index].n;
        return static_cast<double>(n) / static_cast<double>(axis.groups.size());
    }

    // In the order of the largest communicator, if that has all of them.
    std::optional<bool> are_consecutive_ranks(const GroupAxis &axis) const {
        for (const std::size_t index : axis.groups) {
            if (job_.groups[index].n_ranks == static_cast<std::int64_t>(ranks_))
                return std::nullopt;
            const GroupFacts &group = job_.groups[index];
            if (std::ranges::any_of(group.members,
                                    [&](const Member &member) { return order_[member.place] < 0; }))
                return std::nullopt;
            if (rank_stride_of(group, order_) != 1)
                return false;
        }
        return is_order_of_all();
    }
    bool is_order_of_all() const {
        return std::ranges::any_of(job_.groups, [&](const GroupFacts &group) {
            return group.n_ranks == static_cast<std::int64_t>(ranks_);
        });
    }

    // Neighbours on a node which no other reducing communicator has together.
    bool is_inner(const GroupAxis &axis) const {
        if (!axis.is_on_one_node || !covers_all(axis))
            return false;
        const std::optional<bool> consecutive = are_consecutive_ranks(axis);
        if (consecutive ? !*consecutive : axis.gpu_stride != 1)
            return false;
        if (!has_all(axis, &LargeCollectives::has_all_reduce) &&
            (!has_all(axis, &LargeCollectives::has_all_gather) ||
             !has_all(axis, &LargeCollectives::has_reduce_scatter)))
            return false;
        const std::set<std::size_t> own(axis.groups.begin(), axis.groups.end());
        return std::ranges::all_of(reducing_, [&](std::size_t index) {
            return own.contains(index) || is_across(axis, job_.groups[index]);
        });
    }

    // Whether gradients are rather those of the outer one. Absent: nothing tells.
    std::optional<bool> is_outer_of_gradients(const GroupAxis &inner,
                                              const GroupAxis &outer) const {
        if (are_consecutive_ranks(inner).value_or(false))
            return true;
        const bool is_often = calls(inner) >= static_cast<double>(MANY_TIMES) * calls(outer);
        const bool is_seldom = calls(outer) >= static_cast<double>(MANY_TIMES) * calls(inner);
        const bool is_uniform = has_all(inner, &LargeCollectives::is_uniform);
        const bool is_outer_uniform = has_all(outer, &LargeCollectives::is_uniform);
        if (is_uniform && !is_outer_uniform && repeats_sizes(outer))
            return true;
        if (is_seldom || (!is_uniform && is_outer_uniform))
            return false;
        return is_often || (is_uniform && !is_outer_uniform) ? std::optional(true) : std::nullopt;
    }

    // What the outer one reduces are the parts that the inner one made: sharded data parallelism
    // in two steps.
    bool passes_shards_on(const GroupAxis &inner, const GroupAxis &outer) const {
        std::set<std::uint64_t> shards;
        for (const std::size_t index : inner.groups)
            for (const auto &[kind, n] : job_.groups[index].collectives)
                if (kind.movement == Movement::ReduceScatter)
                    shards.insert(kind.bytes / static_cast<std::uint64_t>(inner.n_ranks));
                else if (kind.movement == Movement::AllReduce)
                    shards.insert(kind.bytes);
        std::uint64_t all = 0, passed = 0;
        for (const std::size_t index : outer.groups)
            for (const std::uint64_t bytes : large_[index].sizes) {
                ++all;
                passed += shards.contains(bytes) ? 1 : 0;
            }
        return passed * 2 >= all;
    }

    void set(const GroupAxis &axis, GuessedRole role, const std::string &why) {
        for (const std::size_t index : axis.groups)
            guesses_[index] = {role, fmt::format("{}: {}", text_of(index), why)};
    }

    // The one division of the job's ranks into tensor and data parallelism that fits.
    void collectives() {
        std::vector<std::pair<const GroupAxis *, const GroupAxis *>> grids;
        for (const GroupAxis &inner : axes_)
            for (const GroupAxis &outer : axes_)
                if (&inner != &outer && is_inner(inner) && are_across(inner, outer) &&
                    are_across(inner, pipelines_.axis) &&
                    are_all_ranks(outer, static_cast<std::uint64_t>(inner.n_ranks)))
                    grids.emplace_back(&inner, &outer);
        if (grids.size() == 1)
            grid(*grids.front().first, *grids.front().second);
        for (const GroupAxis &axis : axes_) {
            if (!guesses_[axis.groups.front()].reason.empty())
                continue;
            if (grids.size() > 1)
                set(axis, GuessedRole::None, "several divisions of the job's ranks fit");
            else if (grids.empty() && are_all_ranks(axis, 1))
                all_ranks(axis);
        }
    }

    // As buckets of gradients do.
    bool repeats_sizes(const GroupAxis &axis) const {
        return std::ranges::all_of(axis.groups, [&](std::size_t index) {
            return large_[index].repeated_sizes >= 2 && large_[index].repetitions >= 2;
        });
    }
    // Reducing communicators inside its groups.
    bool has_parts(const GroupAxis &axis) const {
        const std::set<std::size_t> own(axis.groups.begin(), axis.groups.end());
        return std::ranges::any_of(reducing_, [&](std::size_t index) {
            return !own.contains(index) && !is_across(axis, job_.groups[index]);
        });
    }

    void grid(const GroupAxis &inner, const GroupAxis &outer) {
        const std::optional<bool> of_gradients = is_outer_of_gradients(inner, outer);
        if (!of_gradients.value_or(false)) {
            for (const GroupAxis *axis : {&inner, &outer})
                set(*axis, GuessedRole::None,
                    of_gradients ? "layout and operations contradict each other"
                                 : "tensor and data parallelism fit equally");
            return;
        }
        if (has_parts(outer) && !repeats_sizes(outer)) {
            for (const GroupAxis *axis : {&inner, &outer})
                set(*axis, GuessedRole::None,
                    "parts of the ranks across reduce, too, and gradients may be theirs");
            return;
        }
        set(outer, GuessedRole::DataParallel,
            fmt::format("one rank of each of {} groups of neighbours on a node{}", outer.n_ranks,
                        pipelines_.has_any ? ", and of each pipeline" : ""));
        if (passes_shards_on(inner, outer)) {
            set(inner, GuessedRole::None,
                "other communicators reduce parts of equal size: tensor parallelism and sharded "
                "data parallelism fit");
            return;
        }
        tensor_ranks_ = static_cast<std::uint64_t>(inner.n_ranks);
        set(inner, GuessedRole::TensorParallel,
            fmt::format("neighbours on a node, groups of {} ranks across them reduce gradients",
                        outer.n_ranks));
    }

    // All of the job, or of one stage.
    void all_ranks(const GroupAxis &axis) {
        const std::string_view of = pipelines_.has_any ? "a stage" : "the job";
        if (axis.is_on_one_node) {
            set(axis, GuessedRole::None,
                fmt::format("all ranks of {} on one node: data and tensor parallelism fit", of));
            return;
        }
        if (!repeats_sizes(axis)) {
            set(axis, GuessedRole::None,
                fmt::format("all ranks of {}, but no series of several sizes that repeats", of));
            return;
        }
        const LargeCollectives &first = large_[axis.groups.front()];
        set(axis, GuessedRole::DataParallel,
            fmt::format("all ranks of {}, {} sizes in the same order {} times", of,
                        first.repeated_sizes, first.repetitions));
    }

    // Of the ranks that exchange tokens, each reduces gradients with its like in other exchanges,
    // beside those that all of them reduce together: the gradients of its experts.
    bool has_expert_gradients(const GroupFacts &group) const {
        // Missing ranks could be those that two communicators share.
        if (has_twin(group) || !std::ranges::all_of(job_.groups, is_captured))
            return false;
        const bool is_part = std::ranges::any_of(axes_, [&](const GroupAxis &axis) {
            return guesses_[axis.groups.front()].role == GuessedRole::DataParallel &&
                   axis.n_ranks > group.n_ranks && is_part_of(axis, group);
        });
        return is_part && std::ranges::any_of(axes_, [&](const GroupAxis &axis) {
                   return guesses_[axis.groups.front()].role == GuessedRole::None &&
                          is_across(axis, group) && covers_all(axis) &&
                          are_across(axis, pipelines_.axis) &&
                          static_cast<std::uint64_t>(axis.n_ranks) * tensor_ranks_ * stages() *
                                  static_cast<std::uint64_t>(group.n_ranks) ==
                              ranks_;
               });
    }

    static bool is_captured(const GroupFacts &group) {
        return static_cast<std::int64_t>(group.members.size()) == group.n_ranks;
    }

    // Another communicator of the same ranks.
    bool has_twin(const GroupFacts &group) const {
        return std::ranges::count_if(job_.groups, [&](const GroupFacts &other) {
                   return other.n_ranks == group.n_ranks &&
                          std::ranges::equal(other.members, group.members, {}, &Member::place,
                                             &Member::place);
               }) > 1;
    }

    static bool is_part_of(const GroupAxis &axis, const GroupFacts &group) {
        return std::ranges::all_of(group.members, [&](const Member &member) {
            return axis.group_of[member.place] == axis.group_of[group.members.front().place];
        });
    }

    void experts(std::size_t index) {
        const GroupFacts &group = job_.groups[index];
        const bool has_calls = std::ranges::any_of(group.collectives, [](const auto &of) {
            return of.first.movement == Movement::AllToAll;
        });
        if (!has_calls && transfer_shape(group) != TransferShape::AllToAll)
            return;
        RoleGuess &guess = guesses_[index];
        const std::string text = text_of(index) + " of each rank with each other one";
        if (large_[index].n != 0)
            guess.reason = text + ": no role has both";
        else if (!pipelines_.is_known ||
                 static_cast<std::uint64_t>(std::max(group.n_ranks, 0)) * stages() == ranks_)
            guess.reason = text + ": all ranks, to which any exchange may belong";
        else if (has_uneven_transfers(group))
            guess = {GuessedRole::Expert, text + ", of uneven sizes"};
        else if (has_expert_gradients(group))
            guess = {GuessedRole::Expert,
                     text + "; each reduces gradients with its like in other exchanges"};
        else
            guess.reason = text + ", alike: expert and sequence parallelism fit";
    }

    const JobFacts &job_;
    const std::vector<std::int32_t> order_;
    std::vector<RoleGuess> guesses_;
    Pipelines pipelines_;
    std::vector<LargeCollectives> large_;
    std::vector<std::vector<std::size_t>> sending_of_; // to neighbours: communicators, by place
    std::vector<std::size_t> reducing_;                // communicators that may reduce gradients
    std::vector<GroupAxis> axes_;                      // of these
    std::uint64_t ranks_ = 0;                          // of the job, captured or not
    std::uint64_t tensor_ranks_ = 1;                   // of a tensor parallel group
};

} // namespace

std::string_view guessed_role_name(GuessedRole role) {
    switch (role) {
    case GuessedRole::DataParallel:
        return "dp";
    case GuessedRole::TensorParallel:
        return "tp";
    case GuessedRole::Pipeline:
        return "pp";
    case GuessedRole::Expert:
        return "ep";
    case GuessedRole::None:
        break;
    }
    return "";
}

std::vector<RoleGuess> guess_job(const JobFacts &job) {
    return JobGuesser(job).run();
}

} // namespace collwire::roles
