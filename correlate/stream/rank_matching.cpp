// SPDX-License-Identifier: Apache-2.0
// Which call a launch is of.
#include <algorithm>
#include <unordered_set>

#include "correlate/stream/rank_track.h"

namespace collwire::stream {
namespace {

// Most plans of graphs that are remembered.
constexpr std::size_t MAX_PLANS = 65'536;

bool is_split(const TaskBytes *bytes) {
    return bytes != nullptr && (bytes->func == CW_NCCL_SEND || bytes->func == CW_NCCL_RECV) &&
           RankTrack::is_split_into_parts(bytes->api_func);
}

// The root of Gather receives, that of Scatter sends.
std::int32_t root_of(const TaskBytes &part, std::int32_t rank) {
    const bool is_send = part.func == CW_NCCL_SEND;
    return (part.api_func == CW_NCCL_GATHER) != is_send ? rank : part.root;
}

} // namespace

bool RankTrack::is_split_into_parts(std::uint8_t func) {
    return func >= CW_NCCL_ALL_TO_ALL && func <= CW_NCCL_GATHER;
}

RankTrack::PartKey RankTrack::part_key(const TaskBytes &part) {
    return {part.api_func, part.func == CW_NCCL_SEND, part.root, part.call_bytes};
}

// Launches of equal arguments from this task on, each task of a launch once.
std::uint32_t RankTrack::count_due(std::size_t launch_index, std::uint32_t task) const {
    if (launches_.size() == 1 && launches_.front().tasks.size() == 1)
        return 1;
    const std::uint32_t hash = launches_[launch_index].tasks[task].arguments_hash;
    std::uint32_t due = 0;
    for (std::size_t i = launch_index; i < launches_.size(); ++i) {
        const Launch &launch = launches_[i];
        if ((launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0)
            continue;
        for (std::size_t k = i == launch_index ? task : 0; k < launch.tasks.size(); ++k) {
            if (launch.tasks[k].arguments_hash != hash)
                continue;
            const auto same = [&](const cw_nccl_task_ref &other) {
                return other.task == launch.tasks[k].task;
            };
            if (std::none_of(launch.tasks.begin(),
                             launch.tasks.begin() + static_cast<std::ptrdiff_t>(k), same))
                ++due;
        }
    }
    return due;
}

// From the back: as many waiting calls as are due, of which the first one is the launch's. A thread
// of NCCL itself launches calls in their order, so the first of all is. Null: none is waiting.
template <typename IsLike>
RankTrack::Waiting *RankTrack::first_due(const Launch &launch, std::uint32_t due,
                                         const IsLike &is_like) {
    Waiting *first = nullptr;
    for (auto call = waiting_.rbegin(); call != waiting_.rend() && due != 0; ++call) {
        if (!is_like(*call))
            continue;
        first = &*call;
        due -= call->tid == launch.tid ? 1 : 0;
    }
    return first;
}

void RankTrack::match_task(const Launch &launch, std::size_t launch_index, std::uint32_t task,
                           const TaskBytes *bytes) {
    if (is_split(bytes)) {
        match_part(launch, task, *bytes);
        return;
    }
    const std::uint32_t hash = launch.tasks[task].arguments_hash;
    const std::uint32_t due = count_due(launch_index, task);
    Waiting *first = first_due(launch, due, [hash](const Waiting &call) {
        return call.hash == hash && !call.is_launched;
    });
    if (first == nullptr) {
        ++unmatched_;
        return;
    }
    first->is_launched = true;
    hand_over(*first, launch, task, bytes);
}

// Of the call with these arguments, whose part with this peer has no launch yet.
bool RankTrack::lacks_part(const Waiting &call, const TaskBytes &part) const {
    if (call.func != part.api_func || call.part_bytes != part.call_bytes ||
        (call.func != CW_NCCL_ALL_TO_ALL && call.root != root_of(part, comm_.rank)))
        return false;
    const std::vector<bool> &launched = part.func == CW_NCCL_SEND ? call.sends : call.receives;
    const auto peer = static_cast<std::size_t>(part.root);
    return part.root >= 0 && part.root < comm_.n_ranks &&
           (peer >= launched.size() || !launched[peer]);
}

void RankTrack::take_part(Waiting &call, const TaskBytes &part) const {
    std::vector<bool> &launched = part.func == CW_NCCL_SEND ? call.sends : call.receives;
    const auto peer = static_cast<std::size_t>(part.root);
    if (peer >= launched.size())
        launched.resize(peer + 1);
    launched[peer] = true;
    call.is_launched = true;
}

void RankTrack::count_due_parts() {
    due_parts_.clear();
    for (const Launch &launch : launches_) {
        if ((launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0)
            continue;
        const std::vector<TaskBytes> *bytes = bytes_of(launch);
        if (bytes == nullptr)
            continue;
        std::unordered_set<std::uint32_t> seen;
        for (std::size_t i = 0; i < std::min(launch.tasks.size(), bytes->size()); ++i)
            if (is_split(&(*bytes)[i]) && seen.insert(launch.tasks[i].task).second)
                ++due_parts_[part_key((*bytes)[i])];
    }
}

void RankTrack::match_part(const Launch &launch, std::uint32_t task, const TaskBytes &part) {
    std::uint32_t &of_key = due_parts_[part_key(part)];
    const std::uint32_t due = std::max(of_key, 1U);
    of_key -= of_key == 0 ? 0 : 1;
    Waiting *first =
        first_due(launch, due, [&](const Waiting &call) { return lacks_part(call, part); });
    if (first == nullptr) {
        ++unmatched_;
        return;
    }
    take_part(*first, part);
    hand_over(*first, launch, task, &part);
}

// The first launch of a captured plan has the calls that were captured first.
void RankTrack::match_graph(const Launch &launch) {
    const bool is_known = plans_.contains(launch.plan);
    if (!is_known && plans_.size() >= MAX_PLANS)
        plans_.clear();
    const std::vector<TaskBytes> *bytes = bytes_of(launch);
    if (plans_[launch.plan]++ != 0) {
        ++replays_;
        if (bytes != nullptr)
            for (const TaskBytes &task : *bytes)
                tracker_.replayed(task);
        return;
    }
    for (std::size_t task = 0; task < launch.tasks.size(); ++task) {
        const TaskBytes *of_task =
            bytes != nullptr && task < bytes->size() ? &(*bytes)[task] : nullptr;
        const auto is_its_call = [&](const Waiting &one) {
            if (is_split(of_task))
                return lacks_part(one, *of_task);
            return !one.is_launched && one.hash == launch.tasks[task].arguments_hash;
        };
        auto call = std::find_if(unlaunched_.begin(), unlaunched_.end(), is_its_call);
        if (call == unlaunched_.end()) {
            call = std::find_if(waiting_.begin(), waiting_.end(), is_its_call);
            if (call == waiting_.end()) {
                ++unmatched_;
                continue;
            }
        }
        if (is_split(of_task))
            take_part(*call, *of_task);
        call->is_launched = true;
        hand_over(*call, launch, task, of_task);
    }
}

void RankTrack::match(Launch &launch, std::size_t index) {
    if ((launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0) {
        match_graph(launch);
        return;
    }
    const std::vector<TaskBytes> *bytes = bytes_of(launch);
    for (std::uint32_t task = 0; task < launch.tasks.size(); ++task) {
        const auto same = [&](const cw_nccl_task_ref &other) {
            return other.task == launch.tasks[task].task;
        };
        const auto end = launch.tasks.begin() + task;
        const TaskBytes *of_task =
            bytes != nullptr && task < bytes->size() ? &(*bytes)[task] : nullptr;
        if (std::any_of(launch.tasks.begin(), end, same))
            continue;
        match_task(launch, index, task, of_task);
    }
}

} // namespace collwire::stream
