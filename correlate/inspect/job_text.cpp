// SPDX-License-Identifier: Apache-2.0
#include "correlate/inspect/job_text.h"

#include <fmt/format.h>

namespace collwire::inspect {
namespace {

constexpr std::size_t SHOWN_DIGITS = 12; // of a container, as podman ps and docker ps have them

std::string cluster_text(const Process &process) {
    std::string text;
    if (!process.pod_uid.empty())
        text += fmt::format(", pod {}", process.pod_uid);
    if (!process.container_id.empty())
        text += fmt::format(", container {}", process.container_id.substr(0, SHOWN_DIGITS));
    return text;
}

} // namespace

std::string job_text(const Process &process) {
    std::string text;
    if (!process.slurm_job.empty())
        text += fmt::format(", Slurm job {}{}{}", process.slurm_job,
                            process.slurm_step.empty() ? "" : ".", process.slurm_step);
    text += cluster_text(process);
    return text.empty() ? text : text.substr(2);
}

std::string place_text(std::string_view host, const Process &process) {
    return fmt::format("{}, pid {}{}", host, process.pid, cluster_text(process));
}

} // namespace collwire::inspect
