// SPDX-License-Identifier: Apache-2.0
// The capture of one node of a generated job.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "tools/trace-gen/job_clock.h"
#include "tools/trace-gen/job_plan.h"
#include "tools/trace-gen/job_times.h"

namespace collwire::trace_gen {

struct WrittenCapture {
    std::string path;
    std::uint64_t n_records = 0;
};

[[nodiscard]] std::string host_of_node(std::uint32_t node);
// As an IPv4 address: 10, NIC, pod, place in the pod.
void put_nic_address(std::uint8_t (&gid)[16], std::uint32_t node, std::uint32_t nic);
// The topology file of the cluster, as JSON.
[[nodiscard]] std::string job_topology(std::uint32_t nodes);

// Failed where a file cannot be written.
[[nodiscard]] Result<WrittenCapture> write_node(const JobPlan &plan, const JobTraffic &traffic,
                                                const JobTimes &times, std::uint32_t node);

} // namespace collwire::trace_gen
