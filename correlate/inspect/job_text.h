// SPDX-License-Identifier: Apache-2.0
// Where a process belongs, for people: container, pod, Slurm job.
#pragma once

#include <string>
#include <string_view>

#include "correlate/inspect/inspection.h"

namespace collwire::inspect {

// "Slurm job 4711.0, pod UID, container 0123456789ab"; empty: none of these.
[[nodiscard]] std::string job_text(const Process &process);
// "gpu-0417, pid 9120", and ", pod UID, container 0123456789ab" where it is in these. The pid is
// that of the host.
[[nodiscard]] std::string place_text(std::string_view host, const Process &process);

} // namespace collwire::inspect
