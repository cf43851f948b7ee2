// SPDX-License-Identifier: Apache-2.0
#include "correlate/stream/node_standing.h"

#include <algorithm>

#include "collwire/loss_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_error_records.h"
#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "collwire/socket_records.h"
#include "collwire/wire_records.h"
#include "correlate/capture/nccl_names.h"
#include "correlate/model/counters.h"
#include "correlate/model/jobs.h"
#include "correlate/model/meaning.h"

namespace collwire::stream {

using capture::record_as;
using capture::text_of;

namespace {

constexpr std::uint32_t COUNTS_ITSELF = 22'400;          // NCCL's version
constexpr std::uint32_t COUNTS_EACH_SEPARATELY = 22'600; // also of those that share connections
constexpr std::uint32_t NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7;
constexpr std::int32_t MAX_RANKS = 1 << 20;
constexpr std::uint32_t MAX_ITEMS = 65'536;          // tasks, or operations, of a launch
constexpr std::uint32_t ROTATED = 2;                 // reason of a segment's end
constexpr std::uint8_t STATE_SQE = 5, STATE_ERR = 6; // enum ib_qp_state
// A communicator's record is emitted a moment before or after the call at which it was discovered.
constexpr std::uint64_t FIRST_CALL_NS = 1'000'000'000;

bool is_transfer(std::uint8_t func) {
    return func == CW_NCCL_SEND || func == CW_NCCL_RECV;
}

std::string key_text(const cw_qp_key &key) {
    return {reinterpret_cast<const char *>(&key), sizeof(key)};
}

} // namespace

void NodeStanding::need_model(const char *why) {
    if (needs_model_.empty())
        needs_model_ = why;
}

void NodeStanding::add(const cw_header &header, std::span<const std::byte> record) {
    if (header.kind == CW_KIND_NODE)
        return add_node(record);
    if (!has_node_)
        return;
    if (header.kind >= CW_KIND_NCCL_IMAGE && header.kind <= CW_KIND_NCCL_NVLS &&
        header.kind != CW_KIND_TCP_SOCKET)
        add_nccl(header, record);
    else
        add_state(header, record);
}

void NodeStanding::add_node(std::span<const std::byte> record) {
    const auto node = record_as<cw_node>(record);
    host_.hostname = text_of(node.hostname);
    host_.name = host_.hostname.empty() ? "(no host name)" : host_.hostname;
    host_.boot_id = text_of(node.boot_id);
    if (has_node_ && session_.end_ns < node.header.time_ns)
        session_.sample_gaps.emplace_back(session_.end_ns, node.header.time_ns);
    has_node_ = true;
    session_.sample_interval_ns = node.sample_interval_ns;
    counters_.clear(); // their numbers are the capture's
    if (node.realtime_ns != 0)
        host_.anchors.push_back({node.header.time_ns, node.realtime_ns});
}

void NodeStanding::end_capture(const capture::ReadSummary &summary) {
    session_.end_ns = std::max(session_.end_ns, summary.last_time_ns);
    if (summary.end && summary.end->reason != ROTATED)
        session_.end_ns = summary.end->header.time_ns;
}

void NodeStanding::add_state(const cw_header &header, std::span<const std::byte> record) {
    switch (header.kind) {
    case CW_KIND_CLOCK:
        if (const auto clock = record_as<cw_clock>(record); clock.realtime_ns != 0)
            host_.anchors.push_back({header.time_ns, clock.realtime_ns});
        break;
    case CW_KIND_PROCESS: {
        const auto process = record_as<cw_process>(record);
        const model::JobNames names = model::job_names(process);
        titles_[process.pid] = names.title();
        if (!job_.empty() && names.matches(job_))
            of_job_.insert(process.pid);
        break;
    }
    case CW_KIND_PORT: {
        const auto port = record_as<cw_port>(record);
        ports_.emplace(port.dev_index, port.port);
        break;
    }
    case CW_KIND_PROBE:
        if ((record_as<cw_probe>(record).flags & CW_PROBE_TAKEN_OFF) != 0)
            need_model("probes were taken off for a budget");
        break;
    case CW_KIND_LOSS:
        if (record_as<cw_loss>(record).records != 0)
            need_model("records were lost");
        break;
    case CW_KIND_SAMPLE_GAP: {
        const auto gap = record_as<cw_sample_gap>(record);
        if (gap.begin_ns < header.time_ns)
            session_.sample_gaps.emplace_back(gap.begin_ns, header.time_ns);
        break;
    }
    case CW_KIND_QP_ERROR:
    case CW_KIND_ASYNC_EVENT:
    case CW_KIND_DEVICE_GONE:
        has_network_signs_ = has_errors_ = true;
        break;
    case CW_KIND_CARRIER:
        if (record_as<cw_carrier>(record).up == 0)
            has_network_signs_ = true;
        break;
    case CW_KIND_QP_CREATE:
    case CW_KIND_QP_STATE:
    case CW_KIND_QP_EXISTING:
    case CW_KIND_QP_DESTROY: {
        const auto event = record_as<cw_qp_event>(record);
        queue_pairs_.insert(key_text(event.key));
        if (event.new_state == STATE_SQE || event.new_state == STATE_ERR)
            has_errors_ = true;
        break;
    }
    case CW_KIND_QP_WIRE: {
        const auto wire = record_as<cw_qp_wire>(record);
        queue_pairs_.insert(key_text(wire.key));
        counted_queue_pairs_.insert(key_text(wire.key));
        if (wire.counters.tx.frames[CW_WIRE_RETRANSMIT] != 0)
            has_network_signs_ = true;
        break;
    }
    case CW_KIND_TCP_SOCKET: {
        const auto socket = record_as<cw_tcp_socket>(record);
        sockets_.emplace(socket.inode, socket.netns);
        if (socket.retransmitted_bytes != 0)
            has_network_signs_ = true;
        break;
    }
    case CW_KIND_COUNTER_DEF: {
        const auto counter = record_as<cw_counter_def>(record);
        ports_.emplace(counter.dev_index, counter.port);
        counters_[counter.id].is_watched =
            model::meaning_of(text_of(counter.name)) != model::CounterMeaning::None;
        break;
    }
    case CW_KIND_COUNTER_SAMPLES:
        add_counters(record);
        break;
    default:
        break;
    }
}

void NodeStanding::add_counters(std::span<const std::byte> record) {
    for (const cw_counter_sample &sample : capture::samples_of(record)) {
        const auto found = counters_.find(sample.id);
        if (found == counters_.end() || !found->second.is_watched)
            continue;
        Counter &counter = found->second;
        if (counter.has_value && counter.value != sample.value)
            has_network_signs_ = true;
        counter.has_value = true;
        counter.value = sample.value;
    }
}

void NodeStanding::add_nccl(const cw_header &header, std::span<const std::byte> record) {
    switch (header.kind) {
    case CW_KIND_NCCL_CALL: {
        const auto from = record_as<cw_nccl_call>(record);
        const Address address{from.tgid, from.comm};
        if (last_place_ == nullptr || last_address_ != address) {
            last_place_ = &places_[address]; // stays where it is
            last_address_ = address;
        }
        last_place_->calls.push_back({header.time_ns,
                                      from.reduction,
                                      (from.flags & CW_NCCL_CALL_FAILED) != 0,
                                      {from.count, from.root, from.func, from.datatype}});
        break;
    }
    case CW_KIND_NCCL_LAUNCH:
        add_launch(record);
        break;
    case CW_KIND_NCCL_LAUNCH_TASKS: {
        const auto from = record_as<cw_nccl_launch_tasks>(record);
        if (from.n <= CW_NCCL_MORE_TASKS)
            add_tasks(from.tgid, tasks_of_plan(from.tgid, from.plan, from.launch_ns), from.first,
                      {from.tasks, from.n});
        break;
    }
    case CW_KIND_NCCL_SHAPE_TASK:
        add_shape_task(record);
        break;
    case CW_KIND_NCCL_SHAPE_OPS:
        add_shape_ops(record);
        break;
    case CW_KIND_NCCL_CONNECTION: {
        const auto from = record_as<cw_nccl_connection>(record);
        Connection &connection = connections_[{from.tgid, from.connection}];
        connection.is_local = from.transport == CW_NCCL_TRANSPORT_LOCAL;
        connection.number = static_cast<std::uint32_t>(from.channel) << 8U |
                            (static_cast<std::uint32_t>(from.conn_index) & 0xffU);
        if (from.comm != 0)
            connection.makers.emplace_back(from.comm, header.time_ns);
        break;
    }
    case CW_KIND_NCCL_STEPS: {
        const auto from = record_as<cw_nccl_steps>(record);
        steps_[{from.tgid, from.connection}].push_back(
            {from.read_ns, header.time_ns, from.unchanged_ns, from.steps,
             (from.flags & CW_NCCL_STEPS_IDLE) != 0, (from.flags & CW_NCCL_STEPS_BUSY) != 0});
        break;
    }
    case CW_KIND_NCCL_PROGRESS: {
        const auto from = record_as<cw_nccl_progress>(record);
        progress_[{from.tgid, from.connection}].push_back(
            {header.time_ns, from.group, from.base_steps, from.nsteps,
             (from.flags & CW_NCCL_PROGRESS_END) != 0});
        break;
    }
    case CW_KIND_NCCL_COMM: {
        const auto from = record_as<cw_nccl_comm>(record);
        if (from.rank >= 0 && from.rank < from.n_ranks && from.n_ranks <= MAX_RANKS)
            places_[{from.tgid, from.comm}].comms.push_back(from);
        break;
    }
    case CW_KIND_NCCL_COMM_END: {
        const auto from = record_as<cw_nccl_comm_end>(record);
        places_[{from.tgid, from.comm}].ends_ns.push_back(header.time_ns);
        break;
    }
    case CW_KIND_NCCL_IMAGE: {
        const auto from = record_as<cw_nccl_image>(record);
        images_[from.image_id] = {from.version, from.rungs[CW_NCCL_OPERATIONS] >= CW_RUNG_EXACT};
        break;
    }
    case CW_KIND_NCCL_PROCESS:
        if (const auto from = record_as<cw_nccl_process>(record); from.gone_ns != 0)
            exits_[from.tgid] = {from.there_ns, from.gone_ns};
        break;
    case CW_KIND_NCCL_RETURN:
        if (const auto from = record_as<cw_nccl_return>(record);
            from.result != NCCL_SUCCESS && from.result != NCCL_IN_PROGRESS)
            need_model("a call of NCCL failed");
        break;
    case CW_KIND_NCCL_RESULT: // its text and its other records add to it
        has_errors_ = true;
        break;
    case CW_KIND_NCCL_SOCKET: {
        const auto from = record_as<cw_nccl_socket>(record);
        if (from.retransmitted_bytes != 0)
            has_network_signs_ = true;
        break;
    }
    default:
        break;
    }
}

void NodeStanding::add_launch(std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_launch>(record);
    if ((from.flags & CW_NCCL_LAUNCH_GRAPH) != 0)
        need_model("a CUDA graph launched operations");
    if ((from.flags & (CW_NCCL_LAUNCH_TRUNCATED | CW_NCCL_LAUNCH_FAULT)) != 0)
        need_model("a launch could not be read whole");
    places_[{from.tgid, from.comm}].launches.push_back(
        {from.header.time_ns, from.shape, from.launched,
         (from.flags & CW_NCCL_LAUNCH_LAUNCHED) != 0});
    if (from.n_tasks < 2 || !shapes_[{from.tgid, from.shape}].ids.empty())
        return;
    PlanTasks &plan = tasks_of_plan(from.tgid, from.plan, from.header.time_ns);
    plan.shape = from.shape;
    plan.n_tasks = from.n_tasks;
    add_tasks(from.tgid, plan, 0,
              {from.tasks, std::min<std::size_t>(from.n_tasks, CW_NCCL_LAUNCH_TASKS)});
}

void NodeStanding::add_shape_task(std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_shape_task>(record);
    if (from.index >= MAX_ITEMS)
        return;
    Shape &shape = shapes_[{from.tgid, from.shape}];
    if (shape.funcs.size() <= from.index) {
        shape.funcs.resize(from.index + std::size_t{1}, CW_NCCL_FUNC_UNKNOWN);
        shape.peers.resize(shape.funcs.size(), -1);
    }
    shape.funcs[from.index] = from.api_func >= CW_NCCL_ALL_TO_ALL && from.api_func <= CW_NCCL_GATHER
                                  ? from.api_func
                                  : from.func;
    shape.peers[from.index] = from.root;
}

void NodeStanding::add_shape_ops(std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_shape_ops>(record);
    if (from.n_ops > MAX_ITEMS)
        return;
    Shape &shape = shapes_[{from.tgid, from.shape}];
    shape.ops.resize(std::max<std::size_t>(shape.ops.size(), from.n_ops));
    for (std::uint32_t i = 0; i < std::min<std::uint32_t>(from.n, CW_NCCL_SHAPE_OPS); ++i) {
        const std::uint64_t at = std::uint64_t{from.first} + i;
        if (at >= shape.ops.size())
            continue;
        const cw_nccl_op &op = from.ops[i];
        if ((op.flags & CW_NCCL_OP_OTHER_PROXY) != 0)
            need_model("another rank's proxy sends for a rank");
        if (op.task == CW_NCCL_NO_TASK)
            need_model("broadcasts are grouped");
        shape.ops[at] = {op.connection,
                         op.nsteps,
                         op.chunk_steps,
                         op.task,
                         true,
                         op.pattern == CW_NCCL_PATTERN_SEND || op.pattern == CW_NCCL_PATTERN_RECV,
                         op.pattern == CW_NCCL_PATTERN_PROFILER};
    }
}

bool NodeStanding::is_of_job(std::uint32_t tgid) const {
    return job_.empty() || of_job_.contains(tgid);
}

// By the node's own clock.
std::uint64_t NodeStanding::until_ns(std::uint32_t tgid) const {
    const auto exit = exits_.find(tgid);
    return exit == exits_.end() ? session_.end_ns
                                : std::min(session_.end_ns, exit->second.there_ns);
}

void NodeStanding::check_version(const cw_nccl_comm &comm) {
    const auto image = images_.find(comm.image_id);
    if (image == images_.end() || image->second.first < COUNTS_ITSELF || !image->second.second ||
        (comm.flags & CW_NCCL_COMM_CALLS_ONLY) != 0)
        need_model("NCCL is older than 2.24, or its launches cannot be read");
    else if ((comm.flags & CW_NCCL_COMM_SHARED) != 0 &&
             image->second.first < COUNTS_EACH_SEPARATELY)
        need_model("communicators share their counters, as before NCCL 2.26");
}

std::vector<NodeStanding::Live> NodeStanding::find_live() {
    std::vector<Live> all;
    for (auto &[address, place] : places_) {
        if (place.comms.empty()) {
            if (!place.calls.empty())
                need_model("calls are of a communicator that is not recorded");
            continue;
        }
        std::ranges::stable_sort(place.comms, {}, [](const cw_nccl_comm &comm) {
            return std::uint64_t{comm.header.time_ns};
        });
        std::ranges::stable_sort(place.calls, {}, &Call::time_ns);
        std::ranges::stable_sort(place.launches, {}, &Launch::time_ns);
        std::ranges::sort(place.ends_ns);
        Live live;
        live.address = address;
        std::uint64_t before_ns = 0; // end of the one before
        for (const cw_nccl_comm &comm : place.comms) {
            const auto ended = std::ranges::find_if(place.ends_ns, [&](std::uint64_t end_ns) {
                return live.comm != nullptr && end_ns > live.comm->header.time_ns &&
                       end_ns <= comm.header.time_ns;
            });
            const bool is_same = live.comm != nullptr && ended == place.ends_ns.end() &&
                                 live.comm->comm_hash == comm.comm_hash &&
                                 live.comm->rank == comm.rank && live.comm->n_ranks == comm.n_ranks;
            if (is_same)
                continue; // each segment repeats it
            before_ns = live.comm == nullptr           ? 0
                        : ended == place.ends_ns.end() ? std::uint64_t{comm.header.time_ns}
                                                       : *ended;
            live.comm = &comm;
        }
        if (!place.ends_ns.empty() && place.ends_ns.back() > live.comm->header.time_ns)
            continue; // not alive
        live.is_created = (live.comm->flags & CW_NCCL_COMM_CREATED) != 0;
        const std::uint64_t begin_ns = live.comm->header.time_ns;
        live.begin_ns = std::max(before_ns, begin_ns - std::min(begin_ns, FIRST_CALL_NS));
        if (live.comm->n_ranks > 1 && is_of_job(address.first))
            all.push_back(std::move(live));
    }
    std::ranges::sort(all, {}, &Live::address);
    return all;
}

// Numbers, arguments, and how far it is launched.
void NodeStanding::count_calls(Live &live) {
    const Place &place = places_.at(live.address);
    const cw_nccl_comm &comm = *live.comm;
    RankStanding &rank = live.standing;
    std::vector<std::uint64_t> times_ns;
    std::uint64_t last_ns = 0;
    for (const Call &call : place.calls) {
        if (call.time_ns < live.begin_ns)
            continue;
        if (last_ns != 0)
            rank.longest_pause_ns = std::max(rank.longest_pause_ns, call.time_ns - last_ns);
        last_ns = call.time_ns;
        const CallArguments &of = call.arguments;
        const bool is_refused =
            call.is_failed || of.root < 0 || of.root >= comm.n_ranks || call.reduction < 0;
        if (of.func >= CW_NCCL_PUT_SIGNAL || is_refused)
            continue;
        const std::uint64_t bytes =
            model::multiply_saturating(of.count, capture::nccl_datatype_bytes(of.datatype));
        if (is_transfer(of.func)) {
            rank.work.add_transfer(of.func == CW_NCCL_SEND, of.root, bytes);
            add_transfer(live, call);
            continue;
        }
        rank.work.add_collective(roles::kind_of(of.func, bytes, comm.n_ranks));
        if (of.func > CW_NCCL_ALL_REDUCE || of.count == 0)
            need_model("NCCL does not count some of the calls");
        rank.calls.push_back({host_.realtime_ns(call.time_ns), of});
        times_ns.push_back(call.time_ns);
    }
    std::optional<std::uint64_t> base;
    std::size_t so_far = 0;
    for (const Launch &launch : place.launches) {
        if (launch.time_ns < live.begin_ns || !launch.is_counted)
            continue;
        while (so_far < times_ns.size() && times_ns[so_far] < launch.time_ns)
            ++so_far;
        if (launch.launched != 0)
            rank.launched = std::max(rank.launched.value_or(0), launch.launched - 1);
        if (launch.launched >= so_far)
            base = std::max(base.value_or(0), launch.launched - so_far);
    }
    rank.work.finish();
    find_turns(live);
    rank.is_from_creation = live.is_created;
    rank.first_number = live.is_created ? std::optional<std::uint64_t>(0) : base;
    if (live.is_created && base.value_or(0) != 0)
        need_model("NCCL has counted more calls than were recorded");
}

void NodeStanding::find_jobs(const std::vector<Live> &all, NodeSeen &seen) const {
    std::map<std::string, std::pair<JobSeen, std::set<std::uint32_t>>> jobs;
    for (const Live &live : all) {
        const auto title = titles_.find(live.address.first);
        if (title == titles_.end() || title->second.empty())
            continue;
        auto &[job, processes] = jobs[title->second];
        processes.insert(live.address.first);
        job.n_ranks = std::max<std::int32_t>(job.n_ranks, live.comm->n_ranks);
        if (live.standing.calls.empty())
            continue;
        const std::uint64_t first_ns = live.standing.calls.front().realtime_ns;
        job.first_ns = job.first_ns == 0 ? first_ns : std::min(job.first_ns, first_ns);
        job.last_ns = std::max(job.last_ns, live.standing.calls.back().realtime_ns);
    }
    for (auto &[title, found] : jobs) {
        found.first.title = title;
        found.first.processes = found.second.size();
        seen.jobs.push_back(std::move(found.first));
    }
}

NodeSeen NodeStanding::finish() {
    // By one reading: CLOCK_REALTIME may have been set, and what was between keeps its distance.
    if (!host_.anchors.empty())
        host_.anchors = {std::ranges::max(host_.anchors, {}, &model::ClockAnchor::monotonic_ns)};
    std::vector<Live> all = find_live();
    std::map<std::uint32_t, std::vector<Live *>> by_process;
    for (Live &live : all) {
        const cw_nccl_comm &comm = *live.comm;
        check_version(comm);
        RankStanding &rank = live.standing;
        rank.hash = comm.comm_hash;
        rank.n_ranks = comm.n_ranks;
        rank.n_nodes = comm.n_nodes;
        rank.rank = comm.rank;
        rank.name = text_of(comm.name);
        rank.is_named_at_creation = live.is_created;
        rank.bus_id = comm.bus_id;
        rank.cuda_dev = comm.cuda_dev;
        rank.pid = live.address.first;
        rank.begin_ns = host_.realtime_ns(comm.header.time_ns);
        rank.until_ns = host_.realtime_ns(until_ns(rank.pid));
        if (const auto exit = exits_.find(rank.pid); exit != exits_.end())
            rank.exited_ns = host_.realtime_ns(exit->second.gone_ns);
        count_calls(live);
        by_process[rank.pid].push_back(&live);
    }
    NodeSeen seen;
    seen.host = host_.name;
    seen.boot = host_.boot_id;
    if (needs_model_.empty())
        for (auto &[tgid, of_process] : by_process)
            find_in_flight(of_process);
    for (Live &live : all) {
        put_steps(live);
        put_transfers(live);
    }
    number_inside(all);
    seen.network = {queue_pairs_.size(), counted_queue_pairs_.size(), sockets_.size(),
                    ports_.size()};
    find_jobs(all, seen);
    for (Live &live : all)
        seen.ranks.push_back(std::move(live.standing));
    seen.has_network_signs = has_network_signs_;
    seen.has_errors = has_errors_;
    seen.needs_model = needs_model_;
    return seen;
}

} // namespace collwire::stream
