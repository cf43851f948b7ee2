// SPDX-License-Identifier: Apache-2.0
#include "correlate/stream/rank_track.h"

#include <algorithm>
#include <utility>

#include "correlate/capture/nccl_names.h"

namespace collwire::stream {
namespace {

constexpr std::uint32_t NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7; // ncclResult_t

} // namespace

RankTrack::RankTrack(const cw_nccl_comm &comm, std::uint32_t version, std::uint32_t node,
                     OperationTracker &tracker, ShapeTable &shapes)
    : comm_(comm), rank_{comm.rank, comm.n_ranks, comm.comm, comm.p2p_channels, version, 0},
      tracker_(tracker), shapes_(shapes) {
    is_numbered_ = (comm.flags & CW_NCCL_COMM_CREATED) != 0;
    if (is_numbered_ && (comm.flags & CW_NCCL_COMM_SHARED) == 0)
        rank_.begin_ns = comm.header.time_ns;
    progress_.node = node;
    tracker_.join(comm_.rank, progress_);
}

bool RankTrack::is_transfer(std::uint8_t func) {
    return func == CW_NCCL_SEND || func == CW_NCCL_RECV;
}

// NCCL always rejects these (argcheck.cc).
bool RankTrack::is_refused(const cw_nccl_call &call) const {
    return (call.flags & CW_NCCL_CALL_FAILED) != 0 || call.root < 0 || call.root >= comm_.n_ranks ||
           call.reduction < 0;
}

bool RankTrack::never_launches(const cw_nccl_call &call) const {
    return (call.count == 0 && !is_transfer(call.func)) || comm_.n_ranks <= 1 ||
           (is_transfer(call.func) && call.root == comm_.rank);
}

void RankTrack::release_held() {
    if (!held_)
        return;
    const Held held = *held_;
    held_.reset();
    add(held.call, held.offset_ns);
}

void RankTrack::hold(const cw_nccl_call &call, std::int64_t offset_ns) {
    release_held();
    held_ = {call, offset_ns};
}

void RankTrack::add(const cw_nccl_return &back) {
    if (!held_ || held_->call.header.time_ns != back.call_ns || held_->call.tid != back.tid)
        return;
    if (back.result != NCCL_SUCCESS && back.result != NCCL_IN_PROGRESS)
        held_.reset();
    release_held();
}

void RankTrack::add(const cw_nccl_call &call, std::int64_t offset_ns) {
    release_held();
    // The launches of the calls before are all there.
    if (!is_numbered_ && std::exchange(has_early_launch_, false))
        number(false);
    if (waits_for_number({call, offset_ns}))
        return;
    if (!launches_.empty())
        settle_launches();
    if (call.func >= CW_NCCL_PUT_SIGNAL || is_refused(call))
        return;
    RankCall of_rank;
    of_rank.rank = comm_.rank;
    of_rank.node = progress_.node;
    of_rank.time_ns = call.header.time_ns;
    of_rank.realtime_ns = call.header.time_ns + static_cast<std::uint64_t>(offset_ns);
    of_rank.count = call.count;
    of_rank.root = call.root;
    of_rank.reduction = call.reduction;
    of_rank.func = call.func;
    of_rank.datatype = call.datatype;
    of_rank.is_number_guessed = is_number_guessed_;
    Waiting waiting;
    waiting.time_ns = call.header.time_ns;
    waiting.hash = call.arguments_hash;
    waiting.tid = call.tid;
    waiting.func = call.func;
    waiting.root = call.root;
    if (is_split_into_parts(call.func)) {
        waiting.part_bytes = call.count * capture::nccl_datatype_bytes(call.datatype);
        has_split_calls_ = true;
    }
    waiting.is_transfer = is_transfer(call.func);
    if (waiting.is_transfer) {
        waiting.pair = OperationTracker::pair_of(of_rank);
        // A send to itself has both ends here.
        const std::uint64_t counter =
            waiting.pair | (call.func == CW_NCCL_RECV ? std::uint64_t{1} << 31 : 0);
        waiting.number = next_of_pair_[counter]++;
        tracker_.transfer_called(waiting.pair, waiting.number, of_rank);
        if (call.root != comm_.rank)
            tracker_.mark_transfer(progress_, waiting.pair, waiting.number, of_rank.time_ns);
    } else {
        waiting.number = next_number_++;
        tracker_.called(waiting.number, of_rank);
        tracker_.mark(progress_, waiting.number, of_rank.time_ns);
    }
    if (never_launches(call)) {
        if (waiting.is_transfer)
            tracker_.transfer_settled(waiting.pair, waiting.number);
    } else {
        waiting_.push_back(waiting);
    }
    if (const std::size_t most = count_kept(); waiting_.size() > most || waiting_.empty())
        give_up(most);
}

std::size_t RankTrack::count_kept() const {
    std::size_t kept = std::min(waiting_.size(), MAX_WAITING);
    if (has_launched_)
        return kept;
    const auto is_old = [&](const Waiting &call) {
        return call.time_ns + GROUP_NS < waiting_.back().time_ns;
    };
    while (kept > MAX_WAITING_LOCAL && is_old(waiting_[waiting_.size() - kept]))
        --kept;
    return kept;
}

void RankTrack::add(const cw_nccl_launch &launch, std::int64_t offset_ns) {
    release_held();
    if (waits_for_number({launch, offset_ns})) {
        has_early_launch_ = true;
        return;
    }
    has_launched_ = true;
    Launch &one = launches_.emplace_back();
    one.time_ns = launch.header.time_ns;
    one.realtime_ns = launch.header.time_ns + static_cast<std::uint64_t>(offset_ns);
    one.plan = launch.plan;
    one.shape = launch.shape;
    one.tid = launch.tid;
    one.n_tasks = launch.n_tasks;
    one.flags = launch.flags;
    one.tasks.assign(launch.tasks,
                     launch.tasks + std::min<std::size_t>(launch.n_tasks, CW_NCCL_LAUNCH_TASKS));
    // These may come first.
    std::erase_if(more_tasks_, [&](const cw_nccl_launch_tasks &tasks) {
        const bool is_its_own = tasks.launch_ns == one.time_ns && tasks.plan == one.plan;
        if (is_its_own)
            put(tasks, one);
        return is_its_own || tasks.launch_ns < one.time_ns;
    });
}

void RankTrack::add(const cw_nccl_launch_tasks &tasks, std::int64_t offset_ns) {
    release_held();
    if (waits_for_number({tasks, offset_ns}))
        return;
    const auto launch = std::find_if(launches_.rbegin(), launches_.rend(), [&](const Launch &one) {
        return one.time_ns == tasks.launch_ns && one.plan == tasks.plan;
    });
    if (launch != launches_.rend())
        put(tasks, *launch);
    else if (more_tasks_.size() < MAX_MORE_TASKS)
        more_tasks_.push_back(tasks);
}

void RankTrack::put(const cw_nccl_launch_tasks &tasks, Launch &launch) {
    launch.tasks.resize(launch.n_tasks);
    for (std::uint16_t i = 0; i < std::min<std::uint16_t>(tasks.n, CW_NCCL_MORE_TASKS); ++i)
        if (tasks.first + std::size_t{i} < launch.tasks.size())
            launch.tasks[tasks.first + std::size_t{i}] = tasks.tasks[i];
}

const std::vector<TaskBytes> *RankTrack::bytes_of(const Launch &launch) const {
    return launch.shape == 0 ? nullptr
                             : shapes_.find(comm_.tgid, launch.shape, rank_, launch.tasks);
}

void RankTrack::hand_over(const Called &call, const Launch &launch, std::size_t task,
                          const TaskBytes *bytes) {
    if (call.is_transfer)
        tracker_.transfer_launched(call.pair, call.number, launch.realtime_ns, bytes);
    else
        tracker_.launched(call.number, launch.realtime_ns, bytes);
    if (bytes != nullptr || launch.shape == 0)
        return;
    if (without_bytes_.size() >= MAX_WITHOUT_BYTES)
        without_bytes_.erase(without_bytes_.begin());
    without_bytes_.push_back({call, launch.shape, task, launch.tasks});
}

void RankTrack::add_late_bytes() {
    std::erase_if(without_bytes_, [this](const WithoutBytes &one) {
        const std::vector<TaskBytes> *bytes = shapes_.find(comm_.tgid, one.shape, rank_, one.tasks);
        if (bytes == nullptr)
            return false;
        if (one.task >= bytes->size())
            return true;
        if (one.call.is_transfer)
            tracker_.add_transfer_bytes(one.call.pair, one.call.number, (*bytes)[one.task]);
        else
            tracker_.add_bytes(one.call.number, (*bytes)[one.task]);
        return true;
    });
}

void RankTrack::end(const Called &call) {
    if (call.is_transfer)
        tracker_.transfer_settled(call.pair, call.number);
}

void RankTrack::settle_launches() {
    if (!without_bytes_.empty())
        add_late_bytes();
    if (has_split_calls_)
        count_due_parts();
    std::size_t keep = waiting_.size();
    for (std::size_t i = 0; i < launches_.size(); ++i) {
        match(launches_[i], i);
        if ((launches_[i].flags & CW_NCCL_LAUNCH_GRAPH) != 0)
            continue;
        // The thread has launched all that it will launch of these. A thread of NCCL itself
        // launches in order.
        const auto last =
            std::find_if(waiting_.rbegin(), waiting_.rend(), [&](const Waiting &call) {
                return call.is_launched || call.tid == launches_[i].tid;
            });
        keep = std::min(keep, static_cast<std::size_t>(last - waiting_.rbegin()));
    }
    launches_.clear();
    give_up(keep);
}

void RankTrack::give_up(std::size_t most) {
    while (waiting_.size() > most) {
        const Waiting &call = waiting_.front();
        end(call);
        if (!call.is_launched) {
            if (unlaunched_.size() >= (has_launched_ ? MAX_UNLAUNCHED : MAX_UNLAUNCHED_LOCAL))
                unlaunched_.pop_front();
            unlaunched_.push_back(call);
        }
        waiting_.pop_front();
    }
    report_settled();
}

void RankTrack::report_settled() {
    const auto first = std::find_if(waiting_.begin(), waiting_.end(),
                                    [](const Waiting &call) { return !call.is_transfer; });
    const std::uint64_t until = first == waiting_.end() ? next_number_ : first->number;
    if (until <= settled_)
        return;
    tracker_.settled(settled_, until);
    settled_ = until;
}

// seqNumber counts the five functions that existed before AlltoAll became a call.
bool RankTrack::is_counted(const cw_nccl_call &call) {
    return call.func <= CW_NCCL_ALL_REDUCE && call.count != 0 &&
           (call.flags & CW_NCCL_CALL_FAILED) == 0;
}

bool RankTrack::waits_for_number(const Early &early) {
    if (!is_numbered_ && early_.size() >= MAX_EARLY)
        number(true);
    if (!is_numbered_)
        early_.push_back(early);
    return !is_numbered_;
}

// NCCL's count in the last launch includes the last call before it, if that launch is its own.
void RankTrack::number(bool is_last) {
    std::uint64_t collectives = 0;
    std::uint64_t next_after_last = 0;
    const cw_nccl_call *last = nullptr;
    for (const Early &early : early_) {
        if (const auto *call = std::get_if<cw_nccl_call>(&early.record)) {
            if (is_transfer(call->func) || call->func >= CW_NCCL_PUT_SIGNAL || is_refused(*call))
                continue;
            ++collectives;
            if (is_counted(*call)) {
                last = call;
                next_after_last = collectives;
            }
            continue;
        }
        const auto *launch = std::get_if<cw_nccl_launch>(&early.record);
        if (launch == nullptr || last == nullptr ||
            (launch->flags & CW_NCCL_LAUNCH_LAUNCHED) == 0 ||
            (launch->flags & CW_NCCL_LAUNCH_GRAPH) != 0 || launch->launched < next_after_last)
            continue;
        const auto *tasks_end =
            launch->tasks + std::min<std::size_t>(launch->n_tasks, CW_NCCL_LAUNCH_TASKS);
        if (std::none_of(launch->tasks, tasks_end, [&](const cw_nccl_task_ref &task) {
                return task.arguments_hash == last->arguments_hash;
            }))
            continue;
        next_number_ = launch->launched - next_after_last;
        is_numbered_ = true;
        break;
    }
    if (!is_numbered_) {
        if (!is_last)
            return;
        is_number_guessed_ = true;
        progress_.is_numbered = false;
        is_numbered_ = true;
        if ((comm_.flags & CW_NCCL_COMM_LAUNCHED) != 0)
            next_number_ = comm_.launched;
    }
    settled_ = next_number_;
    const std::vector<Early> early = std::move(early_);
    early_ = {};
    for (const Early &one : early)
        std::visit([&](const auto &record) { add(record, one.offset_ns); }, one.record);
}

void RankTrack::flush() {
    release_held();
    if (!is_numbered_)
        number(true);
    if (!launches_.empty())
        settle_launches();
    add_late_bytes();
}

} // namespace collwire::stream
