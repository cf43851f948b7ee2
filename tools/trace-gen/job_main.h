// SPDX-License-Identifier: Apache-2.0
// `collwire-trace-gen job`: captures of a generated training job, and the truth.
#pragma once

namespace collwire::trace_gen {

// Arguments from "job" on. Returns the exit status.
int job_main(int argc, char **argv);

} // namespace collwire::trace_gen
