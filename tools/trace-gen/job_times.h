// SPDX-License-Identifier: Apache-2.0
// When each rank of a generated job arrives at each operation, and when the operation ends: true
// time, from the start of the recordings. A rank arrives when its step of the plan is due and its
// operation before has ended. An operation moves bytes from its last arrival to its end.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tools/trace-gen/job_plan.h"

namespace collwire::trace_gen {

inline constexpr std::uint64_t NEVER_NS = ~0ULL;

// One operation of one communicator in one iteration; of a pipeline, of one pair of stages.
struct JobEvent {
    std::uint64_t begin_ns = 0; // the last arrival
    std::uint64_t end_ns = 0;   // NEVER_NS: it hangs
};

// What all edges carry, by shape of operation.
class JobTraffic {
public:
    explicit JobTraffic(const JobPlan &plan);
    // Sorted by edge.
    [[nodiscard]] const std::vector<EdgeAmount> &
    of(const JobOperation &operation, const JobCommunicator &comm, std::uint32_t stage) const {
        return amounts_[first_[operation.shape] + comm.index * stages_[operation.shape] + stage];
    }

private:
    std::vector<std::size_t> first_;
    std::vector<std::size_t> stages_;
    std::vector<std::vector<EdgeAmount>> amounts_;
};

class JobTimes {
public:
    struct Arrivals {
        std::uint32_t iteration = 0;
        std::uint32_t operation = 0;
        std::uint32_t comm = 0;
        std::uint32_t stage = 0;
        JobEvent event = {};
        std::span<const std::uint32_t> ranks = {}; // of the communicator
        std::span<const std::uint64_t> arrivals_ns = {};
        bool has_late = false; // a rank's delay was given for this operation
        bool has_slow = false; // it passed a slow link
    };
    using Visit = std::function<void(const Arrivals &)>;

    // Computes all events; `visit` is called for each of them.
    JobTimes(const JobPlan &plan, const JobTraffic &traffic, const Visit &visit);

    [[nodiscard]] const JobEvent &event(std::uint32_t iteration, std::uint32_t operation,
                                        const JobCommunicator &comm, std::uint32_t stage) const {
        return events_[iteration * a_round_ + first_[operation] + comm.index * stages_[operation] +
                       stage];
    }
    // `free_ns`: when the rank's operation before ended. `side`: 1 of the second of two transfers.
    [[nodiscard]] std::uint64_t arrival_ns(std::uint32_t iteration, std::uint32_t operation,
                                           std::uint32_t global_rank, std::uint32_t side,
                                           std::uint64_t free_ns) const;
    // Of the recordings.
    [[nodiscard]] std::uint64_t end_ns() const { return end_ns_; }

private:
    void run(const JobTraffic &traffic, const Visit &visit);
    [[nodiscard]] std::uint64_t delay_ns(std::uint32_t iteration, std::uint32_t operation,
                                         std::uint32_t global_rank) const;
    [[nodiscard]] double slowness(std::uint32_t iteration, const JobCommunicator &comm) const;

    const JobPlan &plan_;
    std::uint32_t first_data_ = 0; // operation at which a late rank is late
    std::vector<std::size_t> first_;
    std::vector<std::size_t> stages_;
    std::size_t a_round_ = 0;
    std::vector<JobEvent> events_;
    std::uint64_t end_ns_ = 0;
};

} // namespace collwire::trace_gen
