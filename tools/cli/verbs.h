// SPDX-License-Identifier: Apache-2.0
// The verbs, each in its own file verb_NAME.cpp. Each returns an exit status (base/exit_status.h).
#pragma once

#include "tools/cli/options.h"

namespace collwire::cli {

[[nodiscard]] int run_doctor(const DoctorCommand &command);
[[nodiscard]] int run_record(RecordCommand command);
// Becomes the command: returns only if that fails.
[[nodiscard]] int run_run(const RunCommand &command);
[[nodiscard]] int run_dump(const DumpCommand &command);
[[nodiscard]] int run_topology(const TopologyCommand &command);
[[nodiscard]] int run_report(const ReportCommand &command);
[[nodiscard]] int run_inspect(const InspectCommand &command);
[[nodiscard]] int run_diagnose(const DiagnoseCommand &command);

} // namespace collwire::cli
