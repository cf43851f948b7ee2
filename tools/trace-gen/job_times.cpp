// SPDX-License-Identifier: Apache-2.0
#include "tools/trace-gen/job_times.h"

#include <algorithm>
#include <utility>

namespace collwire::trace_gen {
namespace {

constexpr std::uint64_t FIRST_STEP_NS = 1'000'000'000;
constexpr std::uint64_t AFTER_LAST_NS = 1'000'000'000;
constexpr std::uint64_t JITTER_NS = 200'000;
constexpr std::uint64_t BETWEEN_NS = 20'000;
constexpr std::uint64_t BASE_NS = 30'000; // of an operation without bytes
constexpr double NIC_BYTES_A_NS = 45;     // 400 Gbit/s, less overhead
constexpr double NVLINK_BYTES_A_NS = 300;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t value = a * 0x9e3779b97f4a7c15 + b;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

std::uint32_t stages_of(const JobPlan &plan, const JobOperation &operation) {
    return operation.kind == JobKind::Transfer ? plan.options().pipeline_stages - 1 : 1;
}

// The time that the busiest NIC needs for its bytes.
std::uint64_t duration_ns(const JobPlan &plan, const JobOperation &operation,
                          const JobCommunicator &comm, const std::vector<EdgeAmount> &amounts) {
    if (!comm.crosses_nodes())
        return BASE_NS + static_cast<std::uint64_t>(
                             static_cast<double>(operation.size.count *
                                                 operation.size.element_bytes * comm.n_ranks()) /
                             NVLINK_BYTES_A_NS);
    std::vector<std::uint64_t> sent_bytes(comm.n_ranks());
    for (const EdgeAmount &amount : amounts)
        sent_bytes[plan.edges()[amount.edge].from] += amount.carried.payload_bytes;
    const std::uint64_t most = *std::max_element(sent_bytes.begin(), sent_bytes.end());
    return BASE_NS + static_cast<std::uint64_t>(static_cast<double>(most) / NIC_BYTES_A_NS);
}

} // namespace

JobTraffic::JobTraffic(const JobPlan &plan) {
    first_.resize(plan.n_shapes());
    stages_.resize(plan.n_shapes());
    std::uint32_t done = 0;
    for (const JobOperation &operation : plan.operations()) {
        if (operation.shape != done)
            continue;
        done++;
        first_[operation.shape] = amounts_.size();
        stages_[operation.shape] = stages_of(plan, operation);
        for (const std::uint32_t id : plan.of_role(operation.role))
            for (std::uint32_t stage = 0; stage < stages_[operation.shape]; stage++)
                amounts_.push_back(
                    sent_by_operation(plan, plan.communicators()[id], operation, stage));
    }
}

JobTimes::JobTimes(const JobPlan &plan, const JobTraffic &traffic, const Visit &visit)
    : plan_(plan) {
    const auto &operations = plan.operations();
    while (operations[first_data_].role != JobRole::Data)
        first_data_++;
    for (const JobOperation &operation : operations) {
        first_.push_back(a_round_);
        stages_.push_back(stages_of(plan, operation));
        a_round_ += plan.of_role(operation.role).size() * stages_.back();
    }
    events_.resize(a_round_ * plan.options().iterations);
    run(traffic, visit);
}

std::uint64_t JobTimes::delay_ns(std::uint32_t iteration, std::uint32_t operation,
                                 std::uint32_t global_rank) const {
    std::uint64_t delay_ns = 0;
    if (operation == first_data_)
        for (const LateRank &late : plan_.options().late)
            if (late.rank == global_rank && iteration >= late.first_iteration &&
                iteration <= late.last_iteration)
                delay_ns += late.delay_ns;
    return delay_ns;
}

double JobTimes::slowness(std::uint32_t iteration, const JobCommunicator &comm) const {
    double factor = 1;
    if (!comm.crosses_nodes())
        return factor;
    for (const SlowLink &slow : plan_.options().slow) {
        const bool has_node =
            std::find(comm.nodes.begin(), comm.nodes.end(), slow.node) != comm.nodes.end();
        const bool has_nic =
            std::find(comm.locals.begin(), comm.locals.end(), slow.nic) != comm.locals.end();
        if (has_node && has_nic && iteration >= slow.first_iteration &&
            iteration <= slow.last_iteration)
            factor = std::max(factor, slow.factor);
    }
    return factor;
}

std::uint64_t JobTimes::arrival_ns(std::uint32_t iteration, std::uint32_t operation,
                                   std::uint32_t global_rank, std::uint32_t side,
                                   std::uint64_t free_ns) const {
    if (free_ns == NEVER_NS)
        return NEVER_NS;
    const JobOptions &options = plan_.options();
    const std::uint64_t due_ns =
        FIRST_STEP_NS + iteration * options.step_ns + plan_.operations()[operation].offset_ns;
    const std::uint64_t key = (std::uint64_t{iteration} << 32) | (operation << 1) | side;
    const std::uint64_t jitter_ns = mix(mix(options.seed, global_rank), key) % JITTER_NS;
    const std::uint64_t arrival_ns =
        std::max(due_ns + jitter_ns, free_ns + BETWEEN_NS + jitter_ns / 100) +
        delay_ns(iteration, operation, global_rank);
    if (options.stopped && options.stopped->rank == global_rank &&
        arrival_ns >= options.stopped->at_ns)
        return NEVER_NS;
    return arrival_ns;
}

void JobTimes::run(const JobTraffic &traffic, const Visit &visit) {
    const JobOptions &options = plan_.options();
    const auto &operations = plan_.operations();
    std::vector<std::uint64_t> free_ns(options.n_ranks());
    std::vector<std::uint32_t> ranks;
    std::vector<std::uint64_t> arrivals_ns;
    std::uint64_t last_ns = 0;
    // By operation and communicator, of the first iteration: they do not change.
    std::vector<std::uint64_t> durations_ns(a_round_);
    for (std::uint32_t o = 0; o < operations.size(); o++)
        for (const std::uint32_t id : plan_.of_role(operations[o].role))
            for (std::uint32_t stage = 0; stage < stages_[o]; stage++) {
                const JobCommunicator &comm = plan_.communicators()[id];
                durations_ns[first_[o] + comm.index * stages_[o] + stage] =
                    duration_ns(plan_, operations[o], comm, traffic.of(operations[o], comm, stage));
            }
    for (std::uint32_t iteration = 0; iteration < options.iterations; iteration++)
        for (std::uint32_t o = 0; o < operations.size(); o++)
            for (const std::uint32_t id : plan_.of_role(operations[o].role))
                for (std::uint32_t i = 0; i < stages_[o]; i++) {
                    const JobOperation &operation = operations[o];
                    const JobCommunicator &comm = plan_.communicators()[id];
                    const bool is_transfer = operation.kind == JobKind::Transfer;
                    const std::uint32_t stage = is_transfer && operation.is_backward
                                                    ? static_cast<std::uint32_t>(stages_[o]) - 1 - i
                                                    : i;
                    ranks.clear();
                    for (std::uint32_t rank = 0; rank < (is_transfer ? 2 : comm.n_ranks()); rank++)
                        ranks.push_back(is_transfer ? stage + rank : rank);
                    arrivals_ns.clear();
                    JobEvent event;
                    Arrivals arrivals{
                        .iteration = iteration, .operation = o, .comm = id, .stage = stage};
                    for (const std::uint32_t rank : ranks) {
                        const std::uint32_t global = comm.global_of(rank);
                        const std::uint32_t sender = stage + (operation.is_backward ? 1 : 0);
                        const std::uint32_t side = is_transfer && rank == sender ? 1 : 0;
                        const std::uint64_t at_ns =
                            this->arrival_ns(iteration, o, global, side, free_ns[global]);
                        arrivals_ns.push_back(at_ns);
                        event.begin_ns = std::max(event.begin_ns, at_ns);
                        arrivals.has_late =
                            arrivals.has_late || delay_ns(iteration, o, global) != 0;
                    }
                    const double slow = slowness(iteration, comm);
                    arrivals.has_slow = slow > 1;
                    const std::uint64_t duration =
                        durations_ns[first_[o] + comm.index * stages_[o] + stage];
                    event.end_ns = event.begin_ns == NEVER_NS
                                       ? NEVER_NS
                                       : event.begin_ns + static_cast<std::uint64_t>(
                                                              static_cast<double>(duration) * slow);
                    for (const std::uint32_t rank : ranks)
                        free_ns[comm.global_of(rank)] = event.end_ns;
                    if (event.end_ns != NEVER_NS)
                        last_ns = std::max(last_ns, event.end_ns);
                    events_[iteration * a_round_ + first_[o] + comm.index * stages_[o] + stage] =
                        event;
                    arrivals.event = event;
                    arrivals.ranks = ranks;
                    arrivals.arrivals_ns = arrivals_ns;
                    if (visit)
                        visit(arrivals);
                }
    end_ns_ =
        std::max(last_ns, FIRST_STEP_NS + options.iterations * options.step_ns) + AFTER_LAST_NS;
}

} // namespace collwire::trace_gen
