// SPDX-License-Identifier: Apache-2.0
// The jobs of cluster schedulers whose processes are in captures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collwire/node_records.h"
#include "correlate/model/model.h"

namespace collwire::model {

// Which job a process is of. The text of each that it has: "4711", "4711.0", a pod's uid, a
// container's id; empty: it has none.
struct JobNames {
    std::string slurm_job, slurm_step, pod_uid, container_id;

    // "slurm 4711", else "pod ...", else "container ..." with 12 digits; empty: none.
    [[nodiscard]] std::string title() const;
    // `id`: "4711", "4711.0", or the first digits of a pod's uid or a container's id.
    [[nodiscard]] bool matches(std::string_view id) const;
};

[[nodiscard]] JobNames job_names(const Process &process);
[[nodiscard]] JobNames job_names(const cw_process &process);

struct ClusterJob {
    std::string title;
    std::uint64_t ranks_seen = 0;    // processes with a communicator
    std::int32_t ranks_expected = 0; // of its largest communicator
    std::vector<std::string> hosts;
    // Its first and its last call of NCCL, CLOCK_REALTIME; 0: none.
    std::uint64_t first_ns = 0, last_ns = 0;
};

// Of processes that have communicators; by title. After join().
[[nodiscard]] std::vector<ClusterJob> find_jobs(const Model &model);

// Leaves the processes of that job, what NCCL did in them and their queue pairs. Counters of ports
// and NVLinks are of the whole node, and stay. Before join().
void keep_job(Model &model, std::string_view id);

} // namespace collwire::model
