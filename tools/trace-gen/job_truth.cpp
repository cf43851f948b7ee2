// SPDX-License-Identifier: Apache-2.0
#include "tools/trace-gen/job_truth.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "tools/trace-gen/job_clock.h"
#include "tools/trace-gen/job_inventory.h"
#include "tools/trace-gen/job_node.h"
#include "tools/trace-gen/job_rank.h"

namespace collwire::trace_gen {
namespace {

constexpr std::size_t FILE_BUFFER_BYTES = 1U << 20;
// The walk over all places of a ring takes the square of their number.
constexpr std::uint32_t MOST_LOCAL_RANKS = 512;

const char *func_name(cw_nccl_func func) {
    switch (func) {
    case CW_NCCL_ALL_REDUCE:
        return "AllReduce";
    case CW_NCCL_ALL_GATHER:
        return "AllGather";
    case CW_NCCL_REDUCE_SCATTER:
        return "ReduceScatter";
    default:
        return "unknown";
    }
}

const char *kind_name(JobKind kind) {
    constexpr std::array<const char *, 3> NAMES = {"collective", "transfer", "exchange"};
    return NAMES[static_cast<std::size_t>(kind)];
}

// The leaf where both ports are on it: the same NIC in one pod.
bool is_leaf(const JobCommunicator &comm, const JobEdge &edge) {
    return edge.from_nic == edge.to_nic &&
           comm.node_of(edge.from) / NODES_OF_POD == comm.node_of(edge.to) / NODES_OF_POD;
}

std::uint32_t n_stages(const JobPlan &plan) {
    return std::max(1U, plan.options().pipeline_stages - 1);
}

} // namespace

JobTruth::JobTruth(const JobPlan &plan, std::string path, std::FILE *file)
    : plan_(plan), path_(std::move(path)), file_(file),
      completed_(plan.n_shapes() * plan.communicators().size() * n_stages(plan)),
      collectives_(plan.communicators().size()), exchanges_(plan.communicators().size()),
      transfers_(plan.communicators().size() * n_stages(plan) * 2) {}

Result<std::unique_ptr<JobTruth>> JobTruth::create(const JobPlan &plan) {
    std::string path = plan.options().directory + "/truth.jsonl";
    std::FILE *file = std::fopen(path.c_str(), "we");
    if (file == nullptr)
        return error(ErrorKind::Failed, fmt::format("{}: {}. Fix: give --out another directory",
                                                    path, std::strerror(errno)));
    std::setvbuf(file, nullptr, _IOFBF, FILE_BUFFER_BYTES);
    return std::unique_ptr<JobTruth>(new JobTruth(plan, std::move(path), file));
}

void JobTruth::put(const std::string &line) {
    std::fwrite(line.data(), 1, line.size(), file_.get());
    std::fputc('\n', file_.get());
}

std::uint64_t &JobTruth::completed(std::uint32_t shape, const JobCommunicator &comm,
                                   std::uint32_t stage) {
    return completed_[(shape * plan_.communicators().size() + comm.id) * n_stages(plan_) + stage];
}

void JobTruth::job() {
    const JobOptions &options = plan_.options();
    put(fmt::format(R"({{"kind":"job","nodes":{},"ranks":{},"iterations":{},"step_ns":{},)"
                    R"("start_realtime_ns":{},"slurm_job":"{}","bytes":"{}","network_times":{},)"
                    R"("local_launches":{},"tensor_parallel":{},"pipeline_stages":{},)"
                    R"("expert_parallel":{}}})",
                    options.nodes, options.n_ranks(), options.iterations, options.step_ns,
                    JOB_START_REALTIME_NS, 4711 + options.seed,
                    options.bytes == JobBytes::Posts ? "posts" : "computed",
                    options.has_network_times, options.has_local_launches, options.tensor_parallel,
                    options.pipeline_stages, options.expert_parallel));
    for (std::uint32_t node = 0; node < options.nodes; node++) {
        const JobClock clock = clock_of_node(options, node);
        line_ =
            fmt::format(R"({{"kind":"node","node":{},"host":"{}","boot_monotonic_ns":{},)"
                        R"("offset_ns":{},"drift_ppb":{},"steps":[)",
                        node, host_of_node(node), clock.boot_ns, clock.offset_ns, clock.drift_ppb);
        for (const SetClock &step : clock.steps)
            line_ += fmt::format(R"({}{{"from_ns":{},"ahead_ns":{}}})",
                                 line_.ends_with('[') ? "" : ",", step.from_ns, step.ahead_ns);
        put(line_ + "]}");
    }
    for (std::uint32_t rank = 0; rank < options.n_ranks(); rank++)
        put(fmt::format(R"({{"kind":"rank","rank":{},"node":{},"pid":{},"gpu":{}}})", rank,
                        rank / GPUS, pid_of_rank(rank), rank % GPUS));
    for (const JobCommunicator &comm : plan_.communicators()) {
        line_ = fmt::format(R"({{"kind":"communicator","comm":{},"hash":"0x{:016x}","role":"{}",)"
                            R"("n_ranks":{},"nodes":{},"channels":{},"ranks":[)",
                            comm.id, comm.hash, role_name(comm.role), comm.n_ranks(),
                            comm.nodes.size(), comm.channels);
        for (std::uint32_t rank = 0; rank < comm.n_ranks(); rank++)
            fmt::format_to(std::back_inserter(line_), "{}{}", rank == 0 ? "" : ",",
                           comm.global_of(rank));
        put(line_ + "]}");
    }
}

void JobTruth::traffic(const JobTraffic &traffic) {
    std::uint32_t done = 0;
    for (const JobOperation &operation : plan_.operations()) {
        if (operation.shape != done)
            continue;
        done++;
        const CollectiveSize &size = operation.size;
        const bool is_collective = operation.kind == JobKind::Collective;
        put(fmt::format(
            R"({{"kind":"shape","shape":{},"what":"{}","role":"{}","op":"{}","size_bytes":{},)"
            R"("algorithm":{},"protocol":{},"backward":{}}})",
            operation.shape, kind_name(operation.kind), role_name(operation.role),
            is_collective ? func_name(size.func) : "SendRecv",
            is_collective ? size.count * size.element_bytes : operation.transfer_bytes,
            !is_collective                   ? "null"
            : size.algorithm == CW_NCCL_RING ? "\"RING\""
                                             : "\"TREE\"",
            !is_collective                    ? "null"
            : size.protocol == CW_NCCL_SIMPLE ? "\"SIMPLE\""
            : size.protocol == CW_NCCL_LL     ? "\"LL\""
                                              : "\"LL128\"",
            operation.is_backward));
        for (const std::uint32_t id : plan_.of_role(operation.role)) {
            const JobCommunicator &comm = plan_.communicators()[id];
            const std::uint32_t stages = operation.kind == JobKind::Transfer ? n_stages(plan_) : 1;
            for (std::uint32_t stage = 0; stage < stages; stage++) {
                std::uint64_t leaf_bytes = 0, spine_bytes = 0, data_bytes = 0;
                std::string edges;
                for (const EdgeAmount &amount : traffic.of(operation, comm, stage)) {
                    const JobEdge &edge = plan_.edges()[amount.edge];
                    (is_leaf(comm, edge) ? leaf_bytes : spine_bytes) +=
                        amount.carried.payload_bytes;
                    data_bytes += amount.carried.data_bytes;
                    fmt::format_to(std::back_inserter(edges), "{}[{},{},{},{},{}]",
                                   edges.empty() ? "" : ",", edge.from, edge.to, edge.channel,
                                   amount.carried.payload_bytes, amount.carried.messages);
                }
                put(fmt::format(R"({{"kind":"traffic","shape":{},"comm":{},"stage":{},)"
                                R"("payload_bytes":{},"data_bytes":{},"leaf_bytes":{},)"
                                R"("spine_bytes":{},"local_bytes":{},"edges":[{}]}})",
                                operation.shape, id, stage, leaf_bytes + spine_bytes, data_bytes,
                                leaf_bytes, spine_bytes,
                                is_collective && comm.n_ranks() <= MOST_LOCAL_RANKS
                                    ? fmt::format("{}", local_payload_bytes(comm, operation))
                                    : "null",
                                edges));
            }
        }
    }
}

void JobTruth::operation(const JobTimes::Arrivals &arrivals) {
    const JobOperation &operation = plan_.operations()[arrivals.operation];
    const JobCommunicator &comm = plan_.communicators()[arrivals.comm];
    std::uint64_t first_ns = NEVER_NS, last_ns = 0;
    std::uint32_t last_rank = 0, n_arrived = 0;
    for (std::size_t i = 0; i < arrivals.ranks.size(); i++) {
        const std::uint64_t at_ns = arrivals.arrivals_ns[i];
        if (at_ns == NEVER_NS)
            continue;
        n_arrived++;
        first_ns = std::min(first_ns, at_ns);
        if (at_ns >= last_ns) {
            last_ns = at_ns;
            last_rank = arrivals.ranks[i];
        }
    }
    std::uint64_t number = 0;
    switch (operation.kind) {
    case JobKind::Collective:
        number = collectives_[comm.id];
        break;
    case JobKind::AllToAll:
        number = exchanges_[comm.id];
        break;
    case JobKind::Transfer:
        number = transfers_[(comm.id * n_stages(plan_) + arrivals.stage) * 2 +
                            (operation.is_backward ? 1 : 0)];
        break;
    }
    if (n_arrived == 0)
        return;
    switch (operation.kind) {
    case JobKind::Collective:
        collectives_[comm.id]++;
        break;
    case JobKind::AllToAll:
        exchanges_[comm.id]++;
        break;
    case JobKind::Transfer:
        transfers_[(comm.id * n_stages(plan_) + arrivals.stage) * 2 +
                   (operation.is_backward ? 1 : 0)]++;
        break;
    }
    const bool is_hung = arrivals.event.end_ns == NEVER_NS;
    if (!is_hung)
        completed(operation.shape, comm, arrivals.stage)++;
    line_.clear();
    auto out = std::back_inserter(line_);
    fmt::format_to(out,
                   R"({{"kind":"operation","comm":{},"seq":{},"shape":{},"stage":{},)"
                   R"("iteration":{},"first_ns":{},"end_ns":)",
                   comm.id, number, operation.shape, arrivals.stage, arrivals.iteration, first_ns);
    if (is_hung)
        fmt::format_to(out, "null");
    else
        fmt::format_to(out, "{}", arrivals.event.end_ns);
    fmt::format_to(
        out, R"(,"last_rank":{},"spread_ns":{},"late_rank":{},"slow_link":{},"after_first_ns":[)",
        last_rank, last_ns - first_ns, arrivals.has_late, arrivals.has_slow);
    for (std::size_t i = 0; i < arrivals.ranks.size(); i++) {
        if (i != 0)
            line_ += ',';
        if (arrivals.arrivals_ns[i] == NEVER_NS)
            line_ += "null";
        else
            line_ += fmt::format_int(arrivals.arrivals_ns[i] - first_ns).c_str();
    }
    line_ += "]}";
    put(line_);
}

void JobTruth::capture(const CaptureTruth &capture) {
    line_ = fmt::format(R"({{"kind":"capture","node":{},"damage":"{}","records":{},"bytes":{},)"
                        R"("good_bytes":{},"files":[)",
                        capture.node, damage_name(capture.damage), capture.n_records,
                        capture.size_bytes, capture.good_bytes);
    for (std::size_t i = 0; i < capture.paths.size(); i++)
        line_ += (i == 0 ? "\"" : ",\"") +
                 capture.paths[i].substr(capture.paths[i].rfind('/') + 1) + "\"";
    put(line_ + "]}");
}

void JobTruth::totals(const JobTraffic &traffic, std::uint64_t end_ns) {
    std::vector<std::uint64_t> sent_bytes(plan_.edges().size());
    std::vector<std::uint64_t> sent_messages(plan_.edges().size());
    struct OfSize {
        std::uint64_t operations = 0, payload_bytes = 0;
    };
    std::map<std::uint32_t, OfSize> sizes;
    std::uint32_t done = 0;
    for (const JobOperation &operation : plan_.operations()) {
        if (operation.shape != done)
            continue;
        done++;
        const std::uint32_t stages = operation.kind == JobKind::Transfer ? n_stages(plan_) : 1;
        for (const std::uint32_t id : plan_.of_role(operation.role)) {
            const JobCommunicator &comm = plan_.communicators()[id];
            for (std::uint32_t stage = 0; stage < stages; stage++) {
                const std::uint64_t times = completed(operation.shape, comm, stage);
                sizes[operation.shape].operations += times;
                for (const EdgeAmount &amount : traffic.of(operation, comm, stage)) {
                    sent_bytes[amount.edge] += amount.carried.payload_bytes * times;
                    sent_messages[amount.edge] += amount.carried.messages * times;
                    sizes[operation.shape].payload_bytes += amount.carried.payload_bytes * times;
                }
            }
        }
    }
    std::uint64_t leaf_bytes = 0, spine_bytes = 0;
    for (std::size_t i = 0; i < plan_.edges().size(); i++) {
        const JobEdge &edge = plan_.edges()[i];
        const JobCommunicator &comm = plan_.communicators()[edge.comm];
        const bool below_leaf = is_leaf(comm, edge);
        (below_leaf ? leaf_bytes : spine_bytes) += sent_bytes[i];
        put(fmt::format(R"({{"kind":"connection","comm":{},"src_rank":{},"dst_rank":{},)"
                        R"("channel":{},"index":{},"tier":"{}","src_node":{},"src_nic":{},)"
                        R"("src_qpn":{},"dst_node":{},"dst_nic":{},"dst_qpn":{},)"
                        R"("payload_bytes":{},"messages":{}}})",
                        edge.comm, edge.from, edge.to, edge.channel, edge.index,
                        below_leaf ? "leaf" : "spine", comm.node_of(edge.from), edge.from_nic,
                        edge.from_qpn, comm.node_of(edge.to), edge.to_nic, edge.to_qpn,
                        sent_bytes[i], sent_messages[i]));
    }
    for (const auto &[shape, of_size] : sizes)
        put(fmt::format(R"({{"kind":"sum","shape":{},"operations":{},"payload_bytes":{}}})", shape,
                        of_size.operations, of_size.payload_bytes));
    std::uint64_t memberships = 0;
    for (const JobCommunicator &comm : plan_.communicators())
        memberships += comm.n_ranks();
    put(fmt::format(R"({{"kind":"total","leaf_bytes":{},"spine_bytes":{},"end_ns":{},)"
                    R"("bootstrap_sockets":{},"proxy_sockets":{},"network_setup_sockets":{},)"
                    R"("bytes_of_socket":{}}})",
                    leaf_bytes, spine_bytes, end_ns, memberships * JOB_BOOTSTRAP_SOCKETS,
                    memberships * JOB_PROXY_SOCKETS, 2 * plan_.edges().size(), JOB_SOCKET_BYTES));
}

Result<void> JobTruth::close() {
    const bool has_failed = std::ferror(file_.get()) != 0;
    if (std::fclose(file_.release()) != 0 || has_failed)
        return error(ErrorKind::Failed,
                     fmt::format("{}: cannot be written. Fix: free the disk", path_));
    return {};
}

} // namespace collwire::trace_gen
