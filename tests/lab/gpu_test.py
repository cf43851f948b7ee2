#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL on four nodes with the guest library in each rank, and a recorder with --gpu on each node: the report over the four captures has each
kernel with its launch, the waits of each operation, and its last rank. The truth are the logs of the test doubles of CUDA and CUPTI.

gpu_test.py [--kernel SERIES] [--nccl VERSION] [--cases CASE,...]"""

import os
import sys

import lab_harness as harness
import nccl_run

sys.path[:0] = [os.path.join(harness.ROOT, "tests", "nccl")]

import cases  # noqa: E402
import gpu_truth  # noqa: E402
import identity_truth  # noqa: E402

CASES = ",".join(cases.GPU)
MARGIN_NS = 20_000_000
FEWEST_WHOLE = 10


def judge(recorded):
    """Problems of a case."""
    case, report = recorded.case, recorded.report
    kernels = [kernel for number, (cupti, double) in enumerate(zip(recorded.files("cupti.*"), recorded.doubles))
               for kernel in gpu_truth.kernels_of(number, identity_truth.lines_of(cupti), double, has_one_clock=False)]
    if case.late_s:
        kernels = gpu_truth.without_straddling(report, recorded.processes, kernels)
    coverage, problems = gpu_truth.check_coverage(report, recorded.processes, kernels, bool(case.late_s))
    hosts = [host for host, _ in recorded.processes]
    clocks, of_clocks = gpu_truth.check_clocks(report, kernels, hosts)
    kernels = gpu_truth.on_common_clock(report, kernels, hosts)
    # Emulated CPUs read two clocks slowly: of each of two ranks.
    tolerance_ns = 2 * max(guest["clock_error_ns"] for guest in report["gpu"]["processes"]) + MARGIN_NS
    wanted = gpu_truth.phases_of(kernels, tolerance_ns)
    phases, of_phases = gpu_truth.check_phases(report, kernels, tolerance_ns)
    whole = sum(kind.whole for kind in wanted.values())
    if whole < FEWEST_WHOLE:
        problems.append(f"only {whole} operations with the kernels of all ranks")
    if "--stall-rank" in case.job_options:
        stalled = int(case.job_options[case.job_options.index("--stall-rank") + 1])
        waited_ns = int(case.job_options[case.job_options.index("--stall-ms") + 1]) * 1_000_000
        late = [kind for kind in report["gpu"]["operations"] if kind["waiting"] and kind["waiting"]["max_ns"] > waited_ns - tolerance_ns]
        if not late:
            problems.append(f"no operation waited for rank {stalled}")
    print(f"{case.name}: {coverage}; {phases}; {clocks}", flush=True)
    return problems + of_clocks + of_phases


if __name__ == "__main__":
    nccl_run.main(judge, CASES)
