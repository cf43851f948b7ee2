// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>

#include "collwire/loss_records.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::Model;

namespace {

// A communicator's record is emitted a moment before or after the call at which it was discovered.
constexpr std::uint64_t FIRST_CALL_NS = 1'000'000'000;
// The kernel gives a start time in nanoseconds, /proc in clock ticks of 10 ms.
constexpr std::uint64_t START_TOLERANCE_NS = 20'000'000;
constexpr std::uint64_t ONE_MOMENT_NS = 1'000'000'000;
constexpr std::uint32_t NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7; // ncclResult_t

template <typename T, typename Less> void sort_unless_sorted(std::vector<T> &items, Less less) {
    if (!std::is_sorted(items.begin(), items.end(), less))
        std::stable_sort(items.begin(), items.end(), less);
}

// Sorted by time, without the repetitions of a capture that was read twice.
void put_in_order(CommStream &stream) {
    stream.calls.put_in_order();
    stream.launches.put_in_order();
    sort_unless_sorted(stream.more_tasks, [](const MoreTasks &a, const MoreTasks &b) {
        return std::tie(a.launch_ns, a.plan, a.first) < std::tie(b.launch_ns, b.plan, b.first);
    });
    sort_unless_sorted(stream.comms, [](const cw_nccl_comm &a, const cw_nccl_comm &b) {
        return a.header.time_ns < b.header.time_ns;
    });
    std::sort(stream.ends_ns.begin(), stream.ends_ns.end());
    stream.ends_ns.erase(std::unique(stream.ends_ns.begin(), stream.ends_ns.end()),
                         stream.ends_ns.end());
    // Each segment repeats them.
    sort_unless_sorted(stream.nvls, [](const cw_nccl_nvls &a, const cw_nccl_nvls &b) {
        return a.header.time_ns < b.header.time_ns;
    });
    sort_unless_sorted(stream.channels, [](const Channel &a, const Channel &b) {
        return std::tie(a.time_ns, a.record.channel) < std::tie(b.time_ns, b.record.channel);
    });
    stream.channels.erase(std::unique(stream.channels.begin(), stream.channels.end(),
                                      [](const Channel &a, const Channel &b) {
                                          return std::tie(a.time_ns, a.record.channel) ==
                                                 std::tie(b.time_ns, b.record.channel);
                                      }),
                          stream.channels.end());
}

void note_return(Call &call, std::uint32_t result) {
    call.flags |= CW_NCCL_CALL_RETURNED;
    call.result = static_cast<std::uint8_t>(std::min<std::uint32_t>(result, UINT8_MAX));
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
        call.flags |= CW_NCCL_CALL_FAILED;
}

// Assigns each call its result.
void join_returns(CommStream &stream) {
    for (const Return &back : stream.returns) {
        const auto first = std::lower_bound(
            stream.calls.begin(), stream.calls.end(), back.call_ns,
            [](const Call &a, std::uint64_t time_ns) { return a.time_ns < time_ns; });
        for (auto i = static_cast<std::size_t>(first - stream.calls.begin());
             i < stream.calls.size() && stream.calls[i].time_ns == back.call_ns; ++i)
            if (Call call = stream.calls[i]; call.tid == back.tid) {
                note_return(call, back.result);
                stream.calls.set(i, call);
            }
    }
    stream.returns = {};
}

// NCCL always rejects these (argcheck.cc).
bool is_refused(const Call &call, const cw_nccl_comm &comm) {
    return (is_collective(call.func) || is_p2p(call.func)) &&
           (call.root < 0 || call.root >= comm.n_ranks || call.reduction < 0);
}

// Puts each launch's tasks in sequence. A launch with missing tasks keeps those before the gap.
void join_tasks(CommStream &stream) {
    if (std::none_of(stream.launches.begin(), stream.launches.end(),
                     [](const Launch &launch) { return launch.n_tasks > CW_NCCL_LAUNCH_TASKS; }))
        return;
    std::vector<cw_nccl_task_ref> tasks;
    tasks.reserve(stream.tasks.size());
    for (std::size_t i = 0; i < stream.launches.size(); ++i) {
        Launch launch = stream.launches[i];
        const auto begin = static_cast<std::uint32_t>(tasks.size());
        if (launch.n_tasks <= CW_NCCL_LAUNCH_TASKS) {
            tasks.insert(tasks.end(), stream.tasks.begin() + launch.first_task,
                         stream.tasks.begin() + launch.first_task + launch.n_tasks);
            launch.first_task = begin;
            stream.launches.set(i, launch);
            continue;
        }
        auto more =
            std::lower_bound(stream.more_tasks.begin(), stream.more_tasks.end(), launch,
                             [](const MoreTasks &a, const Launch &b) {
                                 return std::tie(a.launch_ns, a.plan) < std::tie(b.time_ns, b.plan);
                             });
        const auto is_of_launch = [&] {
            return more != stream.more_tasks.end() && more->launch_ns == launch.time_ns &&
                   more->plan == launch.plan;
        };
        // The first tasks are in the launch itself, or in a record of their own with all others.
        if (!is_of_launch() || more->first != 0)
            tasks.insert(tasks.end(), stream.tasks.begin() + launch.first_task,
                         stream.tasks.begin() + launch.first_task + CW_NCCL_LAUNCH_TASKS);
        for (; is_of_launch(); ++more) {
            const std::size_t known = tasks.size() - begin;
            if (more->first > known)
                break;
            const std::size_t again = std::min<std::size_t>(known - more->first, more->n);
            tasks.insert(tasks.end(),
                         stream.tasks.begin() + more->first_task +
                             static_cast<std::ptrdiff_t>(again),
                         stream.tasks.begin() + more->first_task + more->n);
        }
        const std::size_t known = std::min<std::size_t>(tasks.size() - begin, launch.n_tasks);
        tasks.resize(begin + known);
        if (known < launch.n_tasks)
            launch.flags |= CW_NCCL_LAUNCH_FAULT;
        launch.n_tasks = static_cast<std::uint16_t>(known);
        launch.first_task = begin;
        stream.launches.set(i, launch);
    }
    stream.tasks = std::move(tasks);
    stream.more_tasks = {};
}

bool is_same(const cw_nccl_comm &a, const cw_nccl_comm &b) {
    return a.comm_hash == b.comm_hash && a.rank == b.rank && a.n_ranks == b.n_ranks &&
           (a.start_boottime_ns == b.start_boottime_ns || a.start_boottime_ns == 0 ||
            b.start_boottime_ns == 0);
}

Rung rung_of(std::uint8_t rung) {
    return rung >= CW_RUNG_EXACT ? Rung::Exact : static_cast<Rung>(rung);
}

// 0: no earlier reading.
std::uint64_t clock_reading_before(const Model &model, const model::Session &session,
                                   std::uint64_t time_ns) {
    std::uint64_t latest_ns = 0;
    for (const model::ClockAnchor &reading : model.hosts[session.host].anchors)
        if (reading.monotonic_ns >= session.begin_ns && reading.monotonic_ns < time_ns)
            latest_ns = std::max(latest_ns, reading.monotonic_ns);
    return latest_ns;
}

// Until when the recording lost no record of these classes. A loss happened between the moment that
// reported it and an earlier one without loss: clock readings are such moments. Records that could
// not be written are up to one reading older.
template <typename IsOfThem>
std::uint64_t whole_until_ns(const Model &model, const model::Session &session,
                             IsOfThem is_of_them) {
    std::uint64_t reported_ns = UINT64_MAX;
    for (const auto &[loss_class, first_ns] : session.first_loss_ns)
        if (is_of_them(loss_class) || loss_class == CW_LOSS_RECORD_WRITE ||
            loss_class == CW_LOSS_RING_UNREAD)
            reported_ns = std::min(reported_ns, first_ns);
    if (reported_ns == UINT64_MAX)
        return UINT64_MAX;
    // The start of a ring buffer's stall is not known.
    if (!session.from_start || session.first_loss_ns.contains(CW_LOSS_RING_UNREAD))
        return 0;
    // A segment starts with two readings of one moment.
    const std::uint64_t latest_ns = clock_reading_before(model, session, reported_ns);
    return clock_reading_before(model, session, model::subtract_or_zero(latest_ns, ONE_MOMENT_NS));
}

struct WholeUntil {
    std::uint64_t calls_ns = UINT64_MAX;
    std::uint64_t launches_ns = UINT64_MAX;
    std::uint64_t all_ns = UINT64_MAX;
};
// `n_faults`: launches whose records say that they are not complete. If these are all that the
// recorder counted, the other launches are whole.
WholeUntil whole_until(const Model &model, const model::Session &session, std::uint64_t n_faults) {
    std::uint64_t n_counted = 0;
    for (const auto &[key, records] : session.loss)
        if (key.first == CW_LOSS_NCCL_FAULT)
            n_counted = model::add_saturating(n_counted, records);
    const bool are_known = n_faults >= n_counted;
    const auto is_unknown_fault = [are_known](std::uint32_t loss) {
        return loss == CW_LOSS_NCCL_FAULT && !are_known;
    };
    WholeUntil until{whole_until_ns(model, session,
                                    [](std::uint32_t loss) { return loss == CW_LOSS_NCCL_CALL; }),
                     whole_until_ns(model, session,
                                    [&](std::uint32_t loss) {
                                        return loss == CW_LOSS_NCCL_LAUNCH ||
                                               is_unknown_fault(loss);
                                    }),
                     whole_until_ns(model, session, [&](std::uint32_t loss) {
                         return loss == CW_LOSS_PROBE_MISSED || is_unknown_fault(loss) ||
                                (loss >= CW_LOSS_NCCL_COMM && loss < CW_LOSS_NCCL_FAULT);
                     })};
    for (std::uint64_t *of : {&until.calls_ns, &until.launches_ns, &until.all_ns})
        *of = std::min(*of, session.counted_until_ns("nccl"));
    return until;
}

class InstanceFinder {
public:
    explicit InstanceFinder(Model &model) : model_(model), nccl_(model.nccl) {}

    void run() {
        index_processes();
        std::vector<std::uint64_t> n_faults(model_.sessions.size());
        for (const CommStream &stream : nccl_.gathered.streams)
            n_faults[stream.session] += static_cast<std::uint64_t>(
                std::ranges::count_if(stream.launches, [](const Launch &launch) {
                    return (launch.flags & CW_NCCL_LAUNCH_FAULT) != 0;
                }));
        for (std::size_t i = 0; i < model_.sessions.size(); ++i)
            whole_until_.push_back(whole_until(model_, model_.sessions[i], n_faults[i]));
        for (const Image &image : nccl_.gathered.images)
            by_id_[{image.session, image.image_id}] = &image;
        for (const NcclProcess &process : nccl_.gathered.processes)
            images_[{process.session, process.tgid}] = process.image_id;
        for (Index index = 0; index < nccl_.gathered.params.size(); ++index) {
            const Param &param = nccl_.gathered.params[index];
            nccl_.params_of_process[{param.session, param.tgid}].push_back(index);
        }
        for (Index index = 0; index < nccl_.gathered.streams.size(); ++index)
            find(index);
        find_parents();
    }

private:
    void find(Index index) {
        CommStream &stream = nccl_.gathered.streams[index];
        if (model_.sessions[stream.session].excluded) {
            stream.comms.clear();
            stream.calls.clear();
            stream.launches.clear();
            return;
        }
        put_in_order(stream);
        join_returns(stream);
        join_tasks(stream);
        const std::size_t first = nccl_.instances.size();
        auto end = stream.ends_ns.begin();
        for (const cw_nccl_comm &comm : stream.comms) {
            for (; end != stream.ends_ns.end() && *end <= comm.header.time_ns; ++end)
                close(first, *end);
            take(first, index, comm);
        }
        for (; end != stream.ends_ns.end(); ++end)
            close(first, *end);
        divide(first, stream);
        mark_refused(first, stream);
    }

    void close(std::size_t first, std::uint64_t time_ns) {
        if (nccl_.instances.size() == first || nccl_.instances.back().ended)
            return;
        nccl_.instances.back().ended = true;
        nccl_.instances.back().end_ns = time_ns;
    }

    void take(std::size_t first, Index stream_index, const cw_nccl_comm &comm) {
        const CommStream &stream = nccl_.gathered.streams[stream_index];
        const bool is_created = (comm.flags & CW_NCCL_COMM_CREATED) != 0;
        if (nccl_.instances.size() > first) {
            Instance &last = nccl_.instances.back();
            const bool is_repeated = !is_created || comm.header.time_ns == last.begin_ns;
            if (!last.ended && is_same(last.record, comm) &&
                (is_repeated || (!last.created && !has_calls(stream, last, comm)))) {
                // A name that is read later may be other content at that address.
                if (is_created || (!last.created && last.record.name[0] == 0))
                    std::copy(std::begin(comm.name), std::end(comm.name), last.record.name);
                last.created = last.created || is_created;
                last.from_start = last.from_start || is_created;
                last.record.flags |= comm.flags & ~std::uint32_t{CW_NCCL_COMM_LAUNCHED};
                for (const auto field : {&cw_nccl_comm::parent, &cw_nccl_comm::proxy_state,
                                         &cw_nccl_comm::bus_id, &cw_nccl_comm::start_boottime_ns})
                    if (last.record.*field == 0)
                        last.record.*field = comm.*field;
                return;
            }
            if (!last.ended)
                last.end_ns = comm.header.time_ns; // its end was lost
        }
        Instance added;
        added.stream = stream_index;
        added.session = stream.session;
        added.host = model_.sessions[stream.session].host;
        added.record = comm;
        added.begin_ns = comm.header.time_ns;
        const WholeUntil &whole_until = whole_until_[stream.session];
        added.calls_whole_until_ns = whole_until.calls_ns;
        added.launches_whole_until_ns = whole_until.launches_ns;
        added.whole_until_ns = whole_until.all_ns;
        added.created = is_created;
        added.from_start = is_created || ((comm.flags & CW_NCCL_COMM_LAUNCHED) != 0 &&
                                          comm.launched == 0 && comm.op_count == 0);
        added.is_calls_only = (comm.flags & CW_NCCL_COMM_CALLS_ONLY) != 0;
        added.process = process_of(added);
        std::uint32_t image = comm.image_id;
        if (const auto found = images_.find({stream.session, stream.tgid});
            image == 0 && found != images_.end())
            image = found->second;
        if (const auto found = by_id_.find({stream.session, image}); found != by_id_.end()) {
            added.version = found->second->version;
            added.operations_rung = rung_of(found->second->rungs[CW_NCCL_OPERATIONS]);
            added.connections_rung = rung_of(found->second->rungs[CW_NCCL_CONNECTIONS]);
        }
        nccl_.instances.push_back(added);
    }

    static bool has_calls(const CommStream &stream, const Instance &instance,
                          const cw_nccl_comm &comm) {
        const auto call = std::lower_bound(
            stream.calls.begin(), stream.calls.end(), instance.begin_ns,
            [](const Call &a, std::uint64_t time_ns) { return a.time_ns < time_ns; });
        return call != stream.calls.end() && call->time_ns < comm.header.time_ns;
    }

    void mark_refused(std::size_t first, CommStream &stream) const {
        for (std::size_t i = first; i < nccl_.instances.size(); ++i) {
            const Instance &instance = nccl_.instances[i];
            for (std::uint32_t call = instance.first_call;
                 call < instance.first_call + instance.n_calls; ++call)
                if (Call refused = stream.calls[call];
                    (refused.flags & CW_NCCL_CALL_RETURNED) == 0 &&
                    is_refused(refused, instance.record)) {
                    refused.flags |= CW_NCCL_CALL_FAILED;
                    stream.calls.set(call, refused);
                }
        }
    }

    // Calls and launches belong to the newest earlier communicator, until its end.
    void divide(std::size_t first, const CommStream &stream) {
        if (nccl_.instances.size() == first) {
            nccl_.orphans += stream.calls.size() + stream.launches.size();
            return;
        }
        const auto index_at = [](const auto &items, std::uint64_t time_ns) {
            const auto found = std::lower_bound(
                items.begin(), items.end(), time_ns,
                [](const auto &item, std::uint64_t time) { return item.time_ns < time; });
            return static_cast<std::uint32_t>(found - items.begin());
        };
        std::uint64_t taken = 0;
        for (std::size_t i = first; i < nccl_.instances.size(); ++i) {
            Instance &instance = nccl_.instances[i];
            // Records shortly before the first communicator can only belong to it.
            const std::uint64_t begin_ns =
                i == first ? model::subtract_or_zero(instance.begin_ns,
                                                     instance.created ? 0 : FIRST_CALL_NS)
                           : instance.begin_ns;
            const std::uint64_t next_ns =
                i + 1 < nccl_.instances.size() ? nccl_.instances[i + 1].begin_ns : UINT64_MAX;
            const std::uint64_t end_ns =
                instance.ended ? std::min(instance.end_ns, next_ns) : next_ns;
            instance.first_call = index_at(stream.calls, begin_ns);
            instance.n_calls = index_at(stream.calls, end_ns) - instance.first_call;
            instance.first_launch = index_at(stream.launches, begin_ns);
            instance.n_launches = index_at(stream.launches, end_ns) - instance.first_launch;
            taken += instance.n_calls + instance.n_launches;
        }
        nccl_.orphans += stream.calls.size() + stream.launches.size() - taken;
    }

    void index_processes() {
        for (Index index = 0; index < model_.processes.size(); ++index) {
            const model::Process &process = model_.processes[index];
            processes_.try_emplace({process.host, process.pid, process.start_boottime_ns}, index);
        }
    }

    Index process_of(const Instance &instance) {
        const std::uint64_t start_ns = instance.record.start_boottime_ns;
        const std::uint64_t latest_ns =
            start_ns == 0 ? UINT64_MAX : model::add_saturating(start_ns, START_TOLERANCE_NS);
        const auto after = processes_.upper_bound({instance.host, instance.record.tgid, latest_ns});
        if (after != processes_.begin()) {
            const auto &[key, index] = *std::prev(after);
            const auto &[host, pid, known_ns] = key;
            if (host == instance.host && pid == instance.record.tgid &&
                (start_ns == 0 || known_ns == 0 ||
                 model::add_saturating(known_ns, START_TOLERANCE_NS) >= start_ns))
                return index;
        }
        model::Process process;
        process.host = instance.host;
        process.pid = instance.record.tgid;
        process.start_boottime_ns = start_ns;
        const auto index = static_cast<Index>(model_.processes.size());
        model_.processes.push_back(std::move(process));
        processes_.try_emplace({instance.host, instance.record.tgid, start_ns}, index);
        return index;
    }

    void find_parents() {
        for (Instance &instance : nccl_.instances) {
            if (instance.record.parent == 0)
                continue;
            const Index parent = instance_at(nccl_, instance.session, instance.record.tgid,
                                             instance.record.parent, instance.begin_ns);
            if (parent != NONE && &nccl_.instances[parent] != &instance &&
                nccl_.instances[parent].begin_ns <= instance.begin_ns)
                instance.parent = parent;
        }
    }

    Model &model_;
    NcclFacts &nccl_;
    std::map<std::tuple<Index, std::uint32_t, std::uint64_t>, Index> processes_;
    std::map<std::pair<Index, std::uint32_t>, const Image *> by_id_;  // session, image
    std::map<std::pair<Index, std::uint32_t>, std::uint32_t> images_; // session, process
    std::vector<WholeUntil> whole_until_;                             // by session
};

} // namespace

void find_instances(Model &model) {
    InstanceFinder(model).run();
}

} // namespace collwire::nccl
